# What some suites need beyond the image of guests (`needs` in tests/suites.toml).
# shellcheck shell=bash
. "$VRNIC_TOP/scripts/lib/guest.sh"
. "$VRNIC_TOP/scripts/lib/libraries.sh"
. "$VRNIC_TOP/scripts/lib/capture.sh"
. "$VRNIC_TOP/scripts/lib/siw.sh"
. "$VRNIC_TOP/scripts/lib/repository.sh"
. "$VRNIC_TOP/scripts/lib/dkms.sh"

# need NAME: makes it if it is not there, and prints the variable that names it to the suites.
need() {
	local repositories=$VRNIC_BUILD/repositories
	case $1 in
	apps)
		"$VRNIC_TOP/scripts/setup" --apps >&2
		echo "VRNIC_GUEST=$VRNIC_GUEST_APPS"
		;;
	capture)
		locked "$VRNIC_CACHE/libraries.lock" capture_make "$VRNIC_CACHE/capture" >&2
		echo "VRNIC_CAPTURE=$VRNIC_CACHE/capture"
		;;
	libraries)
		locked "$VRNIC_CACHE/libraries.lock" libraries_make "$VRNIC_CACHE/libraries" >&2
		echo "VRNIC_LIBRARIES=$VRNIC_CACHE/libraries"
		;;
	repositories)
		"$VRNIC_TOP/scripts/setup" --system >&2
		repository_make "$repositories" >&2
		dkms_make "$repositories/first" "$repositories/dkms/vrnic.ko" >&2
		echo "VRNIC_REPOSITORIES=$repositories"
		;;
	siw) echo "VRNIC_SIW=$(siw_make)" ;;
	storage)
		"$VRNIC_TOP/scripts/setup" --with minimal "${STORAGE_PACKAGES[@]}" >&2
		echo "VRNIC_GUEST=$(guest_folder minimal "${STORAGE_PACKAGES[@]}")"
		;;
	*) die "scripts/lib/needs.sh does not know what '$1' is" ;;
	esac
}
