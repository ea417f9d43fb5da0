# Where the plugin of libibverbs is, for each libibverbs that a program may use.
# shellcheck shell=bash

# The private interfaces (provider/layouts), each of which looks for a file name of its own.
PLUGIN_NUMBERS=(34 57 59 64 65)
# The folders in which a libibverbs looks: that of Debian and Ubuntu, and that of Fedora, Red Hat and Python wheels.
PLUGIN_FOLDERS=(usr/lib/x86_64-linux-gnu/libibverbs usr/lib64/libibverbs)

# plugin_install FILE ROOT: installs the plugin below the root under all its names. Each is a file of its own, because the
# dynamic linker loads a file only once, and a process may have two copies of libibverbs, each of which needs a plugin.
plugin_install() {
	local folder number
	for folder in "${PLUGIN_FOLDERS[@]}"; do
		for number in "${PLUGIN_NUMBERS[@]}"; do
			install -D -m 644 "$1" "$2/$folder/libvrnic-rdmav$number.so"
		done
	done
	install -D -m 644 "$VRNIC_TOP/provider/vrnic.driver" "$2/etc/libibverbs.d/vrnic.driver"
}

# plugin_archive ROOT ARCHIVE: packs the files below the root, of which each has the time of the commit. The archive has no
# folders, so whoever unpacks it keeps folders that are symbolic links.
plugin_archive() {
	(cd "$1" && find . -type f -printf '%P\0' | LC_ALL=C sort -z |
		tar --no-recursion --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cf - --null --files-from=- |
		xz -9) >"$2"
}
