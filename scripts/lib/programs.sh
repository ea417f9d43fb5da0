# The test programs of the crates, and the program that reads tests/suites.toml.
# shellcheck shell=bash

# The crates whose tests need no build of their own. All are named, also for one program: cargo gives the crates of others
# the features that the named crates ask for, and would build them again for fewer of these.
TESTED=(--workspace --exclude vrnic-models --exclude vrnic-provider)

# suites COMMAND…: runs the program that reads tests/suites.toml.
suites() {
	cargo build --quiet --locked "${TESTED[@]}" --bin vrnic-suites &&
		"${CARGO_TARGET_DIR:-target}/debug/vrnic-suites" "$@"
}

# test_suites OPTION…: runs the program of all suites.
test_suites() { cargo test --no-fail-fast --locked "${TESTED[@]}" --test suites -- "$@"; }

# build_tests: builds the test programs of the crates and that of all suites.
build_tests() {
	cargo test --quiet --no-run --locked --tests "${TESTED[@]}" &&
		cargo test --quiet --no-run --locked --test suites "${TESTED[@]}"
}
