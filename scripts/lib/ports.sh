# What the scripts of ci/ports share: fetching wheels of Python, and packages and sources of the guests' Debian; and
# commands of the guests.
# shellcheck shell=bash

# wheel_fetch NAME VERSION INTO: unpacks a wheel for the guests' Python into the folder, unless that is there.
wheel_fetch() {
	local new=$3.new
	[ ! -d "$3" ] || return 0
	python3 -m pip --version >/dev/null 2>&1 || die "fetching $1 needs Python's pip; install it: apt install python3-pip"
	step "fetching $1 $2 from Python's registry"
	rm -rf "$new"
	mkdir -p "$new/wheel" "$new/files"
	quietly "$new/log" python3 -m pip download --no-deps --only-binary=:all: --implementation cp \
		--python-version 3.13 --platform manylinux_2_28_x86_64 --dest "$new/wheel" "$1==$2"
	python3 -m zipfile -e "$new"/wheel/*.whl "$new/files"
	mv "$new/files" "$3"
	rm -rf "$new"
}

# packages_fetch INTO PACKAGE…: unpacks these Debian packages, without those that they need, into the folder, unless
# that is there. Needs the tool root.
packages_fetch() {
	local into=$1 new=$1.new package
	shift
	[ ! -d "$into" ] || return 0
	step "fetching $* from Debian"
	rm -rf "$new"
	mkdir -p "$new/debs" "$new/files"
	quietly "$new/log" in_root sh -euc "cd '$new/debs' && apt-get -q download $*"
	for package in "$new"/debs/*.deb; do dpkg-deb -x "$package" "$new/files"; done
	mv "$new/files" "$into"
	rm -rf "$new"
}

# source_fetch PACKAGE INTO: unpacks the upstream source of a Debian package into the folder, unless that is there. Needs
# the tool root.
source_fetch() {
	local new=$2.new
	[ ! -d "$2" ] || return 0
	step "fetching the source of $1 from Debian"
	rm -rf "$new"
	mkdir -p "$new/files"
	# A mirror may lack the .dsc while it still has the archive, so that is fetched by its own address.
	quietly "$new/log" in_root sh -euc '
		url=$(apt-get source --print-uris "$1" | grep -o "[^'\'']*\.orig\.tar\.[a-z0-9]*" | head -n 1)
		[ -n "$url" ] || { echo "there is no source of $1"; exit 1; }
		/usr/lib/apt/apt-helper download-file "$url" "$2/archive"
		tar -C "$2/files" --strip-components=1 -xf "$2/archive"' source_fetch "$1" "$new"
	mv "$new/files" "$2"
	rm -rf "$new"
}

# counting: prints the beginning of a guest's commands. `moved BYTES` at their end prints how much the adapter has sent
# and received in between, and fails if that is less.
counting() {
	cat <<-'END'
		set -e
		counters=/sys/class/infiniband/$VRNIC_DEVICE/ports/1/hw_counters
		bytes() { echo $(($(cat $counters/tx_bytes) + $(cat $counters/rx_bytes))); }
		before=$(bytes)
		moved() {
			moved=$(($(bytes) - before))
			echo "moved by RDMA: $moved bytes"
			[ $moved -ge $1 ]
		}
	END
}

# ssh_files FOLDER: stores a key for ssh in the folder, and its settings. All guests get the same key by --copy.
ssh_files() {
	ssh-keygen -q -t ed25519 -N '' -C lab -f "$1/key"
	printf 'StrictHostKeyChecking no\n' >"$1/config"
}

# ssh_login: prints the guests' commands that take the key, so that they can log in to each other.
ssh_login() {
	cat <<-'END'
		set -e
		mkdir -p -m 700 ~root/.ssh /run/sshd
		cp key ~root/.ssh/id_ed25519
		cp key.pub ~root/.ssh/authorized_keys
		cp config ~root/.ssh/config
		chmod 600 ~root/.ssh/*
		chown -R root: /root /lab
	END
}
