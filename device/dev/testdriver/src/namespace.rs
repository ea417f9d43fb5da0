//! Network namespaces of the kernel, which serve as hosts.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace, which is removed on drop.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Creates a namespace, or prints why it cannot.
    #[must_use]
    pub fn new() -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("vrnic-{}-{number}", std::process::id());
        let made = Command::new("ip").args(["netns", "add", &name]).output();
        let this = Self { name };
        let probe = "ip tuntap add probe mode tap && ip link add va type veth peer name vb && \
                     ip link del va && ip tuntap del probe mode tap";
        if !made.is_ok_and(|output| output.status.success()) || this.try_run(probe).is_err() {
            eprintln!(
                "skipped: this needs the command ip, and permission for network namespaces, TAP \
                 and veth devices"
            );
            return None;
        }
        // The kernel would also send frames of IPv6. They do no harm, but make logs longer.
        let _allowed = this.try_run("sysctl -qw net.ipv6.conf.default.disable_ipv6=1");
        Some(this)
    }

    /// Returns the namespace's name, as `ip netns` shows it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Moves the calling thread into the namespace permanently, with the processes and threads that
    /// it starts afterwards.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn enter(&self) -> io::Result<()> {
        let there = File::open(format!("/run/netns/{}", self.name))?;
        Ok(move_into_link_name_space(there.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// Runs a command in the namespace, which must succeed. Returns its output.
    #[track_caller]
    pub fn run(&self, command: &str) -> String {
        self.try_run(command).unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    /// Runs a command in the namespace. Returns its output.
    ///
    /// # Errors
    /// If it fails, with its error output.
    pub fn try_run(&self, command: &str) -> Result<String, String> {
        let output = Command::new("ip")
            .args(["netns", "exec", &self.name, "bash", "-c", command])
            .output()
            .map_err(|error| error.to_string())?;
        let [text, error] = [output.stdout, output.stderr]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        if output.status.success() { Ok(text) } else { Err(error) }
    }

    /// Returns the number of packets that an interface of the namespace has sent. Joined packets
    /// count as one.
    #[track_caller]
    #[must_use]
    pub fn sent(&self, interface: &str) -> u64 {
        let text = self.run(&format!("cat /sys/class/net/{interface}/statistics/tx_packets"));
        text.trim().parse().expect("a number")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _removed = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}
