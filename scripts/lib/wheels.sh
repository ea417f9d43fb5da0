# Wheels of Python's registry, for the Python of the guests.
# shellcheck shell=bash

# wheel_fetch NAME VERSION INTO: unpacks a wheel into the folder, unless it is there. Python finds its packages in it.
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
