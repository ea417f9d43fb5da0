# Where scripts/package and scripts/image write. They replace what they have written before, and nothing else.
# shellcheck shell=bash

# own_packages FOLDER: lists the packages that scripts/package has written there.
own_packages() {
	find "$1" -mindepth 1 -maxdepth 1 -type f -regextype posix-extended \
		-regex '.*/(vrnicd|vrnic-check|vrnic-guest|vrnic-storage|vrnic-dkms|vrnic-modules-[^/_]*|ibverbs-provider-vrnic|libvrnicdv-dev)_[^/_]*_[^/_]*\.deb|.*/vrnic-plugin_[^/_]*_amd64\.tar\.xz'
}

# check_packages_folder FOLDER: ends the script if the folder holds something other than packages of vrnic.
check_packages_folder() {
	[ -e "$1" ] || return 0
	[ -d "$1" ] || die "$1 is not a folder; --into needs a folder that is new, or has nothing but packages of vrnic in it"
	[ "$(find "$1" -mindepth 1 -maxdepth 1 | wc -l)" = "$(own_packages "$1" | wc -l)" ] ||
		die "the folder $1 has other files in it than packages of vrnic; name a new folder with --into"
}

# clear_packages FOLDER: makes the folder, or removes the packages that are in it.
clear_packages() {
	local package
	mkdir -p "$1"
	own_packages "$1" | while read -r package; do rm -f "$package"; done
}

# check_image_path PATH: ends the script if there is something at the path that is not an image of scripts/image.
check_image_path() {
	[ -e "$1" ] || return 0
	if [ -d "$1" ]; then
		[ "$1" != / ] || die "--into / would replace this machine's files; name a new folder or a file that ends in .tar"
		[ -e "$1/opt/vrnic/prebuilt" ] || [ -z "$(find "$1" -mindepth 1 -maxdepth 1 -print -quit)" ] ||
			die "the folder $1 is not empty, and is not an image of scripts/image; name a new one with --into"
		return
	fi
	case $1 in
	*.tar) [ -f "$1" ] || die "$1 is not a file; name another one with --into" ;;
	*) die "$1 is a file; the name of an image ends in .tar, and other names are folders" ;;
	esac
}
