# The image for containers in which scripts/lab and scripts/run install and build nothing.
# shellcheck shell=bash

# image_modules FOLDER NAME…: copies these modules of the guests' kernel and those that they need, or all if none is
# named, and their table.
image_modules() {
	local folder=$1 name file needs
	shift
	mkdir -p "$folder"
	if [ $# -eq 0 ]; then
		cp -r "$VRNIC_STOCK/." "$folder/"
		return
	fi
	for name in "$@"; do grep -E "(^|/)$name\.ko[.a-z]*:" "$VRNIC_STOCK/modules.dep"; done >"$folder/modules.dep"
	while read -r file needs; do
		for file in "${file%:}" $needs; do
			(cd "$VRNIC_STOCK" && cp --parents "$file" "$folder")
			grep -F "$file:" "$VRNIC_STOCK/modules.dep" >>"$folder/modules.dep.more"
		done
	done <"$folder/modules.dep"
	touch "$folder/partial"
	sort -u -o "$folder/modules.dep" "$folder/modules.dep.more"
	rm -f "$folder/modules.dep.more"
}

# image_tree TREE MODULES FOLDER…: what these two scripts need of the clone, as it is in the image, with these folders of
# guests' images, and these modules, which are words of one text, or all if that is empty. The file `prebuilt` tells the
# scripts that nothing has to be built.
image_tree() {
	local tree=$1 modules file
	read -ra modules <<<"$2"
	shift 2
	rm -rf "$tree"
	mkdir -p "$tree"/{qemu,target/release,build,cache}
	(cd "$VRNIC_TOP" && cp --parents scripts/{lab,run} scripts/help/{faults,lab,run}.txt scripts/lib/*.sh qemu/versions.env "$tree")
	for file in vrnicd vrnic vrnic-lab vrnic-pair vrnic-agent libvrnic{,_check}.so; do
		strip --strip-unneeded -o "$tree/target/release/$file" "$VRNIC_BIN/$file"
	done
	for file in "$VRNIC_BUILD"/*.ko "$VRNIC_BUILD"/vrnicdv_*; do
		strip --strip-debug -o "$tree/build/${file##*/}" "$file"
	done
	for file in "$@"; do
		mkdir -p "$tree/cache/${file##*/}"
		cp "$file"/{base.cpio,vmlinuz,complete} "$tree/cache/${file##*/}/"
	done
	image_modules "$tree/cache/${VRNIC_STOCK##*/}" "${modules[@]}"
	# Snapshots of guests are known by these times. An archive keeps no parts of seconds.
	find "$tree/cache" -exec touch -d "@$EPOCHSECONDS" {} +
	printf 'built from commit %s\n' "$(git -C "$VRNIC_TOP" rev-parse HEAD 2>/dev/null || echo unknown)" >"$tree/prebuilt"
}

# image_write TREE PATH MODULES FOLDER…: makes the tree with these modules and folders, the image of it, and removes the
# tree.
image_write() {
	image_tree "$1" "${@:3}"
	image_make "$1" "$2"
	rm -rf "$1"
}

# image_snapshots ROOT: boots a guest of each image that a line of $IMAGE_GUESTS names by options of scripts/lab, and keeps
# the snapshots, packed. It is a hook of mmdebstrap. Without a snapshot, guests of the image boot.
image_snapshots() {
	local snapshots=$1/opt/vrnic/cache/snapshots line options file
	while read -r line; do
		read -ra options <<<"$line"
		chroot "$1" env -i PATH=/usr/bin VRNIC_ACCEL=tcg VRNIC_SNAPSHOT=make \
			/opt/vrnic/scripts/lab --guests 1 "${options[@]}" -- true </dev/null ||
			echo "a guest with '$line' does not boot here, so the image has no snapshot of it"
	done <<<"$IMAGE_GUESTS"
	for file in "$snapshots"/*.ram; do
		[ ! -e "$file" ] || zstd -q -9 --rm "$file" -o "${file%.ram}.zst"
	done
	rm -f "$snapshots"/{lock,*.refused,*.new}
}

# image_make TREE PATH: a Debian with QEMU of the kernel's suite and the tree in /opt/vrnic, as a folder or a tar file.
image_make() {
	local mirror
	mirror=$(awk '$1 == "deb" { print $2; exit }' "$VRNIC_TOOLROOT/etc/apt/sources.list")
	step "image: Debian $VRNIC_SUITE with QEMU"
	rm -rf "$2"
	# shellcheck disable=SC2016 # mmdebstrap sets $1
	IMAGE_TREE=$1 IMAGE_LIB=$VRNIC_TOP/scripts/lib/image.sh IMAGE_QEMU_SUITE=$VRNIC_KERNEL_SUITE \
		quietly "$VRNIC_BUILD/image.log" mmdebstrap \
		--variant=minbase --skip=check/empty --include=qemu-system-x86,xz-utils,zstd \
		--dpkgopt=force-unsafe-io \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' \
		--setup-hook='printf "Package: qemu-* seabios\nPin: release n=%s\nPin-Priority: 900\n" \
			"$IMAGE_QEMU_SUITE" >"$1/etc/apt/preferences.d/qemu"' \
		--customize-hook='mkdir -p "$1/opt" && cp -a "$IMAGE_TREE" "$1/opt/vrnic"' \
		--customize-hook='bash -euc ". \"$IMAGE_LIB\"; image_snapshots \"\$1\"" hook "$1"' \
		--customize-hook='rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/*' \
		"$VRNIC_SUITE" "$2" \
		"deb $mirror $VRNIC_SUITE main" "deb $mirror $VRNIC_KERNEL_SUITE main"
}
