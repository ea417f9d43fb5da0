# siw, the kernel's software iWARP: Debian's config leaves it out, so it is built from the same source as an external
# module, in the cache.
# shellcheck shell=bash

# siw_build SOURCE DIR: builds it in the folder, if it is not there.
siw_build() {
	local release
	! [ -e "$2/siw.ko" ] || return 0
	release=$(kernel_release)
	[ -d "$1" ] || die "the source of siw is missing ($1); run scripts/setup --force"
	step "building siw.ko for $release"
	rm -rf "$2"
	cp -r "$1" "$2"
	# shellcheck disable=SC2016 # a variable of make, not of this shell
	sed -i 's/\$(CONFIG_RDMA_SIW)/m/' "$2/Makefile"
	mkdir -p "$VRNIC_CACHE/log"
	quietly "$VRNIC_CACHE/log/siw" in_root make -C "/usr/src/linux-headers-$release" M="$2" modules
}

# siw_make: builds siw.ko for the guests' kernel if it is not there. Prints its path.
siw_make() {
	local release source dir
	release=$(kernel_release)
	source=$VRNIC_TOOLROOT/usr/src/linux-source-$VRNIC_KERNEL_SERIES/drivers/infiniband/sw/siw
	dir=$VRNIC_CACHE/siw-$release
	locked "$VRNIC_CACHE/siw.lock" siw_build "$source" "$dir"
	touch "$dir"
	printf '%s\n' "$dir/siw.ko"
}
