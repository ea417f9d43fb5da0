# Sets up and builds what the guests and the tests need.
# shellcheck shell=bash
. "$VRNIC_TOP/scripts/lib/checks.sh"
. "$VRNIC_TOP/scripts/lib/prepared.sh"

# prepare_run: sets up what is missing and builds what scripts/run needs, and the examples of the direct verbs.
prepare_run() {
	[ -n "$VRNIC_PREBUILT" ] || unless_prepared run make_run
}

# prepare_lab: the same for scripts/lab: also the program vrnic, and the kernel clients.
prepare_lab() {
	[ -n "$VRNIC_PREBUILT" ] || unless_prepared lab make_lab
}

# prepare_checker: the same for scripts/lab --check, after prepare_lab: the checker of programs that use verbs.
prepare_checker() {
	[ -n "$VRNIC_PREBUILT" ] || unless_prepared checker build_checker
}

# prepare_pair: the same for both of them, and for packages.
prepare_pair() {
	[ -n "$VRNIC_PREBUILT" ] || unless_prepared pair make_pair
}

# prepare_all: the same, and the programs of the tests.
prepare_all() {
	unless_prepared all make_all
}

PROGRAMS_RUN=(vrnicd vrnic-agent vrnic-pair)
PROGRAMS_LAB=(vrnicd vrnic vrnic-agent vrnic-lab)
CLIENTS=(vrnic_kverbs.ko vrnic_kping.ko vrnic_kdirect.ko vrnic_kswitch.ko)

# A first run leaves out what it does not need. What has been built once is built anew with the rest from then on, so that
# no script undoes what another one has built.
make_run() {
	local clients=
	[ ! -e "$VRNIC_BUILD/${CLIENTS[0]}" ] || clients=y
	make_guests "${PROGRAMS_RUN[@]}"
}

make_lab() {
	local clients=y
	make_guests "${PROGRAMS_LAB[@]}"
}

make_pair() {
	local clients=y
	make_guests "${PROGRAMS_LAB[@]}" vrnic-pair
}

make_all() {
	make_pair
	build_programs
}

# make_guests PROGRAM…: what the guests need, with these programs of this machine.
make_guests() {
	local early
	"$VRNIC_TOP/scripts/setup" --host
	# What is made from here on takes some of the room.
	export VRNIC_ROOM=checked
	fetch_crates
	# That of a tool root that was not completed.
	[ -e "$VRNIC_TOOLROOT/etc/vrnic-complete" ] || rm -f "$VRNIC_TOOLROOT/etc/vrnic-headers"
	background build_early "$@"
	early=$!
	"$VRNIC_TOP/scripts/setup"
	locked "$VRNIC_BUILD/lock" build_module
	finish "$early" "building the daemon, the harness or the provider failed; the errors are above"
	locked "$VRNIC_BUILD/lock" build_examples
}

# build_early PROGRAM…: what runs while the tool root and the module are made. It waits for the parts of the tool root and
# of the guests' image that it needs; if these fail, the script ends, and this with it.
build_early() {
	build_host "$@"
	until [ -e "$VRNIC_TOOLROOT/etc/vrnic-complete" ] || [ -e "$VRNIC_TOOLROOT/etc/vrnic-headers" ]; do sleep 0.2; done
	build_provider
	until [ -e "$VRNIC_GUEST/complete" ]; do sleep 0.2; done
	# A failure also shows when guests boot, with its message.
	[[ " $* " != *" vrnic-pair "* ]] || "$VRNIC_BIN/vrnic-pair" --accelerator >/dev/null 2>&1 || true
}

# outputs_run, outputs_lab, outputs_checker, outputs_pair, outputs_all: print the files that these make.
outputs_run() {
	printf '%s\n' "${PROGRAMS_RUN[@]/#/$VRNIC_BIN/}" "$VRNIC_BIN/libvrnic.so" "$VRNIC_BUILD/vrnic.ko"
	names_of vrnicdv_ "$VRNIC_TOP"/provider/examples/*.c
}

outputs_lab() {
	outputs_run | grep -v '/vrnic-pair$'
	printf '%s\n' "$VRNIC_BIN"/{vrnic,vrnic-lab} "${CLIENTS[@]/#/$VRNIC_BUILD/}"
}

outputs_checker() {
	printf '%s\n' "$VRNIC_BIN/libvrnic_check.so"
}

outputs_pair() {
	outputs_run
	outputs_lab
}

outputs_all() {
	outputs_pair
	outputs_checker
	printf '%s\n' "$VRNIC_BIN"/{vrnic-fault,vrnic-verify,vrnic-stress}
	names_of vrnic_ "$VRNIC_TOP"/tests/programs/*.c
	names_of check/ "$VRNIC_TOP"/check/tests/programs/*/*.c
}

# names_of PREFIX SOURCE…: prints the names of the programs that build_c_program makes of these sources.
names_of() {
	local source
	for source in "${@:2}"; do printf '%s\n' "$VRNIC_BUILD/$1$(basename "$source" .c)"; done
}

# fetch_crates: every crate of Cargo.lock. What follows needs no network for crates: cargo knows all their sources, also
# those that this build does not use.
fetch_crates() {
	cargo fetch --quiet --locked --manifest-path "$VRNIC_TOP/Cargo.toml" --target x86_64-unknown-linux-gnu ||
		die "cargo could not fetch the crates that Cargo.lock names, and its message is above; a proxy is named by" \
			"https_proxy, a mirror of Rust's registry in ${CARGO_HOME:-$HOME/.cargo}/config.toml"
}

