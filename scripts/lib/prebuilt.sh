# The option --prebuilt: an image of scripts/image instead of what setup and builds make here. It has all that the scripts
# run and lab need, also QEMU, so that they install nothing and need neither root nor compilers.
# shellcheck shell=bash

# run_prebuilt SCRIPT ARGUMENT…: if these arguments have --prebuilt IMAGE, runs the script of this name in the unpacked
# image with the others, and ends.
run_prebuilt() {
	local script=$1 image='' root others=()
	shift
	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		case $1 in
		--prebuilt) image=${2-}; [ $# -eq 1 ] || shift ;;
		--prebuilt=*) image=${1#*=} ;;
		*) others+=("$1") ; shift ; continue ;;
		esac
		[ -n "$image" ] || die "--prebuilt needs an image of scripts/image: a file, or an address that begins with https://"
		shift
	done
	[ -n "$image" ] || return 0
	[ -z "$VRNIC_PREBUILT" ] || die "this is an image of scripts/image itself, so --prebuilt has no meaning here"
	mkdir -p "$VRNIC_CACHE"
	root=$(prebuilt_root "$image")
	cache_used "$root"
	cache_tidy
	VRNIC_IMAGE_ROOT=$root exec "$root/opt/vrnic/scripts/$script" "${others[@]}" "$@"
}

# prebuilt_root IMAGE: prints the folder of the unpacked image, which it makes if there is none.
prebuilt_root() {
	local image=$1 sum='' file=$1 key root
	if [[ $image =~ ^http:// ]] && ! [[ $image =~ ^http://127\.0\.0\.1[:/] ]]; then
		die "--prebuilt takes an address that begins with https://: whoever changes the image on its way runs programs here"
	elif [[ $image =~ ^https?:// ]]; then
		sum=$(prebuilt_fetch "$image.sha256" /dev/stdout | cut -d' ' -f1)
		[[ $sum =~ ^[0-9a-f]{64}$ ]] || die "$image.sha256 has no SHA-256 sum; scripts/image writes that file next to the image"
		key=$sum file=$VRNIC_CACHE/prebuilt-${sum:0:12}.download
	else
		[ -f "$image" ] || die "--prebuilt names $image, which is not a file; scripts/image makes one"
		if [ -e "$image.sha256" ]; then sum=$(cut -d' ' -f1 "$image.sha256"); fi
		key=$(stat --format '%n %s %.Y' -- "$(realpath "$image")" | sha256sum)
	fi
	root=$VRNIC_CACHE/prebuilt-${key:0:12}
	[ -e "$root/opt/vrnic/prebuilt" ] || locked "$VRNIC_CACHE/prebuilt.lock" prebuilt_unpack "$image" "$file" "$sum" "$root"
	printf '%s\n' "$root"
}

# prebuilt_unpack IMAGE FILE SUM ROOT: unpacks the image into the folder, from the file, which has this sum if it is not
# empty. Fetches the file first if it is not the image.
prebuilt_unpack() {
	local image=$1 file=$2 sum=$3 root=$4
	# Another script may have done it meanwhile.
	[ ! -e "$root/opt/vrnic/prebuilt" ] || return 0
	[ "$file" = "$image" ] || { step "fetching $image"; prebuilt_fetch "$image" "$file"; }
	[ -z "$sum" ] || sha256sum --status --check <<<"$sum  $file" || {
		[ "$file" = "$image" ] || rm -f "$file"
		die "$image is not what its checksum in $image.sha256 says; make or fetch it again"
	}
	step "unpacking the image"
	# What an interrupted removal has left goes, too.
	rm -rf "$root" "$root.new"
	mkdir "$root.new"
	# Devices, which only containers need, can be made by root alone.
	tar -C "$root.new" -xf "$file" --no-same-owner --anchored --exclude='./dev/*' --exclude='dev/*' ||
		die "$image cannot be unpacked; is there room in $VRNIC_CACHE?"
	[ -x "$root.new/opt/vrnic/scripts/run" ] || die "$image is not an image of scripts/image"
	mv "$root.new" "$root"
	[ "$file" = "$image" ] || rm -f "$file"
}

# prebuilt_fetch ADDRESS FILE: fetches the file with what this machine has for that.
prebuilt_fetch() {
	local failed="cannot fetch $1; the message is above"
	if command -v curl >/dev/null; then
		curl --fail --location --proto-redir '=https' --silent --show-error --output "$2" "$1" || die "$failed"
	elif command -v wget >/dev/null; then
		wget --no-verbose --output-document="$2" "$1" || die "$failed"
	else
		die "there is neither curl nor wget; fetch $1 another way, and name the file"
	fi
}
