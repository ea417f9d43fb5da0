# Repositories of the packages, for the tests of them.
# shellcheck shell=bash

# repository_make FOLDER: makes the packages, checks them with lintian, and makes repositories of apt: with them in the subfolder `first`, and with the
# same files in packages of a later version in `second`.
repository_make() {
	rm -rf "$1"
	"$VRNIC_TOP/scripts/package" --lintian --into "$1/first"
	repository_raise "$1/first" "$1/second"
	# shellcheck disable=SC2016 # the tool root's shell expands $1
	quietly "$VRNIC_BUILD/repository.log" in_root sh -euc 'for repository in "$1"/*; do
		cd "$repository"
		dpkg-scanpackages . >Packages
	done' sh "$1"
}

# repository_raise FROM TO: packages with the same files and a later version. That of vrnic-dkms is left out, because its
# version is in its scripts, too.
repository_raise() {
	local package work=$2.work version
	mkdir -p "$2"
	for package in "$1"/*.deb; do
		case $package in */vrnic-dkms_*) continue ;; esac
		dpkg-deb --raw-extract "$package" "$work"
		version=$(dpkg-deb --field "$package" Version)
		sed -i "s/^Version: .*/&+later/; s/(= ${version//./\\.})/(= $version+later)/g" "$work/DEBIAN/control"
		dpkg-deb --root-owner-group -Znone --build "$work" "$2" >/dev/null
		rm -rf "$work"
	done
}