# build_host PROGRAM…: what runs on this machine. A daemon without TLS is enough as long as the program vrnic, which belongs
# to its package, was never built.
build_host() {
	local options=("${@/#/--bin=}")
	step "building the daemon and the harness"
	[[ " $* " == *" vrnic "* ]] || [ -e "$VRNIC_BIN/vrnic" ] || options+=(--no-default-features)
	cargo_build -p vrnic-device -p vrnic-qemu "${options[@]}"
}

# build_provider: the libibverbs plugin.
build_provider() {
	step "building the provider"
	cargo_build -p vrnic-provider
}

# build_checker: the checker of programs that use verbs.
build_checker() {
	step "building the checker"
	cargo_build -p vrnic-check
}

# build_programs: what the tests run in guests.
build_programs() {
	step "building the tests' programs"
	cargo_build -p vrnicfault -p vrnic-verify -p vrnic-stress
	build_checker
	locked "$VRNIC_BUILD/lock" build_c
	locked "$VRNIC_BUILD/lock" build_checked
}

# build_examples: the examples of the direct verbs, as build/vrnicdv_NAME.
build_examples() {
	local source
	for source in "$VRNIC_TOP"/provider/examples/*.c; do
		build_c_program "$source" "vrnicdv_$(basename "$source" .c)"
	done
}

# cargo_build OPTION…: builds packages; a terminal is shown how many crates are done.
cargo_build() {
	local quiet=--quiet
	[ ! -t 2 ] || quiet=
	# shellcheck disable=SC2086 # no word, when it is empty
	cargo build --profile "$VRNIC_PROFILE" --locked $quiet --manifest-path "$VRNIC_TOP/Cargo.toml" "$@"
}

# build_c: the programs in C: the examples, and those of tests/programs as build/vrnic_NAME.
build_c() {
	local source
	build_examples
	for source in "$VRNIC_TOP"/tests/programs/*.c; do
		build_c_program "$source" "vrnic_$(basename "$source" .c)"
	done
}

# build_checked: the programs that show the rules of the checker, as build/check/NAME, with debugging information. The
# tool root's headers come last: its libc is not this machine's.
build_checked() {
	local folder=$VRNIC_TOP/check/tests/programs source out
	mkdir -p "$VRNIC_BUILD/check"
	for source in "$folder"/*/*.c; do
		out=$VRNIC_BUILD/check/$(basename "$source" .c)
		[ ! "$out" -nt "$source" ] || [ -n "$(find "$folder" -name "*.h" -newer "$out")" ] || continue
		gcc -g -O0 -Wall -Wextra -Werror -I "$folder" -idirafter "$VRNIC_VERBS_INCLUDE" -o "$out" "$source" \
			-Wl,--as-needed "$VRNIC_VERBS_LIB"/lib{ibverbs,rdmacm}.so -Wl,--allow-shlib-undefined
	done
}

# build_c_program SOURCE NAME: one of them. The tool root's headers come last: its libc is not this machine's.
build_c_program() {
	local out=$VRNIC_BUILD/$2 plugin=$VRNIC_BIN/libvrnic.so
	mkdir -p "$VRNIC_BUILD"
	[ "$out" -nt "$1" ] && [ "$out" -nt "$plugin" ] && [ -z "$(find "$VRNIC_TOP"/{tests/programs,provider/examples,provider/vrnicfault.h} -name "*.h" -newer "$out")" ] && return
	gcc -O2 -Wall -Wextra -Werror -Wno-unused-function -I "$VRNIC_TOP/provider" -idirafter "$VRNIC_VERBS_INCLUDE" \
		-o "$out" "$1" "$plugin" "$VRNIC_VERBS_LIB/libibverbs.so" -Wl,--allow-shlib-undefined
}

# build_module: the kernel module, by Kbuild in the tool root, as build/vrnic.ko, and the kernel clients next to it, unless
# the variable clients is empty.
build_module() {
	local bitflags
	step "building vrnic.ko for $(kernel_release)"
	mkdir -p "$VRNIC_BUILD"
	bitflags=$(crate_copy bitflags)
	quietly "$VRNIC_BUILD/module.log" in_root make -C "/usr/src/linux-headers-$(kernel_release)" \
		-j"$(nproc)" M="$VRNIC_TOP" MO="$VRNIC_BUILD" VRNIC_BITFLAGS="$bitflags" VRNIC_CLIENTS="${clients-y}" modules
}

# crate_copy NAME: a copy of that crate's source, of the version in Cargo.lock, where the tool root can see it.
# Prints the copy's folder. Needs fetch_crates: cargo tells nothing of one crate while it lacks the source of another.
crate_copy() {
	local manifest folder new
	manifest=$(cargo metadata --quiet --format-version 1 --offline --locked \
		--filter-platform x86_64-unknown-linux-gnu --manifest-path "$VRNIC_TOP/Cargo.toml" |
		grep -oE "\"manifest_path\":\"[^\"]*/$1-2[^\"/]*/Cargo\.toml\"" | cut -d'"' -f4) || true
	manifest=${manifest%%$'\n'*}
	[ -n "$manifest" ] || die "cargo does not know the crate $1; Cargo.lock must contain it"
	folder=$VRNIC_BUILD/crates/$(basename "$(dirname "$manifest")")
	if ! [ -e "$folder/Cargo.toml" ]; then
		new=$folder.new
		mkdir -p "$VRNIC_BUILD/crates"
		rm -rf "$new" "$folder"
		cp -r "$(dirname "$manifest")" "$new"
		mv "$new" "$folder"
	fi
	printf '%s\n' "$folder"
}
