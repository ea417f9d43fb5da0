# Crates of Rust's registry that the scripts in ci/ports build on this machine, unchanged.
# shellcheck shell=bash

# crate_source NAME VERSION INTO: copies the files of a crate from Rust's registry. Cargo fetches them, also if the crate
# depends on others that have been withdrawn, and so could not be a dependency itself.
crate_source() {
	local found
	[ ! -e "$3/Cargo.toml" ] || return 0
	step "fetching the crate $1 $2"
	cargo info --quiet "$1@$2" >/dev/null || die "Rust's registry did not give the crate $1 $2"
	found=$(find "${CARGO_HOME:-$HOME/.cargo}/registry/src" -mindepth 2 -maxdepth 2 -name "$1-$2" -print -quit)
	[ -n "$found" ] || die "cargo has not unpacked the crate $1 $2"
	rm -rf "$3" "$3.new"
	mkdir -p "$(dirname "$3")"
	cp -r "$found" "$3.new"
	mv "$3.new" "$3"
}

# crate_verbs FOLDER: makes crate_cargo find libibverbs and librdmacm of the tool root, whose other libraries are not this
# machine's. The folder gets links to them.
crate_verbs() {
	local library=$VRNIC_VERBS_LIB name
	# The build scripts of these crates load libclang.
	"$VRNIC_TOP/scripts/setup" --host libclang-dev
	mkdir -p "$1"/{include,pkgconfig}
	for name in infiniband rdma; do ln -sfn "$VRNIC_VERBS_INCLUDE/$name" "$1/include/$name"; done
	for name in ibverbs rdmacm; do
		ln -sfn "$library/lib$name.so" "$1/lib$name.so"
		printf 'Name: %s\nDescription: %s\nVersion: %s\nLibs: -L%s -l%s\nCflags: -I%s\n' "$name" "$name" \
			"$(sed -n 's/^Version: //p' "$library/pkgconfig/lib$name.pc")" "$1" "$name" "$1/include" \
			>"$1/pkgconfig/lib$name.pc"
	done
	crate_folder=$1
	crate_flags="-L native=$1 -C link-arg=-Wl,--allow-shlib-undefined"
}

# crate_cargo OPTION…: runs cargo for a crate, after crate_verbs. What it needs is not exported: scripts/lab would build
# all of this project again with other flags.
crate_cargo() {
	env PKG_CONFIG_PATH="$crate_folder/pkgconfig" BINDGEN_EXTRA_CLANG_ARGS="-I$crate_folder/include" \
		CPATH="$crate_folder/include" RUSTFLAGS="$crate_flags" cargo "$@"
}

# crate_tests LOG INTO OPTION…: builds tests with these options of cargo, and copies their programs into a folder.
crate_tests() {
	local log=$1 into=$2
	shift 2
	crate_cargo test --no-run --message-format=json "$@" 2>"$log" >"$log.messages" ||
		{ tail -n 25 "$log" >&2; die "building the tests failed (log: $log)"; }
	mkdir -p "$into"
	grep -oE '"executable":"[^"]+"' "$log.messages" | cut -d'"' -f4 | xargs -I{} cp {} "$into/"
}

# crate_runner TEST…: a script for a guest that runs all tests of its folder, in which they have names of cargo, but not
# those whose names contain one of these words. It prints the results of each and the failures, and fails if there was one.
crate_runner() {
	printf 'skip="%s"\n' "${*/#/--skip=}"
	cat <<-'END'
	passed=0 failed=0 ignored=0 broken=
	for test in ./*-*; do
		timeout 600 "$test" $skip >log 2>&1 || broken="$broken ${test#./}"
		cp log "$VRNIC_OUTPUT/${test#./}.log"
		grep '^test .* FAILED$\|panicked at' log
		set -- $(sed -n 's/^test result: .* \([0-9]*\) passed; \([0-9]*\) failed; \([0-9]*\) ignored; .* \([0-9]*\) filtered.*/\1 \2 \3 \4/p' log)
		[ $# -eq 4 ] || { echo "$test did not end"; tail -n 20 log; continue; }
		echo "${test#./}: $1 passed, $2 failed, $(($3 + $4)) skipped"
		passed=$((passed + $1)) failed=$((failed + $2)) ignored=$((ignored + $3 + $4))
	done
	echo "all tests: $passed passed, $failed failed, $ignored skipped"
	[ -z "$broken" ] && [ $passed -gt 0 ]
	END
}
