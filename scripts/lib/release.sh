# What scripts/release checks and writes.
# shellcheck shell=bash

# Commits by which the run of scripts/bench that is checked in may be older than the release.
RELEASE_FIGURES_MAX=300

# release_version: the version in Cargo.toml.
release_version() {
	local version
	version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$VRNIC_TOP/Cargo.toml")
	printf '%s\n' "${version%%$'\n'*}"
}

# release_git ARGUMENT…: runs git in the clone.
release_git() { git -C "$VRNIC_TOP" "$@"; }

# check_release_tree: ends the script if the clone has no history, or files that no commit has.
check_release_tree() {
	release_git rev-parse --quiet --verify HEAD >/dev/null 2>&1 ||
		die "a release is made of a commit, and $VRNIC_TOP is no clone with commits"
	[ -z "$(release_git status --porcelain)" ] || die "the clone has changes that no commit has; commit or remove them"
	[ "$(release_git rev-parse --is-shallow-repository)" = false ] ||
		die "the clone has only a part of the history, so the age of figures is not known; fetch all of it"
}

# check_release_changes VERSION: ends the script unless the page of changes has a section of the version, with a date.
check_release_changes() {
	local line
	line=$(grep -m 1 -F "## $1" "$VRNIC_TOP/CHANGELOG.md") || die "CHANGELOG.md has no section '## $1'; write what has changed"
	[[ $line =~ ^"## $1, "[0-9]{4}-[0-9]{2}-[0-9]{2}$ ]] ||
		die "the section of $1 in CHANGELOG.md must begin with '## $1, ' and a date such as $(date +%Y-%m-%d)"
}

# check_release_tag VERSION: ends the script if another commit is tagged with the version.
check_release_tag() {
	local tagged
	tagged=$(release_git rev-parse --quiet --verify "refs/tags/v$1^{commit}") || return 0
	[ "$tagged" = "$(release_git rev-parse HEAD)" ] ||
		die "the tag v$1 is at another commit, ${tagged:0:12}; give Cargo.toml a new version"
}

# check_release_figures: ends the script if the run of scripts/bench is too old.
check_release_figures() {
	local file=docs/benchmarks/figures.json commit age
	commit=$(release_git log -1 --format=%H -- "$file")
	[ -n "$commit" ] || die "no commit has $file; run scripts/bench and commit what it writes"
	age=$(release_git rev-list --count "$commit..HEAD")
	((age <= RELEASE_FIGURES_MAX)) ||
		die "$file is $age commits old, and may be $RELEASE_FIGURES_MAX; run scripts/bench and commit what it writes"
}

# check_release_licences: ends the script if a licence at the top is not that of LICENSES.
check_release_licences() {
	local pair
	for pair in MIT=MIT APACHE=Apache-2.0 GPL=GPL-2.0; do
		cmp -s "$VRNIC_TOP/LICENSE-${pair%=*}" "$VRNIC_TOP/LICENSES/${pair#*=}.txt" ||
			die "LICENSE-${pair%=*} is not LICENSES/${pair#*=}.txt; copy it"
	done
}

# release_figures FOLDER: copies the page of figures with its charts.
release_figures() {
	mkdir -p "$1"
	cp "$VRNIC_TOP"/docs/benchmarks/{README.md,figures.json,*.svg} "$1/"
}

# release_sums FOLDER: writes the checksums of all its files into the file SHA256SUMS there.
release_sums() (
	cd "$1" || exit
	find . -type f ! -name SHA256SUMS -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum >SHA256SUMS
)
