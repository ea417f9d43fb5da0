# The libibverbs of other distributions and of a Python wheel, for the tests of the plugin, in the cache.
# shellcheck shell=bash

# The distributions, as DISTRIBUTION-SUITE: each has another release of rdma-core.
LIBRARIES=(debian-bookworm debian-trixie debian-sid ubuntu-jammy ubuntu-noble ubuntu-resolute)
# A wheel that brings a libibverbs under a name of its own.
LIBRARIES_WHEEL=nixl-cu12
# Releases of other layouts, which are built if VRNIC_RDMA_CORE_GIT names a clone of rdma-core.
LIBRARIES_BUILT=(58.0 63.0 64.0)

# libraries_make FOLDER: fetches what the folder lacks. Each distribution is a root with the tools of libibverbs in it,
# without dpkg's data, and the source of rdma-core if the mirror has it. `wheel` has the libraries of the wheel.
libraries_make() {
	local name new=$1/new
	mkdir -p "$1" "$VRNIC_CACHE/log"
	touch "$1"
	for name in "${LIBRARIES[@]}"; do
		[ ! -d "$1/$name" ] || continue
		step "fetching the libibverbs of $name"
		rm -rf "$new"
		libraries_root "$name" "$new"
		mv "$new" "$1/$name"
	done
	if [ -n "${VRNIC_RDMA_CORE_GIT-}" ]; then
		for name in "${LIBRARIES_BUILT[@]}"; do
			[ ! -d "$1/built-$name" ] || continue
			step "building the libibverbs of rdma-core $name"
			rm -rf "$new"
			libraries_build "$name" "$1/debian-$VRNIC_SUITE" "$new"
			mv "$new" "$1/built-$name"
		done
	fi
	[ ! -d "$1/wheel" ] || return 0
	step "fetching the libibverbs of the wheel $LIBRARIES_WHEEL"
	rm -rf "$new"
	mkdir -p "$new/files"
	quietly "$VRNIC_CACHE/log/wheel" python3 -m pip download --no-deps --only-binary=:all: --python-version 3.11 \
		--platform manylinux_2_28_x86_64 --dest "$new" "$LIBRARIES_WHEEL"
	python3 -m zipfile -e "$new"/*.whl "$new/files"
	mkdir "$new/libs"
	mv "$new"/files/*.libs/lib{ibverbs,nl}-* "$new/libs"
	rm -rf "$new/files" "$new"/*.whl
	mv "$new" "$1/wheel"
}

# libraries_root NAME INTO: unpacks the packages of a distribution, and the source of its rdma-core.
libraries_root() {
	local suite=${1#*-} into=$2 mirror keyring components=main source
	case $1 in
	debian-*)
		mirror=$(awk '$1 == "deb" { print $2; exit }' "$VRNIC_TOOLROOT/etc/apt/sources.list")
		keyring=$VRNIC_TOOLROOT/usr/share/keyrings/debian-archive-keyring.gpg
		;;
	ubuntu-*)
		# debootstrap knows Ubuntu's mirror, and a package of Debian has its keys.
		mirror=$(awk '/default_mirror/ && !/old-releases/ { print $2; exit }' /usr/share/debootstrap/scripts/jammy)
		keyring=$VRNIC_CACHE/keyring/usr/share/keyrings/ubuntu-archive-keyring.gpg
		components="main universe"
		[ -e "$keyring" ] || libraries_keyring "$VRNIC_CACHE/keyring"
		;;
	esac
	# shellcheck disable=SC2016 # for the shells of the hooks
	source='cd "$1/src" && { APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-get -q source --download-only rdma-core || true; }'
	# A mirror may lag behind.
	quietly "$VRNIC_CACHE/log/library-$1" mmdebstrap --variant=extract --skip=check/empty --keyring="$keyring" \
		--aptopt='Acquire::Check-Valid-Until "false"' \
		--include=libibverbs1,ibverbs-utils,libgcc-s1 --setup-hook='mkdir "$1/sys" "$1/proc" "$1/src"' \
		--extract-hook="$source" "$suite" "$into" "deb $mirror $suite $components" "deb-src $mirror $suite main"
	if compgen -G "$into/src/*.orig.tar.*" >/dev/null; then
		tar -xf "$into"/src/*.orig.tar.* -C "$into/src" --strip-components=1
	fi
}

# libraries_build RELEASE ROOT INTO: copies the root with the libibverbs of that release, and its programs.
libraries_build() {
	local library=$3/usr/lib/x86_64-linux-gnu program
	cp -a "$2" "$3"
	rm -rf "$3/src" "$library"/libibverbs.so*
	mkdir "$3/src"
	quietly "$VRNIC_CACHE/log/cmake" in_root apt-get -q -y install cmake
	git -C "$VRNIC_RDMA_CORE_GIT" archive "v$1" | tar -x -C "$3/src"
	quietly "$VRNIC_CACHE/log/library-$1" in_root sh -euc "mkdir '$3/build' && cd '$3/build' && cmake ../src \
		-DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_LIBDIR=lib/x86_64-linux-gnu \
		-DCMAKE_INSTALL_SYSCONFDIR=/etc -DNO_PYVERBS=1 -DNO_MAN_PAGES=1 &&
		make -j'$(nproc)' ibverbs ibv_devices ibv_devinfo ibv_rc_pingpong ibv_ud_pingpong ibv_srq_pingpong ibv_xsrq_pingpong"
	cp -a "$3"/build/lib/libibverbs.so* "$library"
	for program in devices devinfo rc_pingpong ud_pingpong srq_pingpong xsrq_pingpong; do
		cp "$3/build/bin/ibv_$program" "$3/usr/bin"
	done
	rm -rf "$3/build"
}

# libraries_keyring INTO: the keys of Ubuntu's archive.
libraries_keyring() {
	local package=ubuntu-keyring
	rm -rf "$1"
	mkdir -p "$1"
	quietly "$VRNIC_CACHE/log/keyring" in_root sh -euc "cd '$1' && apt-get -q download $package"
	dpkg-deb -x "$1/$package"_*.deb "$1"
}
