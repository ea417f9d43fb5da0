# Starts the system of a disk, in place of the initramfs. Process 1 of the guest reads this script. The lab sets volumes,
# release, share, folders, numbers and loader before.

# give_up SENTENCE: ends the guest. Its sentence is the end of the console's log.
give_up() {
	echo "the guest cannot start from its disk: $*" >/dev/console
	sleep 0.5
	echo o >/proc/sysrq-trigger
	sleep 600
}

# system FOLDER: whether this is the root of a system that systemd starts.
system() {
	{ [ -e "$1/etc/os-release" ] || [ -L "$1/etc/os-release" ] || [ -e "$1/usr/lib/os-release" ]; } &&
		{ [ -x "$1/usr/lib/systemd/systemd" ] || [ -x "$1/lib/systemd/systemd" ]; }
}

# find_root: mounts the root of the disk as /disk.
find_root() {
	local volume device kind options
	mkdir -p /disk
	for volume in $volumes; do
		device=/dev/${volume%:*} kind=${volume#*:}
		for n in $(seq 200); do
			[ ! -b "$device" ] || break
			sleep 0.05
		done
		for options in rw rw,subvol=root rw,subvol=@; do
			[ "$options" = rw ] || [ "$kind" = btrfs ] || continue
			mount -t "$kind" -o "$options" "$device" /disk || continue
			! system /disk || return 0
			umount /disk
		done
	done
	return 1
}

# add_modules: gives the system the modules of this kernel, unless it has them.
add_modules() {
	local own=/disk/lib/modules/$release
	[ -n "$share" ] && [ ! -e "$own/kernel" ] || return 0
	mkdir -p "$own" /disk/vrnic/modules
	mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=524288 "$share" /disk/vrnic/modules || return
	ln -s /vrnic/modules/kernel "$own/kernel"
	cp /disk/vrnic/modules/modules.* "$own/"
}

# add_plugin: gives each libibverbs of the system the plugin, unless it has one.
add_plugin() {
	local folder number file
	for folder in $folders; do
		for number in $numbers; do
			file=/disk$folder/libvrnic-rdmav$number.so
			[ ! -e "$file" ] && [ -e "$folder/${file##*/}" ] || continue
			mkdir -p "${file%/*}"
			cp -a "$folder/${file##*/}" "$file"
		done
	done
	mkdir -p /disk/etc/libibverbs.d
	[ -e /disk/etc/libibverbs.d/vrnic.driver ] || echo driver vrnic >/disk/etc/libibverbs.d/vrnic.driver
}

# unit NAME: a unit of systemd that runs when the system is up, with what standard input says of its service.
unit() {
	local folder=/run/systemd/system
	mkdir -p "$folder/multi-user.target.wants"
	{
		printf '[Unit]\nDescription=vrnic %s\nDefaultDependencies=no\nAfter=multi-user.target\n' "$1"
		printf 'StartLimitIntervalSec=0\n[Service]\nEnvironment=HOME=/root TERM=vt100\n'
		printf 'Restart=always\nRestartSec=0.2\nLimitMEMLOCK=infinity\n'
		cat
	} >"$folder/vrnic-$1.service"
	ln -s "../vrnic-$1.service" "$folder/multi-user.target.wants/vrnic-$1.service"
}

# keep_nics: networkd and NetworkManager of the system leave the lab's network cards alone.
keep_nics() {
	mkdir -p /run/systemd/network /run/NetworkManager/conf.d
	printf '[Match]\nDriver=virtio_net\n[Link]\nUnmanaged=yes\n' >/run/systemd/network/00-vrnic.network
	printf '[keyfile]\nunmanaged-devices=driver:virtio_net\n' >/run/NetworkManager/conf.d/vrnic.conf
}

sh "$loader" || give_up "a module that mounts it cannot be loaded"
find_root || give_up "none of its file systems ($volumes) has a system that systemd starts"
mount -t tmpfs -o mode=0755,nosuid,nodev run /run
mkdir -p /disk/vrnic /disk/lab /disk/output || give_up "nothing can be written to it"
cp -a /vrnic/. /disk/vrnic/ && cp -a /lab/. /disk/lab/ || give_up "the lab's files do not fit on it"
chmod 1777 /disk/output
add_modules || give_up "the kernel's modules cannot be mounted"
add_plugin
sh /vrnic/hosts /disk/etc/hosts
keep_nics
unit agent <<-'END'
	ExecStart=/vrnic/agent
END
# A shell for people, on the second serial line.
unit shell <<-'END'
	ExecStart=/bin/sh -c 'command -v bash >/dev/null && exec bash -l; exec sh -l'
	WorkingDirectory=/root
	StandardInput=tty
	StandardOutput=tty
	StandardError=tty
	TTYPath=/dev/ttyS1
	TTYReset=yes
END
init=/lib/systemd/systemd
[ -x "/disk$init" ] || init=/usr$init
exec switch_root /disk "$init"
