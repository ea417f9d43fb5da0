# The tool root: Debian's own compilers, kernel headers made ready for Rust, QEMU, and rdma-core's source.
# shellcheck shell=bash

# What is built with, beside the kernel's headers. libelf comes from the kernel's suite with them.
TOOLROOT_PACKAGES=(
	rustc rust-src bindgen clang libclang-dev gcc make flex bison bc libssl-dev pahole kmod cpio
	xz-utils bzip2 dpkg-dev pkg-config python3-minimal
	libibverbs-dev librdmacm-dev ibverbs-utils rdma-core ca-certificates
)

# debian_mirror: prints the address of the mirror that debootstrap takes.
debian_mirror() {
	local mirror
	mirror=$(sed -n 's/^DEF_MIRROR="\(.*\)"$/\1/p' "$(command -v debootstrap)")
	[ -n "$mirror" ] || die "this machine's debootstrap names no mirror of Debian; set VRNIC_MIRROR to the address of one"
	printf '%s\n' "$mirror"
}

# toolroot_packages: a Debian with these packages, QEMU and the kernel's headers. It says which kernel the guests have.
toolroot_packages() {
	local log=$VRNIC_CACHE/log kernel="linux-source-$VRNIC_KERNEL_SERIES,linux-config-$VRNIC_KERNEL_SERIES" mirror
	mirror=${VRNIC_MIRROR:-$(debian_mirror)}
	mkdir -p "$log"
	rm -rf "$VRNIC_TOOLROOT"
	step "tool root 1/3: Debian $VRNIC_SUITE with compilers and QEMU"
	# The root is marked complete at the end, so nothing is lost by a dpkg that does not wait for the disk.
	# shellcheck disable=SC2016 # mmdebstrap sets $1
	TOOLROOT_SUITE=$VRNIC_KERNEL_SUITE quietly "$log/toolroot" mmdebstrap --variant=minbase --skip=check/empty,cleanup/apt/lists \
		--include="$kernel,qemu-system-x86,libelf-dev,$(IFS=,; echo "${TOOLROOT_PACKAGES[*]}")" \
		--dpkgopt=force-unsafe-io \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' \
		--aptopt='APT::Install-Recommends "false"' --aptopt='APT::Sandbox::User "root"' --aptopt='Acquire::Retries "3"' \
		--setup-hook='printf "Package: linux-* qemu-* seabios libelf* libdw*\nPin: release n=%s\nPin-Priority: 900\n" \
			"$TOOLROOT_SUITE" >"$1/etc/apt/preferences.d/vrnic"' \
		"$VRNIC_SUITE" "$VRNIC_TOOLROOT" "deb $mirror $VRNIC_SUITE main" \
		"deb $mirror $VRNIC_KERNEL_SUITE main" "deb-src $mirror $VRNIC_SUITE main"
	printf '#!/bin/sh\nexit 101\n' >"$VRNIC_TOOLROOT/usr/sbin/policy-rc.d"
	chmod 755 "$VRNIC_TOOLROOT/usr/sbin/policy-rc.d"
	cp /etc/resolv.conf "$VRNIC_TOOLROOT/etc/resolv.conf"
	toolroot_headers "$log"
}

# toolroot_make: what is not in packages. The root is complete then.
toolroot_make() {
	local log=$VRNIC_CACHE/log
	step "tool root 2/3: rdma-core's source"
	toolroot_rdma_core "$log"
	# The libibverbs plugin can be built from here on.
	touch "$VRNIC_TOOLROOT/etc/vrnic-headers"
	step "tool root 3/3: the kernel's Rust crates (about 80 s)"
	toolroot_kernel "$log"
	touch "$VRNIC_TOOLROOT/etc/vrnic-complete"
}

# newest_headers: prints the newest of the packages in standard input that are headers of the kernel's series.
newest_headers() {
	local series=${VRNIC_KERNEL_SERIES//./\\.}
	# That there are none is no failure here.
	{ grep -E "^linux-headers-$series\.[0-9]+\+deb[0-9]+-amd64\$" || true; } | sort -V | tail -n 1
}

# toolroot_headers LOG: installs the headers of the newest kernel of the series.
toolroot_headers() {
	local log=$1 headers
	headers=$(in_root apt-cache pkgnames linux-headers-) || die "apt in the tool root does not list packages"
	headers=$(newest_headers <<<"$headers")
	[ -n "$headers" ] || die "$VRNIC_KERNEL_SUITE has no linux-headers-$VRNIC_KERNEL_SERIES.*-amd64 any more;" \
		"set VRNIC_KERNEL_SERIES in qemu/versions.env to a series that it has (built with CONFIG_RUST)"
	quietly "$log/apt-headers" in_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y install "$headers"
	printf '%s\n' "${headers#linux-headers-}" >"$VRNIC_TOOLROOT/etc/vrnic-kernel"
}

# Debian's headers lack the built Rust crates; they are made from the same source and config with the same
# compiler, hence have the same symbols, and are put where Kbuild looks for them.
toolroot_kernel() {
	local log=$1 src=/usr/src/linux-source-$VRNIC_KERNEL_SERIES headers
	headers=$VRNIC_TOOLROOT/usr/src/linux-headers-$(kernel_release)
	in_root tar -C /usr/src -xf "$src.tar.xz"
	in_root sh -c "xz -dc /usr/src/linux-config-$VRNIC_KERNEL_SERIES/config.amd64_none_amd64.xz >$src/.config"
	quietly "$log/olddefconfig" in_root make -C "$src" olddefconfig
	# The crates need neither of the host tools that these settings ask for.
	quietly "$log/prepare" in_root make -C "$src" -j"$(nproc)" CONFIG_OBJTOOL= CONFIG_DEBUG_INFO_BTF= prepare
	cp -a "$VRNIC_TOOLROOT$src/rust" "$headers/"
	cp "$VRNIC_TOOLROOT$src/scripts/target.json" "$headers/scripts/"
	# siw, for scripts/bench, is not in Debian's config: keep its source and the Rust one, drop the rest.
	find "$VRNIC_TOOLROOT$src" -mindepth 1 -maxdepth 1 ! -name rust ! -name drivers -exec rm -rf {} +
	find "$VRNIC_TOOLROOT$src/drivers" -mindepth 1 -maxdepth 1 ! -name infiniband -exec rm -rf {} +
	rm -f "$VRNIC_TOOLROOT$src.tar.xz"
}

# libibverbs' private headers are in no binary package.
toolroot_rdma_core() {
	local log=$1 dir=/usr/src/rdma-core
	# A mirror may lack the .dsc while it still has the tarball, so fetch that by its own address.
	in_root sh -euc '
		url=$(apt-get source --print-uris rdma-core | grep -o "[^'\'']*rdma-core_'"$VRNIC_RDMA_CORE"'\.orig\.tar\.[a-z0-9]*" | head -n 1)
		[ -n "$url" ] || { echo "no rdma-core '"$VRNIC_RDMA_CORE"' source in the suite"; exit 1; }
		cd /usr/src && /usr/lib/apt/apt-helper download-file "$url" rdma-core.tar
		mkdir -p '"$dir"' && tar -C '"$dir"' --strip-components=1 -xf rdma-core.tar && rm rdma-core.tar
	' >"$log/rdma-core" 2>&1 || {
		tail -n 10 "$log/rdma-core" >&2
		die "rdma-core $VRNIC_RDMA_CORE source not found; is VRNIC_RDMA_CORE in qemu/versions.env what $VRNIC_SUITE has?"
	}
}
