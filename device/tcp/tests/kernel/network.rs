//! A kernel with a TAP device, in a separate network namespace.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use vrnic_device::net::uplinks::interface::attach_tap;
use vrnic_packet::MacAddr;
use vrnic_tcp::wire::Path;
use vrnic_testdriver::namespace::Namespace;

/// Maximum length of a frame of a TAP device in these tests.
const FRAME: usize = 9100;
/// MACs of the stations at the two ends of the TAP device.
const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const KERNEL_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// Ports of the engine, and of a listening kernel socket.
const OWN_PORT: u16 = 4000;
const KERNEL_PORT: u16 = 5000;

/// A TAP device whose file does not block.
#[derive(Debug)]
pub(crate) struct Tap(File);

impl Tap {
    fn open(name: &str) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
        attach_tap(file.as_fd(), name, false)?;
        ioctl_fionbio(&file, true)?;
        Ok(Self(file))
    }

    /// Sends a frame to the kernel, which refuses frames that are shorter than an Ethernet header.
    pub(crate) fn send(&self, frame: &[u8]) {
        let _taken = (&self.0).write(frame);
    }

    /// Receives the next frame of the kernel.
    pub(crate) fn receive(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0; FRAME];
        let len = (&self.0).read(&mut frame).ok()?;
        frame.truncate(len);
        Some(frame)
    }

    /// Waits for a frame, at most for this time.
    pub(crate) fn wait(&self, limit: Duration) {
        let limit = Timespec::try_from(limit).expect("a short time");
        let _ready = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&limit));
    }
}

/// Settings of the kernel's side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) mtu: u16,
    pub(crate) v6: bool,
    /// Settings of its TCP for sysctl.
    pub(crate) settings: &'static str,
}

impl Default for Setup {
    fn default() -> Self {
        Self { mtu: 1500, v6: false, settings: "" }
    }
}

/// A namespace with a TAP device.
#[derive(Debug)]
pub(crate) struct Network {
    namespace: Namespace,
    pub(crate) tap: Tap,
    setup: Setup,
}

impl Network {
    /// Creates a network, or prints why it cannot.
    pub(crate) fn new(setup: Setup) -> Option<Self> {
        let namespace = Namespace::new()?;
        let tap = inside(&namespace, || Tap::open("vt0").expect("a TAP device"));
        let this = Self { namespace, tap, setup };
        let Setup { mtu, v6, settings } = setup;
        let [own, kernel] = [this.own(), this.kernel()].map(|address| address.ip());
        let bits = if v6 { 128 } else { 32 };
        let own_mac = OWN_MAC.map(|byte| format!("{byte:02x}")).join(":");
        let kernel_mac = KERNEL_MAC.map(|byte| format!("{byte:02x}")).join(":");
        let sysctl = if settings.is_empty() { "true" } else { "sysctl -qw" };
        // The kernel's time-outs are short, so that losses take little time.
        this.namespace.run(&format!(
            "set -e
             sysctl -qw net.ipv6.conf.vt0.disable_ipv6={}
             ip link set vt0 address {kernel_mac} mtu {mtu} up
             ip addr add {kernel}/{bits} dev vt0 {}
             ip neigh add {own} lladdr {own_mac} dev vt0
             ip route add {own}/{bits} dev vt0 src {kernel} rto_min 10ms
             {sysctl} {settings}",
            u8::from(!v6),
            if v6 { "nodad" } else { "" },
        ));
        Some(this)
    }

    fn address(&self, last: u8, port: u16) -> SocketAddr {
        let ip = if self.setup.v6 {
            IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into()))
        } else {
            IpAddr::V4(Ipv4Addr::new(10, 78, 0, last))
        };
        SocketAddr::new(ip, port)
    }

    /// Returns the address of the engine.
    pub(crate) fn own(&self) -> SocketAddr {
        self.address(2, OWN_PORT)
    }

    fn kernel(&self) -> SocketAddr {
        self.address(1, KERNEL_PORT)
    }

    /// Returns the path of frames to the kernel's listening socket.
    pub(crate) fn path(&self) -> Path {
        Path {
            to: MacAddr(KERNEL_MAC),
            from: MacAddr(OWN_MAC),
            vlan: None,
            source: self.own(),
            destination: self.kernel(),
            traffic_class: 0,
            hop_limit: 64,
        }
    }

    /// Returns the number of bytes of TCP payload and options in the longest frame.
    pub(crate) const fn mss(&self) -> u16 {
        self.setup.mtu - if self.setup.v6 { 60 } else { 40 }
    }

    /// Creates a listening kernel socket.
    pub(crate) fn listen(&self) -> TcpListener {
        inside(&self.namespace, || TcpListener::bind(self.kernel()).expect("a socket"))
    }

    /// Connects a kernel socket to the engine.
    pub(crate) fn connect(&self) -> TcpStream {
        inside(&self.namespace, || TcpStream::connect(self.own()).expect("a connection"))
    }

    /// Returns a counter of the kernel by its name in nstat.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let line = self.namespace.run(&format!("nstat -asz {name}"));
        let value = line.lines().last().and_then(|line| line.split_whitespace().nth(1));
        value.and_then(|value| value.parse().ok()).expect("a number")
    }

    /// Returns the states of the kernel's connections by their names in ss.
    pub(crate) fn states(&self) -> Vec<String> {
        let lines = self.namespace.run("ss -Htan state connected state time-wait");
        let first = |line: &str| line.split_whitespace().next().map(str::to_owned);
        lines.lines().filter_map(first).collect()
    }
}

/// Calls `work` in a thread of the namespace. A thread that has entered a namespace stays in it.
fn inside<T: Send>(namespace: &Namespace, work: impl FnOnce() -> T + Send) -> T {
    let enter = || {
        namespace.enter().expect("the namespace");
        work()
    };
    thread::scope(|scope| scope.spawn(enter).join().expect("work in the namespace"))
}
