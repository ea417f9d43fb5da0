# Formats and lints, as scripts/test and scripts/check run them.
# shellcheck shell=bash

# format_module OPTION…: runs rustfmt on the kernel modules, which no package of cargo has.
format_module() {
	rustfmt --edition 2021 "$@" driver/{vrnic,tests/{kclient/kclient,kverbs/kverbs,kping/kping,kdirect/kdirect,kiscsi/kiscsi}}.rs
}

# The checks of sources: those that take a moment, and those that take minutes.
# shellcheck disable=SC2034 # for scripts/test
FORMATS=("format" "format of the module")
LINTS=("lints" "lints of the suites" "lints of vrnic-verify for any device")

# lint NAME: runs one of these.
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

# lint_meanwhile FOLDER LOG: runs the lints that take minutes while tests run, which leave the processors idle for much of
# the time. Two builds would wait for each other, so the lints begin when cargo has built the tests and says in the log
# that it runs the first one, or when there is a file FOLDER/begin. Leaves what each lint has said in the folder, as its
# number, and its seconds and its status as NUMBER.end.
lint_meanwhile() {
	local number start status
	renice -n 10 "$BASHPID" >/dev/null
	until [ -e "$1/begin" ] || grep -q '^ *Running ' "$2"; do sleep 0.5; done
	for number in "${!LINTS[@]}"; do
		start=$EPOCHSECONDS status=0
		lint "${LINTS[number]}" >"$1/$number" 2>&1 || { status=$?; cat "$1/$number" >&2; }
		echo "$((EPOCHSECONDS - start)) $status" >"$1/$number.end"
	done
}
