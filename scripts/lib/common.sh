# Shared by the scripts: paths, messages, and running commands inside the tool root.
# shellcheck shell=bash
set -euo pipefail
# Commands in $(…) end at a failure, too.
shopt -s inherit_errexit

# Without symbolic links: the module would be built anew for each of the paths to a clone.
VRNIC_TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
# shellcheck source=../../qemu/versions.env
. "$VRNIC_TOP/qemu/versions.env"

# An image of scripts/image contains everything: nothing is installed or built, and its QEMU is used. VRNIC_IMAGE_ROOT
# names its folder if that is not this system's root (--prebuilt).
VRNIC_PREBUILT=
if [ -e "$VRNIC_TOP/prebuilt" ]; then
	VRNIC_PREBUILT=yes
	VRNIC_CACHE=$VRNIC_TOP/cache
	VRNIC_PROFILE=release
	# A container is gone after its run, with a snapshot that it would make. The image has one.
	[ -n "${VRNIC_IMAGE_ROOT-}" ] || export VRNIC_SNAPSHOT=${VRNIC_SNAPSHOT:-given}
	unset CARGO_TARGET_DIR
fi
VRNIC_CACHE=${VRNIC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vrnic}
VRNIC_KEY=$VRNIC_SUITE-$VRNIC_KERNEL_SERIES-$VRNIC_RECIPE
VRNIC_TOOLROOT=$VRNIC_CACHE/toolroot-$VRNIC_KEY
[ -z "$VRNIC_PREBUILT" ] || VRNIC_TOOLROOT=${VRNIC_IMAGE_ROOT:-/}
VRNIC_GUEST=$VRNIC_CACHE/guest-$VRNIC_KEY
VRNIC_GUEST_APPS=$VRNIC_CACHE/guest-apps-$VRNIC_KEY
# These three are made again when their recipes change. Nothing else is made again with them.
VRNIC_MODULES=$VRNIC_GUEST-modules-$(cksum <"$VRNIC_TOP/scripts/lib/modules.sh" | cut -d" " -f1)
VRNIC_STOCK=$VRNIC_GUEST-stock-$(cksum <"$VRNIC_TOP/scripts/lib/stock.sh" | cut -d" " -f1)
VRNIC_SYSTEM=$VRNIC_CACHE/system-$VRNIC_KEY-$(cksum <"$VRNIC_TOP/scripts/lib/system.sh" | cut -d" " -f1)
VRNIC_BUILD=$VRNIC_TOP/build
# The profile of cargo. Scripts that measure or package have set it to release.
VRNIC_PROFILE=${VRNIC_PROFILE:-quick}
VRNIC_BIN=${CARGO_TARGET_DIR:-$VRNIC_TOP/target}/$VRNIC_PROFILE
VRNIC_RDMA_CORE_SRC=$VRNIC_TOOLROOT/usr/src/rdma-core
VRNIC_VERBS_INCLUDE=$VRNIC_TOOLROOT/usr/include
VRNIC_VERBS_LIB=$VRNIC_TOOLROOT/usr/lib/x86_64-linux-gnu
export VRNIC_TOP VRNIC_CACHE VRNIC_TOOLROOT VRNIC_GUEST VRNIC_MODULES VRNIC_STOCK VRNIC_SYSTEM VRNIC_BUILD VRNIC_PROFILE VRNIC_BIN
export VRNIC_RDMA_CORE_SRC VRNIC_VERBS_INCLUDE VRNIC_VERBS_LIB
# Seconds in messages count from the start of the outermost script.
export VRNIC_STARTED=${VRNIC_STARTED:-$EPOCHSECONDS}

# step TEXT: prints a progress message, with the seconds since the start.
step() { printf '[%4ds] %s\n' $((EPOCHSECONDS - VRNIC_STARTED)) "$*" >&2; }

# die TEXT: prints an error message, which says what failed and what to do, and ends the script.
die() {
	printf 'error: %s\n' "$*" >&2
	exit 1
}

# usage: prints the comment at the head of the script, and ends.
usage() {
	sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
	exit
}

# quietly LOG COMMAND…: runs the command with its output in LOG; on failure shows the log's end.
quietly() {
	local log=$1
	shift
	if ! "$@" >"$log" 2>&1 </dev/null; then
		tail -n 25 "$log" >&2
		die "'$*' failed (whole log: $log)"
	fi
}

