# A repository of the packages, for the tests of them.
# shellcheck shell=bash

# repository_make FOLDER: makes the packages, and a repository of apt with them in the subfolder `first`.
repository_make() {
	rm -rf "$1"
	"$VRNIC_TOP/scripts/package" --into "$1/first"
	# shellcheck disable=SC2016 # the tool root's shell expands $1
	quietly "$VRNIC_BUILD/repository.log" in_root sh -euc 'cd "$1"; dpkg-scanpackages . >Packages' sh "$1/first"
}
