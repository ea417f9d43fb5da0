//! Network namespaces for tests with interfaces of the kernel.

use std::fs::{File, OpenOptions, Permissions};
use std::ops::Deref;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::io::{FdFlags, fcntl_setfd};
use vrnic_device::net::uplinks::interface::attach_tap;
use vrnic_testdriver::namespace;
use vrnic_testdriver::vmm::daemon::Daemon;

use super::switch::Folder;

/// A network namespace, and a program that runs vrnicd in it.
pub(crate) struct Namespace {
    inner: namespace::Namespace,
    pub(crate) folder: Folder,
}

impl From<namespace::Namespace> for Namespace {
    fn from(inner: namespace::Namespace) -> Self {
        let this = Self { inner, folder: Folder::new() };
        let script = format!(
            "#!/bin/sh\nexec ip netns exec {} {} \"$@\"\n",
            this.name(),
            env!("CARGO_BIN_EXE_vrnicd")
        );
        std::fs::write(this.program(), script).expect("script");
        std::fs::set_permissions(this.program(), Permissions::from_mode(0o700)).expect("mode");
        this
    }
}

impl Deref for Namespace {
    type Target = namespace::Namespace;

    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}

impl Namespace {
    /// Creates a namespace, or prints why it cannot.
    pub(crate) fn new() -> Option<Self> {
        namespace::Namespace::new().map(Self::from)
    }

    pub(crate) fn program(&self) -> PathBuf {
        self.folder.path("vrnicd")
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
        let open = || {
            self.inner.enter().expect("the namespace");
            let device = OpenOptions::new().read(true).write(true).open("/dev/net/tun");
            let device = device.expect("/dev/net/tun");
            attach_tap(device.as_fd(), name, false).expect("a TAP device");
            fcntl_setfd(&device, FdFlags::empty()).expect("flags");
            device
        };
        // Uses a separate thread, because a thread that has entered the namespace stays in it.
        std::thread::scope(|scope| scope.spawn(open).join().expect("a TAP device"))
    }
}
