# Checks of the machine, before anything is installed or built.
# shellcheck shell=bash

# check_machine: ends the script with one sentence if something is missing that the scripts do not install.
check_machine() {
	[ "$(uname -m)" = x86_64 ] || die "this machine is $(uname -m), and vrnic is for x86-64"
	[[ $VRNIC_TOP != *[[:space:]]* ]] ||
		die "the path of this clone, '$VRNIC_TOP', has a space, with which kernel modules cannot be built; move the clone"
	command -v apt-get >/dev/null && command -v dpkg-query >/dev/null ||
		die "apt-get was not found; the scripts need Debian 12 or later, and docs/ci.md has an image for other systems"
	# sudo changes HOME and PATH, so the Rust of the user is named.
	# shellcheck disable=SC2016 # text for the user's shell
	[ "$(id -u)" = 0 ] || die 'the scripts make chroots, so they need root; use' \
		'sudo env "PATH=$PATH" "RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup}" SCRIPT'
	check_rust
	check_accel
}

# check_accel: ends the script if the user asks for an accelerator that this machine does not have. If it seems to have
# KVM, the lab tries whether a guest boots.
check_accel() {
	case ${VRNIC_ACCEL-} in
	kvm) { [ -c /dev/kvm ] && (: <>/dev/kvm) 2>/dev/null; } ||
		die "VRNIC_ACCEL asks for KVM, and /dev/kvm cannot be opened; without VRNIC_ACCEL, guests run by translation" ;;
	'' | tcg) ;;
	*) die "VRNIC_ACCEL is '$VRNIC_ACCEL'; it must be kvm or tcg" ;;
	esac
}

# check_rust: ends the script if there is no Rust, or an older one than the crates need.
check_rust() {
	local needed found
	needed=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$VRNIC_TOP/Cargo.toml")
	command -v cargo >/dev/null && command -v rustc >/dev/null || die "cargo was not found in PATH ($PATH);" \
		"install Rust $needed or later, for example with rustup, and keep PATH if you use sudo"
	found=$(rustc --version | cut -d' ' -f2)
	[ "$(printf '%s\n' "$needed" "${found%%-*}" | sort -V | head -n 1)" = "$needed" ] ||
		die "Rust is $found, and vrnic needs $needed or later; update it, for example with rustup update"
}
