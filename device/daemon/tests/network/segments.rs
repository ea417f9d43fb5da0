//! RDMA between daemons through the host's kernel, to which they send joined frames. The tests are
//! skipped with a message if no network namespace can be created.
//!
//! Shows: network

use std::os::fd::AsRawFd;

use vrnic_abi::admin::{SetGid, command};
use vrnic_abi::cq::Status;
use vrnic_abi::qp::{Attr, NO_VLAN, State};
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::stream;
use vrnic_testdriver::vmm::daemon::Daemon;
use vrnic_testdriver::vmm::vfio::{Endpoint, Guest};
use vrnic_testdriver::wr::Wr;

use crate::common::namespace::Namespace;
use crate::common::pattern;

/// Length of each message, and the number of its packets.
const LEN: u32 = 1 << 20;
const PACKETS: u64 = LEN as u64 / 4096;
/// Number of messages in each direction.
const MESSAGES: u64 = 4;

/// Kinds of messages.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Packets over IPv4.
    V4,
    /// Packets over IPv6.
    V6,
    /// Segments of a TCP connection.
    Stream,
}

impl Kind {
    const ALL: [Self; 3] = [Self::V4, Self::V6, Self::Stream];
}

/// Two daemons in a namespace, each with a function.
struct Pair {
    daemons: [Daemon; 2],
    guests: [Guest; 2],
}

impl Pair {
    fn start(namespace: &Namespace, uplinks: [&str; 2]) -> Self {
        let mut function = 0;
        let daemons = uplinks.map(|uplink| {
            let uplink = format!("name=up,{uplink}");
            let args = ["--uplink", &uplink];
            function += 1;
            Daemon::start_range(&namespace.program(), function - 1..function, &args)
                .expect("vrnicd starts")
        });
        // Before this, packets with 4096 bytes cannot pass.
        for daemon in &daemons {
            daemon.wait_for_log("link up port=\"up\"");
            daemon.wait_for_log("needs a path MTU of at most 4096");
        }
        let guests = [daemons[0].ready_guest(0), daemons[1].ready_guest(1)];
        for (guest, last) in guests.iter().zip(1..) {
            let gid = SetGid::set(1, v4(last), guest.mac(), NO_VLAN);
            guest.command::<command::SetGid>(&gid).expect("SET_GID");
        }
        Self { daemons, guests }
    }

    /// Endpoints with a connection between them.
    fn connected(&self, kind: Kind) -> [Endpoint; 2] {
        let [a, b] = self.guests.each_ref().map(|guest| Endpoint::new(guest, Setup::default()));
        if kind == Kind::Stream {
            stream::connect_pair_with(&a, &b, 4096);
            return [a, b];
        }
        let tune = |peer: u8| {
            move |attr: &mut Attr| {
                (attr.timeout, attr.retry_cnt) = (16, 7);
                if kind == Kind::V4 {
                    (attr.av.dgid, attr.av.sgid_index) = (v4(peer), 1.into());
                }
            }
        };
        a.connect(self.guests[1].mac(), b.qpn, tune(2));
        b.connect(self.guests[0].mac(), a.qpn, tune(1));
        [a, b]
    }

    /// Writes and reads long messages from both sides.
    fn exchange(&mut self, kind: Kind) {
        let mut ends = self.connected(kind);
        for turn in 0..MESSAGES as usize {
            let [a, b] = &mut ends;
            let (from, to) = if turn % 2 == 0 { (a, b) } else { (b, a) };
            let data = pattern(LEN as usize, turn);
            from.fill(0, &data);
            let write = Wr::new(Opcode::Write, &[from.sge(0, LEN)]).to(to.buffer, to.key);
            from.run_expecting(&write, Status::Success);
            assert!(to.bytes(0, LEN as usize) == data, "WRITE, {kind:?}");
            let back = pattern(LEN as usize, turn + 9);
            to.fill(1 << 20, &back);
            let addr = to.buffer + (1 << 20);
            let read = Wr::new(Opcode::Read, &[from.sge(2 << 20, LEN)]).to(addr, to.key);
            from.run_expecting(&read, Status::Success);
            assert!(from.bytes(2 << 20, LEN as usize) == back, "READ, {kind:?}");
        }
        // The next connection has the same addresses.
        ends.iter_mut().for_each(|end| end.set_state(State::Reset));
        self.daemons.iter_mut().for_each(Daemon::check);
    }
}