# locked FILE COMMAND…: runs the command while no other script holds the lock of this file, and waits for that.
locked() {
	local file=$1
	shift
	mkdir -p "$(dirname "$file")"
	(
		flock -n 8 || { step "waiting for another script that builds the same"; flock 8; }
		"$@"
	) 8>"$file"
}

# at_exit: ends what the script has started. It says so if a signal ends the script: Bash then has no status, and a command
# still runs.
VRNIC_JOBS=()
VRNIC_FOLDERS=()
at_exit() {
	local status=$? running=
	end_jobs
	[ ${#VRNIC_FOLDERS[@]} -eq 0 ] || rm -rf "${VRNIC_FOLDERS[@]}"
	read -r running 2>/dev/null <"/proc/$$/task/$$/children" || true
	[ "$status" = 0 ] && [ -n "$running" ] || return 0
	step "scripts/${0##*/} was ended by a signal"
	end_children $$
}

# end_children PROCESS: ends the processes that it has started, and theirs.
end_children() {
	local child
	for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do
		end_children "$child"
		kill "$child" 2>/dev/null || true
	done
}
trap at_exit EXIT
# Bash waits for the command that runs, which has the signal of Ctrl-C, too.
trap 'step "scripts/${0##*/} was ended by SIGINT (Ctrl-C)"; trap - INT; kill -INT $$' INT

# temporary VARIABLE [TEMPLATE]: sets the variable to a new folder, which goes with this script, however that ends.
temporary() {
	local made
	made=$(mktemp -d ${2+"$2"})
	VRNIC_FOLDERS+=("$made")
	printf -v "$1" %s "$made"
}

# background COMMAND…: starts the command, which ends with this script, however that ends. Its number is in $!.
background() {
	# With job control it has a process group, so that its children end with it.
	set -m
	"$@" </dev/null &
	set +m
	VRNIC_JOBS+=($!)
}

# end_jobs: ends what was started by `background`.
end_jobs() {
	local job
	for job in "${VRNIC_JOBS[@]}"; do
		kill -- "-$job" 2>/dev/null || true
	done
}

# finish JOB SENTENCE: waits for what was started by `background`. If it has failed, the script ends with the sentence.
finish() {
	local job left=()
	wait "$1" || die "$2"
	for job in "${VRNIC_JOBS[@]}"; do
		[ "$job" = "$1" ] || left+=("$job")
	done
	VRNIC_JOBS=("${left[@]}")
}

# in_root COMMAND…: runs a command in the tool root. The clone and the cache are seen there under their own
# paths. The mounts live in a namespace of the command's own, so nothing is left behind however it ends.
in_root() {
	mkdir -p "$VRNIC_TOOLROOT$VRNIC_TOP" "$VRNIC_TOOLROOT$VRNIC_CACHE" "$VRNIC_CACHE"
	unshare --mount --propagation private bash -euc '
		root=$1 top=$2 cache=$3
		shift 3
		mount --bind "$top" "$root$top"
		mount --rbind "$cache" "$root$cache"
		mount -t proc proc "$root/proc"
		mount --rbind /dev "$root/dev"
		exec chroot "$root" env LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
	' in_root "$VRNIC_TOOLROOT" "$VRNIC_TOP" "$VRNIC_CACHE" "$@"
}

# kernel_release: the guests' kernel, such as 7.3.4+deb13-amd64.
kernel_release() {
	cat "$VRNIC_TOOLROOT/etc/vrnic-kernel" 2>/dev/null || die "there is no tool root yet; run scripts/setup"
}

# guest_folder IMAGE [PACKAGE…]: the folder of the image minimal or apps, with these Debian packages beside its own.
guest_folder() {
	local folder=$VRNIC_GUEST
	[ "$1" != apps ] || folder=$VRNIC_GUEST_APPS
	shift
	[ $# -eq 0 ] || folder+=-with-$(printf '%s\n' "$@" | LC_ALL=C sort -u | sha256sum | cut -c1-12)
	printf '%s\n' "$folder"
}

# check_package NAME: ends the script if that cannot be the name of a Debian package.
check_package() {
	[[ $1 =~ ^[a-z0-9][a-z0-9+.-]+$ ]] || die "'$1' is not the name of a Debian package"
}
