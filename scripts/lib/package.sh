# What scripts/package computes for packages.
# shellcheck shell=bash

# package_version: the version in Cargo.toml with the time and the hash of the commit, so that the packages of a later
# commit are an upgrade. Needs SOURCE_DATE_EPOCH.
package_version() {
	local version hash
	version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$VRNIC_TOP/Cargo.toml")
	# As long in every clone, however many objects that has.
	hash=$(git -C "$VRNIC_TOP" rev-parse --short=10 HEAD)
	printf '%s+git%s.%s\n' "${version%%$'\n'*}" "$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S)" "${hash:0:10}"
}

# check_packages FOLDER [NEEDED]: ends the script if lintian finds faults in the packages. Without lintian they are not
# checked, or it is installed if NEEDED has a text.
check_packages() {
	if ! command -v lintian >/dev/null; then
		[ -n "${2-}" ] || return 0
		step "installing lintian"
		mkdir -p "$VRNIC_CACHE"
		quietly "$VRNIC_CACHE/apt-lintian.log" apt-get -q update
		quietly "$VRNIC_CACHE/apt-lintian.log" env DEBIAN_FRONTEND=noninteractive apt-get -q -y \
			--no-install-recommends install lintian
	fi
	step "checking the packages with lintian"
	lintian --fail-on error,warning "$1"/*.deb || die "lintian has found faults in the packages; it names them above"
}

# installed_size ROOT: the size in KiB of what the package installs, as Debian's policy counts it: each file rounded up,
# 1 for anything else. Unlike that of du it does not depend on the file system.
installed_size() {
	find "$1" -mindepth 1 -path "$1/DEBIAN" -prune -o -printf '%y %s\n' |
		awk '{ sum += $1 == "f" ? int(($2 + 1023) / 1024) : 1 } END { print sum + 0 }'
}

# modules_postinst RELEASE: the commands of dpkg for a package with modules for this kernel.
modules_postinst() {
	cat <<-EOF
		depmod $1
		if [ "\$1" = configure ] && [ "\$(uname -r)" != $1 ]; then
		    echo "vrnic.ko is for the kernel $1, and \$(uname -r) is running." >&2
		    echo "Start this machine with the kernel $1 to use the adapter." >&2
		fi
	EOF
}

# storage_postinst: the commands of dpkg after the interface of open-iscsi is installed, which iscsiadm may change.
storage_postinst() {
	cat <<-'EOF'
		if [ "$1" = configure ]; then
		    mkdir -p /var/lib/iscsi/ifaces
		    [ -e /var/lib/iscsi/ifaces/vrnic ] ||
		        install -m 600 /usr/share/vrnic-storage/vrnic /var/lib/iscsi/ifaces/vrnic
		    modprobe -q vrnic_iscsi || true
		fi
	EOF
}

# library_depends: the libibverbs that the plugin depends on. The plugin knows the private interfaces of these releases of
# rdma-core (provider/layouts) and refuses any other, so the package must not be installed beside another.
library_depends() { echo "libibverbs1 (>= 36~), libibverbs1 (<< 66~)"; }

# daemon_postinst: the commands of dpkg after the daemon is installed.
daemon_postinst() {
	cat <<-'EOF'
		if command -v systemd-sysusers >/dev/null; then systemd-sysusers vrnicd.conf; fi
		if [ "$1" = configure ] && [ -d /sys/kernel/security/apparmor ] && command -v apparmor_parser >/dev/null; then
		    apparmor_parser --replace /etc/apparmor.d/vrnicd || true
		fi
		if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
	EOF
}

# daemon_prerm: the commands of dpkg before the daemon is removed. A service that cannot be stopped, for example because
# it takes too long, does not keep the package from being removed.
daemon_prerm() {
	cat <<-'EOF'
		if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
		    systemctl stop vrnicd.service "vrnicd@*.service" || true
		    systemctl disable vrnicd.service vrnicd@.service || true
		fi
	EOF
}
