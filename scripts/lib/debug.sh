# The debug kernel: the guests' kernel, built from Debian's source with KASAN, lockdep and other checks
# (qemu/debug.config). `scripts/test --debug` runs whole-system tests in guests with it.
# shellcheck shell=bash

# Made again when its recipe changes.
VRNIC_DEBUG=$VRNIC_CACHE/debug-$VRNIC_KEY-$(cat "$VRNIC_TOP"/{scripts/lib/debug.sh,qemu/debug.config} | cksum | cut -d" " -f1)

# debug_make: makes the folder $VRNIC_DEBUG. Its folder `linux` has the built kernel, against which modules are built,
# `modules` all modules, as a file NAME.ko each, and its other folders the guests' images.
debug_make() {
	local log=$VRNIC_CACHE/log
	rm -rf "$VRNIC_DEBUG"
	mkdir -p "$log" "$VRNIC_DEBUG"/{linux,modules}
	step "debug kernel 1/3: Debian's source of linux-source-$VRNIC_KERNEL_SERIES"
	debug_source "$log"
	step "debug kernel 2/3: building it (about 10 minutes on 2 processors)"
	debug_configure "$log"
	quietly "$log/debug-build" debug_kbuild -j"$(nproc)" bzImage modules
	step "debug kernel 3/3: its modules"
	debug_modules "$log"
	touch "$VRNIC_DEBUG/complete"
}

# debug_kbuild OPTION…: runs make in the kernel's tree. KASAN checks Rust code only if clang compiles the C code.
debug_kbuild() {
	in_root make -C "$VRNIC_DEBUG/linux" CC=clang "$@"
}

debug_source() {
	local log=$1 new=$VRNIC_DEBUG/source
	mkdir "$new"
	quietly "$log/debug-source" in_root sh -euc \
		"cd '$new' && apt-get -q download linux-source-$VRNIC_KERNEL_SERIES && dpkg-deb -x ./*.deb ."
	tar -C "$VRNIC_DEBUG/linux" --strip-components=1 -xf "$new/usr/src/linux-source-$VRNIC_KERNEL_SERIES.tar.xz"
	rm -rf "$new"
	debug_identify "$VRNIC_DEBUG/linux/arch/x86/kernel/cpu/common.c"
}

# debug_identify FILE: lets the kernel take no interrupt while it identifies its first processor. KASAN, which does not
# know the size of addresses then, would report a wild access in about one start of fifty, and check nothing more.
debug_identify() {
	sed -i 's/^\tidentify_cpu(&boot_cpu_data);$/\tlocal_irq_disable();\n&\n\tlocal_irq_enable();/' "$1"
	grep -A 1 local_irq_disable "$1" | grep -q 'identify_cpu(&boot_cpu_data);' ||
		die "$1 is not as expected: it has no 'identify_cpu(&boot_cpu_data);'"
}

# debug_configure LOG: makes the configuration. Settings that depend on something that is missing are an error.
debug_configure() {
	local log=$1 line missing=()
	quietly "$log/debug-config" in_root make -C "$VRNIC_DEBUG/linux" CC=clang \
		KCONFIG_ALLCONFIG="$VRNIC_TOP/qemu/debug.config" allnoconfig
	while read -r line; do
		grep -qxF "$line" "$VRNIC_DEBUG/linux/.config" || missing+=("$line")
	done < <(grep '^CONFIG_' "$VRNIC_TOP/qemu/debug.config")
	[ ${#missing[@]} -eq 0 ] || die "the kernel cannot have these settings of qemu/debug.config: ${missing[*]}"
}

# debug_modules LOG: makes the folder `modules`, and the file modules.cpio, the part of an image that has modules.
debug_modules() {
	local log=$1 root=$VRNIC_DEBUG/root module
	mkdir "$root"
	quietly "$log/debug-modules" debug_kbuild INSTALL_MOD_PATH="$root" INSTALL_MOD_STRIP=1 modules_install
	rm -f "$root"/lib/modules/*/build
	find "$root" -name '*.ko' -exec cp -t "$VRNIC_DEBUG/modules" {} +
	# Tests load these from files, as with Debian's kernel. The guests' kernels must not load them by themselves.
	for module in "${EXTRA_MODULES[@]}"; do find "$root" -name "${module##*/}.ko" -delete; done
	quietly "$log/debug-depmod" in_root depmod -b "$root" "$(cat "$VRNIC_DEBUG/linux/include/config/kernel.release")"
	(cd "$root" && find . -print0 | cpio --quiet --null --create --format=newc) >"$VRNIC_DEBUG/modules.cpio"
	rm -rf "$root"
	# Modules are built without the kernel's object files.
	find "$VRNIC_DEBUG/linux" \( -path '*/scripts' -o -path '*/tools' \) -prune -o -type f \( -name '*.o' -o -name '*.a' \) \
		-exec rm {} +
}

# debug_guest BASE: makes the image with the debug kernel of the image in the folder BASE, unless it is there, and prints
# its folder.
debug_guest() {
	local folder=$VRNIC_DEBUG/${1##*/}
	if ! [ -e "$folder/complete" ]; then
		mkdir -p "$folder"
		cat "$1/base.cpio" "$VRNIC_DEBUG/modules.cpio" >"$folder/base.cpio"
		cp "$VRNIC_DEBUG/linux/arch/x86/boot/bzImage" "$folder/vmlinuz"
		touch "$folder/complete"
	fi
	echo "$folder"
}

# debug_module: builds the kernel modules for the debug kernel, in the folder $VRNIC_BUILD/debug, which then has
# everything that whole-system tests look for in $VRNIC_BUILD.
debug_module() {
	local bitflags program
	step "building vrnic.ko for the debug kernel"
	mkdir -p "$VRNIC_BUILD/debug"
	bitflags=$(crate_copy bitflags)
	quietly "$VRNIC_BUILD/debug.log" debug_kbuild -j"$(nproc)" M="$VRNIC_TOP" MO="$VRNIC_BUILD/debug" \
		VRNIC_BITFLAGS="$bitflags" VRNIC_CLIENTS=y modules
	for program in "$VRNIC_BUILD"/vrnic_* "$VRNIC_BUILD"/vrnicdv_*; do
		case $program in *.ko | *.o | *.mod | *.c) ;; *) ln -sf "$program" "$VRNIC_BUILD/debug/" ;; esac
	done
}
