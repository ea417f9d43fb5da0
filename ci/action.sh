#!/usr/bin/env bash
# The steps of ci/action.yml that are scripts: `ci/action.sh STEP`. The inputs are in the environment.
set -euo pipefail

folder=$(cd "$(dirname "$0")/.." && pwd)
cache=${VRNIC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vrnic}
archive=$HOME/.cache/vrnic-action.tar

# fail SENTENCE: ends the job with an error that the forge shows.
fail() {
	echo "::error::$*"
	exit 1
}

# as_root COMMAND…: runs a command as root, with what Rust and the scripts have in their environment.
as_root() {
	local name keep=("PATH=$PATH" "HOME=$HOME")
	[ "$(id -u)" != 0 ] || { "$@"; return; }
	for name in CARGO_HOME RUSTUP_HOME RUSTUP_TOOLCHAIN XDG_CACHE_HOME VRNIC_CACHE VRNIC_ACCEL http_proxy https_proxy; do
		[ -z "${!name-}" ] || keep+=("$name=${!name}")
	done
	sudo -n env "${keep[@]}" "$@"
}

# kvm: lets the job use KVM where only root may, as on GitHub's machines.
kvm() {
	[ -e /dev/kvm ] && ! [ -w /dev/kvm ] && command -v udevadm >/dev/null && sudo -n true 2>/dev/null || return 0
	echo 'KERNEL=="kvm", GROUP="kvm", MODE="0666", OPTIONS+="static_node=kvm"' |
		sudo -n tee /etc/udev/rules.d/99-kvm.rules >/dev/null
	sudo -n udevadm control --reload-rules
	sudo -n udevadm trigger --name-match=kvm --settle
}

