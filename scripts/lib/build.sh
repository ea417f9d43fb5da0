# Builds what the guests and the tests need. Needs what scripts/setup makes.
# shellcheck shell=bash

# build_all: everything that a pair of guests runs.
build_all() {
	step "building the daemon, the harness, the provider and the guests' programs"
	cargo build --release --quiet --manifest-path "$VRNIC_TOP/Cargo.toml" \
		-p vrnic-device -p vrnic-qemu -p vrnic-provider -p vrnic-verify
	build_example
	build_module
}

# build_example: the example of the direct verbs, as build/vrnicdv_command. The tool root's headers come last:
# its libc is not this machine's.
build_example() {
	local source=$VRNIC_TOP/provider/examples/command.c out=$VRNIC_BUILD/vrnicdv_command
	local plugin=${CARGO_TARGET_DIR:-$VRNIC_TOP/target}/release/libvrnic.so
	mkdir -p "$VRNIC_BUILD"
	[ "$out" -nt "$source" ] && [ "$out" -nt "$plugin" ] && return
	gcc -O2 -Wall -Wextra -Werror -I "$VRNIC_TOP/provider" -idirafter "$VRNIC_VERBS_INCLUDE" -o "$out" "$source" \
		"$plugin" "$VRNIC_VERBS_LIB/libibverbs.so" -Wl,--allow-shlib-undefined
}

# build_module: the kernel module, by Kbuild in the tool root, as build/vrnic.ko.
build_module() {
	local bitflags
	step "building vrnic.ko for $(kernel_release)"
	mkdir -p "$VRNIC_BUILD"
	bitflags=$(crate_copy bitflags)
	quietly "$VRNIC_BUILD/module.log" in_root make -C "/usr/src/linux-headers-$(kernel_release)" \
		-j"$(nproc)" M="$VRNIC_TOP" MO="$VRNIC_BUILD" VRNIC_BITFLAGS="$bitflags" modules
}

# crate_copy NAME: a copy of that crate's source, of the version in Cargo.lock, where the tool root can see it.
# Prints the copy's folder.
crate_copy() {
	local manifest folder
	manifest=$(cargo metadata --format-version 1 --offline \
		--filter-platform x86_64-unknown-linux-gnu --manifest-path "$VRNIC_TOP/Cargo.toml" |
		grep -oE "\"manifest_path\":\"[^\"]*/$1-2[^\"/]*/Cargo\.toml\"" | head -n 1 | cut -d'"' -f4)
	[ -n "$manifest" ] || die "cargo knows no crate $1; does Cargo.lock have it?"
	folder=$VRNIC_BUILD/crates/$(basename "$(dirname "$manifest")")
	if ! [ -e "$folder/Cargo.toml" ]; then
		mkdir -p "$VRNIC_BUILD/crates"
		cp -r "$(dirname "$manifest")" "$folder"
	fi
	printf '%s\n' "$folder"
}