/// Returns the GID of 10.77.0.`last`.
fn v4(last: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, last]
}

/// Creates a bridge with an MTU for whole packets, and these TAP devices.
fn bridge(taps: &[&str]) -> Option<Namespace> {
    let namespace = Namespace::new()?;
    namespace.run("ip link add br0 mtu 4500 type bridge && ip link set br0 up");
    for tap in taps {
        namespace.run(&format!("ip tuntap add {tap} mode tap"));
        join(&namespace, tap);
    }
    Some(namespace)
}

/// Joins an interface to the bridge.
fn join(namespace: &Namespace, interface: &str) {
    namespace.run(&format!("ip link set {interface} mtu 4500 master br0 up"));
}

/// Adds a veth device to the bridge. The other end is `end`.
fn veth(namespace: &Namespace, end: &str) {
    namespace.run(&format!("ip link add va type veth peer name {end}"));
    namespace.run(&format!("ip link set {end} mtu 4500 up"));
    join(namespace, "va");
}

/// Returns the number of packets that the kernel has counted at an interface. Joined packets count
/// as one.
fn packets(namespace: &Namespace, interface: &str, direction: &str) -> u64 {
    let path = format!("/sys/class/net/{interface}/statistics/{direction}_packets");
    namespace.run(&format!("cat {path}")).trim().parse().expect("a number")
}

#[test]
fn frames_pass_joined_from_tap_to_tap() {
    let Some(namespace) = bridge(&["left", "right"]) else { return };
    let mut pair = Pair::start(&namespace, ["tap=left", "tap=right"]);
    for kind in Kind::ALL {
        let before = packets(&namespace, "left", "rx");
        pair.exchange(kind);
        let sent = packets(&namespace, "left", "rx") - before;
        assert!(sent < MESSAGES * PACKETS / 3, "{sent} were sent, {kind:?}");
        // No packet is lost. A segment is sent again only by a probe, if a busy machine answers
        // late.
        let resent = pair.guests.each_ref().map(|guest| guest.stats().tcp_retrans_segs.get());
        assert!(resent.iter().all(|resent| *resent < PACKETS / 16), "{resent:?}, {kind:?}");
    }
}

/// The kernel splits joined frames for a TAP device that does not support them. The ICRC of each
/// packet fits the headers that the kernel writes.
#[test]
fn frames_that_the_kernel_has_cut_are_right() {
    let Some(namespace) = bridge(&["right"]) else { return };
    let plain = namespace.tap("left");
    join(&namespace, "left");
    let mut pair = Pair::start(&namespace, [&format!("fd={}", plain.as_raw_fd()), "tap=right"]);
    for kind in Kind::ALL {
        let counts = || {
            [("right", "rx"), ("left", "tx"), ("left", "rx")]
                .map(|(interface, direction)| packets(&namespace, interface, direction))
        };
        let before = counts();
        pair.exchange(kind);
        let after = counts();
        let [joined, cut, single] = [0, 1, 2].map(|nth| after[nth] - before[nth]);
        let all = MESSAGES * PACKETS;
        assert!(joined < all / 3 && cut >= all && single >= all, "{joined}, {cut}, {single}");
    }
}

#[test]
fn packet_sockets_take_and_give_joined_frames() {
    for limit in [None, Some("gso_max_size 3000")] {
        let Some(namespace) = bridge(&["left"]) else { return };
        veth(&namespace, "vb");
        if let Some(limit) = limit {
            // The kernel splits the frames when they leave both ends.
            namespace.run(&format!("ip link set va {limit} && ip link set vb {limit}"));
        }
        let mut pair = Pair::start(&namespace, ["tap=left", "packet=vb"]);
        for kind in Kind::ALL {
            let before = ["rx", "tx"].map(|direction| packets(&namespace, "va", direction));
            pair.exchange(kind);
            let after = ["rx", "tx"].map(|direction| packets(&namespace, "va", direction));
            for (before, after) in before.into_iter().zip(after) {
                let (count, all) = (after - before, MESSAGES * PACKETS);
                let right = if limit.is_some() { count >= all } else { count < all / 3 };
                assert!(right, "{count} packets of {all}, {limit:?}");
            }
        }
    }
}
