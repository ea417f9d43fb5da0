//! Network namespaces for tests with interfaces of the kernel.

use std::fs::{File, OpenOptions, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use vrnic_device::net::interface::attach_tap;
use vrnic_testdriver::daemon::Daemon;

use super::switch::Folder;

/// A network namespace, which is removed on drop, and a program that runs vrnicd in it.
pub(crate) struct Namespace {
    pub(crate) name: String,
    pub(crate) folder: Folder,
}

impl Namespace {
    /// Creates a namespace, or prints why it cannot.
    pub(crate) fn new() -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("vrnic-{}-{number}", std::process::id());
        let made = Command::new("ip").args(["netns", "add", &name]).output();
        let this = Self { name, folder: Folder::new() };
        let probe = "ip tuntap add probe mode tap && ip link add va type veth peer name vb && \
                     ip link del va && ip tuntap del probe mode tap";
        if !made.is_ok_and(|output| output.status.success()) || this.try_run(probe).is_err() {
            eprintln!(
                "skipped: this needs the command ip, and permission for network namespaces, TAP \
                 and veth devices"
            );
            return None;
        }
        let script = format!(
            "#!/bin/sh\nexec ip netns exec {} {} \"$@\"\n",
            this.name,
            env!("CARGO_BIN_EXE_vrnicd")
        );
        std::fs::write(this.program(), script).expect("script");
        std::fs::set_permissions(this.program(), Permissions::from_mode(0o700)).expect("mode");
        // The kernel's IPv6 would also send frames. These do no harm, but make logs longer.
        let _allowed = this.try_run("sysctl -qw net.ipv6.conf.default.disable_ipv6=1");
        Some(this)
    }

    pub(crate) fn program(&self) -> PathBuf {
        self.folder.path("vrnicd")
    }

    /// Runs a command in the namespace, which must succeed.
    #[track_caller]
    pub(crate) fn run(&self, command: &str) -> String {
        self.try_run(command).unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    /// Runs a command in the namespace. Returns its output, or its error output if it fails.
    pub(crate) fn try_run(&self, command: &str) -> Result<String, String> {
        let output = Command::new("ip")
            .args(["netns", "exec", &self.name, "bash", "-c", command])
            .output()
            .map_err(|error| error.to_string())?;
        let [text, error] = [output.stdout, output.stderr]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        if output.status.success() { Ok(text) } else { Err(error) }
    }

    /// Starts a daemon with this uplink, and with a port and a monitor of this name.
    pub(crate) fn daemon(&self, name: &str, uplink: &str) -> Daemon {
        let (port, monitor) = (format!("name=g,net=@{name}"), format!("@{name}.monitor"));
        let uplink = format!("name=up,{uplink}");
        let options = [("--uplink", &*uplink), ("--port", &port), ("--monitor", &monitor)];
        let daemon = self.folder.start(&self.program(), 0, &options);
        // The interface exists when this line is in the log.
        daemon.wait_for_log("cannot pass this uplink");
        daemon
    }

    pub(crate) fn plug(&self, daemon: &Daemon, name: &str) -> UnixStream {
        let stream = self.folder.plug(name);
        daemon.wait_for_log("link up port=\"g\"");
        stream
    }

    /// Opens a TAP device in the namespace, without headers, which a daemon inherits.
    pub(crate) fn tap(&self, name: &str) -> File {
        let path = format!("/run/netns/{}", self.name);
        let name = name.to_owned();
        let open = move || {
            let there = File::open(path).expect("the namespace");
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(there.as_fd(), kind).expect("the namespace");
            let device = OpenOptions::new().read(true).write(true).open("/dev/net/tun");
            let device = device.expect("/dev/net/tun");
            attach_tap(device.as_fd(), &name, false).expect("a TAP device");
            fcntl_setfd(&device, FdFlags::empty()).expect("flags");
            device
        };
        // Uses a separate thread, because a thread that has entered the namespace stays in it.
        std::thread::spawn(open).join().expect("a TAP device")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _removed = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}
