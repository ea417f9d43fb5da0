# Formats and lints, as scripts/test and scripts/check run them.
# shellcheck shell=bash

# format_module OPTION…: runs rustfmt on the kernel modules, which no package of cargo has.
format_module() {
	rustfmt --edition 2021 "$@" driver/{vrnic,tests/{kclient/kclient,kverbs/kverbs,kping/kping,kdirect/kdirect,kiscsi/kiscsi}}.rs
}

# lint NAME: runs one of the checks of sources.
# shellcheck disable=SC2034 # for scripts/test
LINTS=("format" "format of the module" "lints" "lints of the suites" "lints of vrnic-verify for any device")
lint() {
	case $1 in
	"format") cargo fmt --all --check ;;
	"format of the module") format_module --check ;;
	"lints") cargo clippy --workspace --all-targets --quiet -- --deny warnings ;;
	# Cargo leaves out tests that `cargo test` does not run, unless they are named.
	"lints of the suites") cargo clippy --workspace --test suites --quiet -- --deny warnings ;;
	"lints of vrnic-verify for any device") cargo clippy -p vrnic-verify --no-default-features --quiet -- --deny warnings ;;
	*) die "scripts/lib/lints.sh does not know '$1'" ;;
	esac
}
