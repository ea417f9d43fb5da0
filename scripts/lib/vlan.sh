# Modules for VLANs, which the guests' base image lacks: tests hand them to guests that need them.
# shellcheck shell=bash

# What 8021q needs comes first.
VLAN_MODULES=(llc/llc 802/stp 802/garp 802/mrp 8021q/8021q)
VRNIC_VLAN=$VRNIC_GUEST-vlan

# vlan_make: unpacks them from the kernel's package into the cache, numbered in the order in which they load.
vlan_make() {
	local log=$VRNIC_CACHE/log dir=$VRNIC_VLAN.new release module file n=0
	release=$(kernel_release)
	step "modules for VLANs"
	mkdir -p "$log"
	rm -rf "$dir" "$VRNIC_VLAN"
	mkdir -p "$dir"
	quietly "$log/vlan" in_root sh -euc "cd '$dir' && apt-get -q download linux-modules-$release"
	dpkg-deb -x "$dir"/*.deb "$dir/x"
	for module in "${VLAN_MODULES[@]}"; do
		file=$(echo "$dir/x/usr/lib/modules/$release/kernel/net/$module".ko*)
		# Whatever is built into the kernel is no file.
		[ -e "$file" ] || continue
		n=$((n + 1))
		case $file in
		*.xz) xz -dc "$file" >"$dir/$n-${module##*/}.ko" ;;
		*) cp "$file" "$dir/$n-${module##*/}.ko" ;;
		esac
	done
	rm -rf "$dir/x" "$dir"/*.deb
	[ -e "$dir/$n-8021q.ko" ] || die "the kernel's package has no 8021q module"
	mv "$dir" "$VRNIC_VLAN"
}
