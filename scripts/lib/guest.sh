# The guests' images: a small Debian with the stock kernel's modules, as an initramfs; and the same with the
# programs that only the long tests run.
# shellcheck shell=bash

GUEST_PACKAGES=(
	perftest rdma-core ibverbs-utils rdmacm-utils ibverbs-providers iproute2 iputils-ping kmod procps
	pciutils
)
# Modules (with what they need) that guests may load.
GUEST_MODULES=(
	virtio_net virtio_console virtio_blk ib_core ib_uverbs ib_umad rdma_cm rdma_ucm rdma_rxe siw
	nvme_rdma nvmet_rdma brd null_blk ext4
)

# Beyond these: other people's programs over RDMA.
APPS_PACKAGES=(
	libfabric-bin ucx-utils openmpi-bin netpipe-openmpi openssh-server openssh-client nfs-kernel-server nfs-common
)
APPS_MODULES=(nfs nfsv4 nfsd rpcrdma)

# Beside the minimal image, for a disk by iSCSI that programs use and measure.
# shellcheck disable=SC2034 # scripts/lib/needs.sh and bench/iscsi/run use it
STORAGE_PACKAGES=(e2fsprogs fio open-iscsi)

# guest_userland: the root of the image that all but the long tests use, without a kernel.
guest_userland() {
	mkdir -p "$VRNIC_CACHE/log"
	rm -rf "$VRNIC_GUEST"
	mkdir -p "$VRNIC_GUEST"
	guest_root "$VRNIC_CACHE/log" "perftest and rdma-core"
}

# guest_make: that image, of the root that guest_userland made.
guest_make() {
	guest_image "$VRNIC_CACHE/log"
}

# guest_make_apps: the image of the long tests, in the folder $VRNIC_GUEST_APPS.
guest_make_apps() {
	guest_make_more "$VRNIC_GUEST_APPS" "${APPS_PACKAGES[@]}"
}

# guest_make_with IMAGE PACKAGE…: the image minimal or apps with more packages, in the folder that guest_folder prints.
guest_make_with() {
	local image=$1 folder more=()
	folder=$(guest_folder "$@")
	[ "$image" != apps ] || more=("${APPS_PACKAGES[@]}")
	shift
	guest_make_more "$folder" "${more[@]}" "$@"
}

# guest_make_more FOLDER PACKAGE…: an image with more packages, and with the modules of the long tests.
guest_make_more() {
	local VRNIC_GUEST=$1
	shift
	local GUEST_PACKAGES=("${GUEST_PACKAGES[@]}" "$@")
	local GUEST_MODULES=("${GUEST_MODULES[@]}" "${APPS_MODULES[@]}")
	rm -rf "$VRNIC_GUEST"
	mkdir -p "$VRNIC_CACHE/log" "$VRNIC_GUEST"
	guest_root "$VRNIC_CACHE/log" "$*"
	guest_image "$VRNIC_CACHE/log"
}

# guest_image LOG: packs the root in $VRNIC_GUEST, with the kernel's GUEST_MODULES, as an initramfs.
guest_image() {
	local log=$1 root=$VRNIC_GUEST/root release
	release=$(kernel_release)
	step "guest 2/3: stock kernel $release"
	guest_kernel "$log" "$root" "$release"
	step "guest 3/3: packing the initramfs"
	(cd "$root" && find . -xdev -print0 | cpio --quiet --null --create --format=newc) >"$VRNIC_GUEST/base.cpio"
	rm -rf "$root"
	touch "$VRNIC_GUEST/complete"
}

# guest_root LOG WHAT: unpacks GUEST_PACKAGES as the root of an image in the folder $VRNIC_GUEST.
guest_root() {
	local log=$1 root=$VRNIC_GUEST/root mirror
	step "guest 1/3: Debian $VRNIC_SUITE with $2"
	mirror=${VRNIC_MIRROR:-$(debian_mirror)}
	quietly "$log/mmdebstrap" mmdebstrap --variant=minbase --skip=check/empty \
		--include="$(IFS=,; echo "${GUEST_PACKAGES[*]}")" \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' \
		"$VRNIC_SUITE" "$root" "$mirror"
	rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/* "$root"/var/lib/dpkg/info "$root/usr/share/i18n"
}

guest_kernel() {
	local log=$1 root=$2 release=$3 debs=$VRNIC_GUEST/debs m line
	mkdir -p "$debs"
	quietly "$log/kernel-debs" in_root sh -euc "cd '$debs' && apt-get -q download \
		linux-binary-unsigned-$release linux-modules-$release"
	for m in "$debs"/*.deb; do dpkg-deb -x "$m" "$debs/x"; done
	[ -d "$VRNIC_MODULES" ] || modules_take "$debs/x" "$release"
	# The packages use /usr/lib; modprobe is shown it as /lib, as in a merged root.
	ln -s usr/lib "$debs/x/lib"
	cp "$debs/x/lib/modules/$release/vmlinuz.unsigned" "$VRNIC_GUEST/vmlinuz"
	quietly "$log/depmod" in_root depmod -b "$debs/x" "$release"
	mkdir -p "$root/lib/modules/$release"
	for m in "${GUEST_MODULES[@]}"; do
		# siw is not in Debian's config; others may be built in.
		in_root modprobe -d "$debs/x" -S "$release" --show-depends "$m" 2>/dev/null || true
	done | awk '$1 == "insmod" { print $2 }' | sort -u | while read -r line; do
		line=${line#"$debs/x"}
		mkdir -p "$root${line%/*}"
		cp "$debs/x$line" "$root$line"
	done
	quietly "$log/depmod-guest" in_root depmod -b "$root" "$release"
	rm -rf "$debs"
}
