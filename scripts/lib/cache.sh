# The age of folders in the cache. Those of earlier versions of vrnic, images with packages that nobody uses any more, and
# roots that a killed scripts/lab has left, go after a while.
# shellcheck shell=bash

# Days after its last use that a folder is kept.
CACHE_DAYS=30

# cache_used FOLDER…: notes that those that exist are in use.
cache_used() { touch -c -- "$@"; }

# cache_tidy: removes the folders and the snapshots of guests that were not in use for long.
cache_tidy() {
	local folder
	[ ! -d "$VRNIC_CACHE/snapshots" ] || find "$VRNIC_CACHE/snapshots" -ignore_readdir_race -type f \
		! -name lock -mtime "+$CACHE_DAYS" -delete || true
	# Fetched images of runs that were interrupted.
	find "$VRNIC_CACHE" -maxdepth 1 -type f -name 'prebuilt-*.download' -mtime +1 -delete || true
	find "$VRNIC_CACHE" -mindepth 1 -maxdepth 1 -type d -mtime "+$CACHE_DAYS" \
		\( -name 'toolroot-*' -o -name 'guest-*' -o -name 'system-*' -o -name 'debug-*' -o -name 'siw-*' -o -name 'cargo-deny-*' -o -name 'vrnic-*' -o -name 'prebuilt-*' \
		-o -name libraries -o -name capture \) |
		while read -r folder; do
			step "removing ${folder##*/} from the cache: it was not in use for $CACHE_DAYS days"
			rm -rf "$folder"
		done
}
