# The module as DKMS builds it from the package vrnic-dkms, for the tests of the packages.
# shellcheck shell=bash

# dkms_make PACKAGES MODULE: installs vrnic-dkms by apt from the repository PACKAGES, and copies the module that DKMS
# builds to the file MODULE. The system is a layer over the tool root, in which the kernel's headers and source are as
# Debian has them: without Rust crates, and packed. Nothing of it is kept but the module.
dkms_make() {
	local layer=$VRNIC_BUILD/dkms log=$VRNIC_BUILD/dkms.log
	step "building the module by DKMS, with the kernel's Rust crates (about 2 minutes)"
	rm -rf "$layer"
	mkdir -p "$layer"/{changes,work,root} "$(dirname "$2")"
	# shellcheck disable=SC2016 # the shells of the layer expand these
	quietly "$log" unshare --mount --propagation private bash -euc '
		. "$1/scripts/lib/common.sh"
		mount -t overlay -o "lowerdir=$VRNIC_TOOLROOT,upperdir=$2/changes,workdir=$2/work" overlay "$2/root"
		release=$(kernel_release)
		VRNIC_TOOLROOT=$2/root in_root sh -euxc "$5" sh "$3" "$4" "$release" "$VRNIC_KERNEL_SERIES"
	' bash "$VRNIC_TOP" "$layer" "$1" "$2" '
		headers=/usr/src/linux-headers-$3
		rm -rf "$headers/rust" "$headers/scripts/target.json"
		echo "deb [trusted=yes] file:$1 ./" >/etc/apt/sources.list.d/vrnic.list
		export DEBIAN_FRONTEND=noninteractive
		apt-get -q update
		apt-get -q -y install --reinstall "linux-headers-$3" "linux-source-$4"
		apt-get -q -y install vrnic-dkms || { cat /var/lib/dkms/vrnic/*/build/make.log; exit 1; }
		dkms status -m vrnic -k "$3" | grep -w installed
		test -e "/var/lib/vrnic-dkms/$3/rust/libkernel.rmeta"
		module=$(ls /lib/modules/"$3"/updates/dkms/vrnic.ko*)
		case $module in
		*.xz) xz -dc "$module" >"$2" ;;
		*) cp "$module" "$2" ;;
		esac
		apt-get -q -y purge vrnic-dkms
		! find /var/lib/vrnic-dkms "/lib/modules/$3" -iname "*vrnic*" | grep .
	'
	rm -rf "$layer"
}
