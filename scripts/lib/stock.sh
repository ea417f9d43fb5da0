# All modules of the guests' kernel, for runs that ask for some of them by name, and for disks with whole systems.
# shellcheck shell=bash

# stock_make: unpacks the kernel's package of modules into the folder $VRNIC_STOCK, with the tables of modprobe.
stock_make() {
	local log=$VRNIC_CACHE/log dir=$VRNIC_STOCK.new release
	release=$(kernel_release)
	step "all modules of kernel $release"
	mkdir -p "$log"
	rm -rf "$dir"
	mkdir -p "$dir"
	quietly "$log/stock" in_root sh -euc "cd '$dir' && apt-get -q download linux-modules-$release"
	dpkg-deb -x "$dir"/*.deb "$dir/x"
	rm -f "$dir"/*.deb
	ln -s usr/lib "$dir/x/lib"
	quietly "$log/stock-depmod" in_root depmod -b "$dir/x" "$release"
	mv "$dir/x/usr/lib/modules/$release"/{kernel,modules.*} "$dir/"
	rm -rf "$dir/x"
	mv "$dir" "$VRNIC_STOCK"
}
