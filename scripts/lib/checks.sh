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
	check_space
}

# MiB on the disk that the tool root and the guests take while they are made, and that the programs take.
CACHE_SPACE=5000
BUILD_SPACE=1300

# check_space: ends the script if a disk has no room for what is not made yet. The cache and the clone may share a disk.
check_space() {
	local cache=0 build=0 target=${CARGO_TARGET_DIR:-$VRNIC_TOP/target}
	[ -z "${VRNIC_ROOM-}" ] || return 0
	[ -e "$VRNIC_TOOLROOT/etc/vrnic-complete" ] || cache=$CACHE_SPACE
	[ -e "$VRNIC_BIN/vrnicd" ] || build=$BUILD_SPACE
	if [ "$(disk_of "$VRNIC_CACHE" | cut -d" " -f1)" = "$(disk_of "$target" | cut -d" " -f1)" ]; then
		check_room "$VRNIC_CACHE" $((cache + build)) "set VRNIC_CACHE"
	else
		check_room "$VRNIC_CACHE" "$cache" "set VRNIC_CACHE"
		check_room "$target" "$build" "set CARGO_TARGET_DIR"
	fi
}

# disk_of PATH: the device that the path is on, or will be on, and its free MiB.
disk_of() {
	local folder=$1
	until [ -d "$folder" ]; do folder=$(dirname "$folder"); done
	df -P -B 1M "$folder" | awk 'NR == 2 { print $1, $4 }'
}

# check_room PATH MIB ADVICE: ends the script if the disk of the path has less room.
check_room() {
	local disk
	disk=$(disk_of "$1")
	((${disk##* } >= $2)) || die "what is missing for a first start needs $2 MiB on the disk, and $1 has ${disk##* } MiB left;" \
		"remove something there, or $3 to a folder with more room"
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
