# The image of a whole Debian system, for tests of the packages: a disk that systemd boots from, with the stock kernel
# and Debian's own initramfs. Nothing of vrnic is in it.
# shellcheck shell=bash

SYSTEM_PACKAGES=(
	systemd-sysv udev dbus initramfs-tools zstd kmod e2fsprogs login passwd procps pciutils
	iproute2 iputils-ping rdma-core perftest ibverbs-utils ibverbs-providers rdmacm-utils
)

# system_make: makes the folder $VRNIC_SYSTEM with the files disk, vmlinuz and initrd. It gets its name when it is
# complete.
system_make() {
	local log=$VRNIC_CACHE/log dir=$VRNIC_SYSTEM.new release mirror
	release=$(kernel_release)
	mirror=$(awk '$1 == "deb" { print $2; exit }' "$VRNIC_TOOLROOT/etc/apt/sources.list")
	mkdir -p "$log"
	rm -rf "$dir"
	mkdir -p "$dir"
	step "system 1/2: Debian $VRNIC_SUITE with systemd and kernel $release"
	# Without a password root can log in at a serial line.
	# shellcheck disable=SC2016 # mmdebstrap sets $1
	quietly "$log/system" mmdebstrap --variant=minbase --skip=check/empty \
		--include="linux-image-$release,linux-base/$VRNIC_KERNEL_SUITE,$(IFS=,; echo "${SYSTEM_PACKAGES[*]}")" \
		--dpkgopt=force-unsafe-io \
		--customize-hook='chroot "$1" passwd --delete root' \
		--customize-hook='echo "LABEL=system / ext4 defaults 0 1" >"$1/etc/fstab"' \
		--customize-hook='rm "$1/etc/hostname"; : >"$1/etc/resolv.conf"; : >"$1/etc/machine-id"' \
		"$VRNIC_SUITE" "$dir/root" \
		"deb $mirror $VRNIC_SUITE main" "deb $mirror $VRNIC_KERNEL_SUITE main"
	step "system 2/2: writing the disk"
	cp "$dir/root/boot/vmlinuz-$release" "$dir/vmlinuz"
	cp "$dir/root/boot/initrd.img-$release" "$dir/initrd"
	quietly "$log/system-disk" mkfs.ext4 -q -L system -d "$dir/root" "$dir/disk" 4G
	rm -rf "$dir/root"
	mv "$dir" "$VRNIC_SYSTEM"
}
