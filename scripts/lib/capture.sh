# Test programs of libpcap, in the cache: of Debian's source, but with support for RDMA devices, which Debian's own build
# lacks.
# shellcheck shell=bash

# capture_make FOLDER: fetches and builds what the folder lacks: the programs that list the devices, and that capture.
capture_make() {
	local new=$1.new
	[ ! -d "$1" ] || return 0
	step "building a libpcap that knows RDMA devices"
	rm -rf "$new"
	mkdir -p "$new/source" "$VRNIC_CACHE/log"
	quietly "$VRNIC_CACHE/log/capture" in_root sh -euc "cd '$new'
		apt-get -q source --download-only libpcap
		tar -xf libpcap_*.orig.tar.* -C source --strip-components=1
		cd source
		./configure --enable-rdma --disable-dbus --disable-shared --without-libnl
		make -j'$(nproc)'
		make testprogs
		cp testprogs/writecaptest testprogs/findalldevstest .."
	rm -rf "$new/source" "$new"/libpcap_*
	mv "$new" "$1"
}