# key: names the cache by the recipes of what is in it. The function hashFiles takes files of the job's folder only.
key() {
	local sum
	sum=$(cd "$folder" && cat qemu/versions.env scripts/setup scripts/lib/*.sh | sha256sum)
	echo "key=vrnic-$(uname -m)-${sum:0:16}" >>"${GITHUB_OUTPUT:-/dev/stdout}"
}

# unpack: puts the cache of an earlier job in its place. It has files of root, which the forge's own cache would lose.
unpack() {
	[ -e "$archive" ] || return 0
	mkdir -p "$(dirname "$cache")"
	as_root mkdir -p "$cache"
	as_root tar --numeric-owner -C "$cache" -xf "$archive"
	# The folders of the cache are in use: the scripts remove old ones.
	as_root find "$cache" -mindepth 1 -maxdepth 1 -exec touch {} +
	rm -f "$archive"
}

# pack: puts the cache into an archive, which the forge keeps when the job has ended.
pack() {
	# There is nothing to keep it outside of a forge.
	[ -n "${GITHUB_OUTPUT-}" ] && [ -d "$cache" ] || return 0
	mkdir -p "$(dirname "$archive")"
	# Snapshots of guests fit one machine.
	as_root tar --numeric-owner --exclude=./snapshots -C "$cache" -cf - . >"$archive" || rm -f "$archive"
}

# share VARIABLE TEST WHAT: makes a path that is an input absolute, and gives it to the container under that path. Ends the
# job if `test TEST` fails for it, with the words WHAT.
share() {
	local path=${!1}
	[ -n "$path" ] || return 0
	path=$(realpath -m "$path")
	test "$2" "$path" || fail "the input '${1,,}' is $path, which $3"
	lab+=(--volume "$path:$path:ro")
	printf -v "$1" %s "$path"
}

# container: sets `own` to a command like chown, and `lab` to the command that runs scripts/lab in the image, with the
# folders of the inputs under their own paths. Docker and podman need an absolute path for that.
container() {
	local name file files='' engine=
	for name in podman docker; do
		[ -n "$engine" ] || ! command -v "$name" >/dev/null || engine=$name
	done
	[ -n "$engine" ] || fail "the input 'container' needs podman or docker, and this machine has neither"
	# A job may have made or loaded the image by docker, on a machine that has both.
	if docker image inspect "$CONTAINER" >/dev/null 2>&1; then engine=docker; fi
	mkdir -p "$OUTPUT"
	OUTPUT=$(realpath "$OUTPUT")
	# Without the label of SELinux, which keeps containers from such folders.
	lab=("$engine" run --rm --network none --security-opt label=disable --volume "$OUTPUT:$OUTPUT")
	[ -z "$UPLINKS" ] || fail "the input 'uplinks' needs this machine's network, so it cannot be used with 'container'"
	share COPY -d "is not a folder"
	share ROOT -e "does not exist"
	for name in DISK KERNEL SCENARIO; do share "$name" -f "is not a file"; done
	while IFS= read -r file; do
		[ -n "$file" ] || continue
		[ -f "$file" ] || fail "the input 'module-files' has $file, which is not a file"
		share file -f "is not a file"
		files+=$file$'\n'
	done <<<"$MODULE_FILES"
	MODULE_FILES=$files
	[ -z "${VRNIC_ACCEL-}" ] || lab+=(--env "VRNIC_ACCEL=$VRNIC_ACCEL")
	own=("${lab[@]}" --entrypoint chown "$CONTAINER")
	[ ! -e /dev/kvm ] || lab+=(--device /dev/kvm)
	lab+=(--entrypoint /opt/vrnic/scripts/lab "$CONTAINER")
}

# machine: sets the same for this machine, and `built` to what else the script writes. An unpacked image needs no root.
machine() {
	if [ -n "$PREBUILT" ]; then
		[ -z "$UPLINKS" ] || [ "$(id -u)" = 0 ] || fail "the input 'uplinks' needs root, so it cannot be used with 'prebuilt' here"
		lab=("$folder/scripts/lab" --prebuilt "$PREBUILT")
		own=(chown)
		return
	fi
	[ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null || fail "without the input 'container' the job needs root, or sudo" \
		"without a password, because it makes chroots"
	lab=(as_root "$folder/scripts/lab")
	own=(as_root chown)
	built=("$folder/build" "$folder/target" "${CARGO_HOME:-$HOME/.cargo}/registry")
}

# give_back PATH…: what root has written belongs to the user of the job, so that later steps can change and remove it.
give_back() {
	local path
	for path in "$OUTPUT" "$@"; do
		[ -n "$(find "$path" ! -user "$(id -u)" -print -quit 2>/dev/null)" ] || continue
		"${own[@]}" -R "$(id -u):$(id -g)" "$path" || true
	done
}

# show: puts the summary on the page of the job, if there is one.
show() {
	[ -n "${GITHUB_STEP_SUMMARY-}" ] && [ -e "$OUTPUT/summary.md" ] || return 0
	cat "$OUTPUT/summary.md" >>"$GITHUB_STEP_SUMMARY"
}

# for_lines OPTION TEXT: adds the option to those of scripts/lab for each line of the text, with the line as its value.
for_lines() {
	local line
	while IFS= read -r line; do
		[ -z "$line" ] || options+=("$1" "$line")
	done <<<"$2"
}

# lab: runs scripts/lab. Its status is that of the job.
lab() {
	local name lab=() own=() built=() options=() status=0 image=$IMAGE
	[ -z "$CONTAINER" ] || [ -z "$PREBUILT" ] || fail "the inputs 'container' and 'prebuilt' exclude each other"
	if [ -n "$CONTAINER" ]; then container; else machine; fi
	mkdir -p "$OUTPUT"
	# Files of an earlier step would look like those of this one.
	rm -f "$OUTPUT"/{summary.md,junit.xml,report.txt}
	# The names of packages and modules are words, and not patterns of files.
	set -f
	for name in $PACKAGES; do options+=(--package "$name"); done
	for name in $MODULES; do options+=(--module "$name"); done
	set +f
	for_lines --module-file "$MODULE_FILES"
	for_lines --uplink "$UPLINKS"
	for_lines --fault "$FAULTS"
	# A disk takes the place of the image.
	[ -z "$DISK" ] || { options+=(--disk "$DISK"); image=; }
	[ "$TIMING" != true ] || options+=(--timing)
	[ "$PRELOAD_VERBS" != true ] || options+=(--preload-verbs)
	case $CHECK in
	"" | false) ;;
	true) options+=(--check) ;;
	*) options+=(--check "$CHECK") ;;
	esac
	[ "$MUST_HIT" != true ] || options+=(--must-hit)
	[ -z "$KERNEL" ] || options+=(--kernel "$KERNEL")
	[ -z "$SCENARIO" ] || options+=(--scenario "$SCENARIO")
	[ "$PCAP" != true ] || options+=(--pcap "$OUTPUT/traffic.pcapng")
	[ "$FAIL_ON_WARNING" != false ] || options+=(--no-fail-on-warning)
	"${lab[@]}" --guests "$GUESTS" --adapters "$ADAPTERS" --cpus "$CPUS" ${MEMORY:+--memory "$MEMORY"} \
		${image:+--image "$image"} --personality "$PERSONALITY" --timeout "$TIMEOUT" --output "$OUTPUT" \
		--junit "$OUTPUT/junit.xml" "${options[@]}" ${COPY:+--copy "$COPY"} ${ROOT:+--root "$ROOT"} ${PEER:+--peer "$PEER"} ${READY:+--ready "$READY"} -- \
		"$COMMAND" || status=$?
	give_back "${built[@]}"
	show
	exit "$status"
}

case ${1-} in
kvm | key | unpack | lab | pack) "$1" ;;
*) fail "ci/action.sh has no step '${1-}'" ;;
esac
