# siw, the kernel's software iWARP: Debian's config leaves it out, so it is built from the same source as an external
# module, in the cache.
# shellcheck shell=bash

# siw_make: builds siw.ko for the guests' kernel if it is not there. Prints its path.
siw_make() {
	local release source dir
	release=$(kernel_release)
	source=$VRNIC_TOOLROOT/usr/src/linux-source-$VRNIC_KERNEL_SERIES/drivers/infiniband/sw/siw
	dir=$VRNIC_CACHE/siw-$release
	if ! [ -e "$dir/siw.ko" ]; then
		[ -d "$source" ] || die "the source of siw is missing ($source); run scripts/setup --force"
		step "building siw.ko for $release"
		rm -rf "$dir"
		cp -r "$source" "$dir"
		# shellcheck disable=SC2016 # a variable of make, not of this shell
		sed -i 's/\$(CONFIG_RDMA_SIW)/m/' "$dir/Makefile"
		mkdir -p "$VRNIC_CACHE/log"
		quietly "$VRNIC_CACHE/log/siw" in_root make -C "/usr/src/linux-headers-$release" M="$dir" modules
	fi
	printf '%s\n' "$dir/siw.ko"
}
