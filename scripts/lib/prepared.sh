# Whether what a script needs is complete, so that the script asks neither cargo, Kbuild nor apt.
# shellcheck shell=bash
. "$VRNIC_TOP/scripts/lib/cache.sh"

# The files and folders of the clone that builds depend on.
PREPARED_SOURCES=(Cargo.toml Cargo.lock Kbuild abi bench check device driver provider qemu scripts tests)
# The variables that they depend on.
PREPARED_VARIABLES='VRNIC_(TOP|BUILD|CACHE|GUEST|MODULES|PROFILE|RDMA_CORE_SRC|TOOLROOT|VERBS_[A-Z]+)|RUST(FLAGS|C|C_[A-Z_]+)'
PREPARED_VARIABLES+='|CARGO_(BUILD|PROFILE|TARGET)_[A-Za-z0-9_]+|CARGO_(ENCODED_RUSTFLAGS|INCREMENTAL)|C(C|FLAGS|PATH)|LDFLAGS'

# unless_prepared NAME COMMAND…: runs the command, which makes the files that `outputs_NAME` prints, unless they are as
# that command left them the last time, and nothing else has changed since: no source, tool, setting or folder.
unless_prepared() {
	local lock
	mkdir -p "$VRNIC_BUILD"
	# Another script would build other outputs, or with other settings, while this one looks at them.
	exec {lock}>"$VRNIC_BUILD/prepared.lock"
	flock -n "$lock" || { step "waiting for another script that builds"; flock "$lock"; }
	make_unless_prepared "$@"
	exec {lock}>&-
}

# make_unless_prepared NAME COMMAND…: does that. The caller has the lock.
make_unless_prepared() {
	local name=$1 note=$VRNIC_BUILD/prepared-$1 sources outputs
	shift
	sources=$(prepared_sources)
	outputs=$(prepared_outputs "$name")
	if [ -n "$outputs" ] && [ "$(cat "$note" 2>/dev/null)" = "$sources $outputs" ]; then
		cache_used "$VRNIC_TOOLROOT" "$VRNIC_GUEST" "$VRNIC_MODULES"
		cache_tidy
		return
	fi
	check_machine
	rm -f "$note"
	"$@"
	outputs=$(prepared_outputs "$name")
	[ -n "$outputs" ] || return 0
	# The sources are those of before: what has changed during the build is built by the next start.
	printf '%s %s\n' "$sources" "$outputs" >"$note.$$"
	mv "$note.$$" "$note"
}

# prepared_sources: prints a checksum of the names, times and sizes of all sources, and of the compiler and the settings
# that decide about what is built. Any other time of a file counts as a change, also an earlier one.
prepared_sources() {
	{
		# What builds says that there is none.
		rustc -vV || true
		env | LC_ALL=C sort | grep -E "^($PREPARED_VARIABLES)="
		printf '%s\n' "$EUID" "${CARGO_HOME:-$HOME/.cargo}"
		cd "$VRNIC_TOP" || exit
		# Not all of these exist.
		{ find "${PREPARED_SOURCES[@]}" .cargo "${CARGO_HOME:-$HOME/.cargo}"/config{,.toml} -type f \
			-printf '%p %T@ %s\n' 2>/dev/null || true; } | LC_ALL=C sort
	} | cksum
}

# prepared_outputs NAME: prints a checksum of the names, times and sizes of the files that `outputs_NAME` prints, and of
# those of scripts/setup, or nothing if a file is missing.
prepared_outputs() {
	local files list
	files=$("outputs_$1")
	mapfile -t files <<<"$files"
	list=$(stat --format '%n %.Y %s' -- "${files[@]}" "$VRNIC_TOOLROOT/etc/vrnic-complete" \
		"$VRNIC_GUEST"/{complete,base.cpio,vmlinuz} 2>/dev/null) || return 0
	[ -d "$VRNIC_MODULES" ] || return 0
	cksum <<<"$list"
}
