//! Hosts, which are network namespaces, each with a daemon: three hosts whose bridges are joined by
//! the kernel's VXLAN over a network, and two networks with a router. The tests are skipped with a
//! message on machines that do not support this.
//!
//! Shows: network

use std::time::Duration;

use vrnic_abi::admin::{SetGid, command};
use vrnic_abi::cq::Status;
use vrnic_abi::qp::{Attr, NO_VLAN};
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::namespace;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::vmm::daemon::{Daemon, mac};
use vrnic_testdriver::vmm::vfio::{Endpoint, Guest};
use vrnic_testdriver::vxlan::Vxlan;
use vrnic_testdriver::wait;
use vrnic_testdriver::wr::Wr;

use crate::common::namespace::Namespace;
use crate::common::pattern;

const HOSTS: usize = 3;
/// Bytes of a message.
const LEN: u32 = 300_000;
/// Offsets in an endpoint's region for data that it reads, data that the peer writes, and data that
/// the peer sends.
const READ: u64 = 1 << 19;
const WRITTEN: u64 = 2 << 19;
const RECEIVED: u64 = 3 << 19;

/// The hosts, and the network in between.
struct Hosts {
    daemons: Vec<Daemon>,
    guests: Vec<Guest>,
    hosts: Vec<Namespace>,
    network: namespace::Namespace,
}

impl Hosts {
    /// Starts a daemon on each host, the first two with a TAP device, the last one with a packet
    /// socket.
    fn start() -> Option<Self> {
        let vxlan = Vxlan::new(HOSTS)?;
        let uplinks: Vec<_> = (0..HOSTS).map(|number| vxlan.uplink(number)).collect();
        let Vxlan { hosts, network } = vxlan;
        let hosts: Vec<_> = hosts.into_iter().map(Namespace::from).collect();
        let start = |(number, host)| daemon(host, number, uplinks[number]);
        let daemons: Vec<_> = hosts.iter().enumerate().map(start).collect();
        let ready = |(number, daemon)| guest(daemon, number, v4(number));
        let guests = daemons.iter().enumerate().map(ready).collect();
        Some(Self { daemons, guests, hosts, network })
    }

    /// Connects each function to every other one.
    fn connected(&self) -> Vec<[Endpoint; 2]> {
        let setup = Setup { region: 2 << 20, ..Setup::default() };
        let pairs = (0..HOSTS).flat_map(|a| (a + 1..HOSTS).map(move |b| [a, b]));
        let connect = |numbers: [usize; 2]| {
            let ends = numbers.map(|number| Endpoint::new(&self.guests[number], setup));
            let tune = |peer: usize| {
                move |attr: &mut Attr| {
                    // The retries take eight times half a second.
                    (attr.timeout, attr.retry_cnt) = (17, 7);
                    // One connection is over IPv6.
                    if numbers != [0, 1] {
                        (attr.av.dgid, attr.av.sgid_index) = (v4(peer), 1.into());
                    }
                }
            };
            let [a, b] = numbers;
            ends[0].connect(self.guests[b].mac(), ends[1].qpn, tune(b));
            ends[1].connect(self.guests[a].mac(), ends[0].qpn, tune(a));
            ends
        };
        pairs.map(connect).collect()
    }
}

/// Starts a daemon with the function of this number.
fn daemon(host: &Namespace, number: usize, uplink: &str) -> Daemon {
    let uplink = format!("name=up,{uplink}");
    let args = ["--uplink", &uplink];
    let daemon = Daemon::start_range(&host.program(), number..number + 1, &args);
    let daemon = daemon.expect("vrnicd starts");
    daemon.wait_for_log("link up port=\"up\"");
    daemon
}

fn guest(daemon: &Daemon, number: usize, address: [u8; 16]) -> Guest {
    let guest = daemon.ready_guest(number);
    let gid = SetGid::set(1, address, guest.mac(), NO_VLAN);
    guest.command::<command::SetGid>(&gid).expect("SET_GID");
    guest
}

/// Returns the GID of the function with this number.
fn v4(number: usize) -> [u8; 16] {
    let last = u8::try_from(number + 1).expect("small");
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, last]
}

/// Posts a WRITE, a READ and a SEND at both ends of each pair.
fn post(pairs: &mut [[Endpoint; 2]], round: usize) {
    for (pair, ends) in pairs.iter_mut().enumerate() {
        let peers = ends.each_ref().map(|end| (end.buffer, end.key));
        for (nth, end) in ends.iter_mut().enumerate() {
            end.fill(0, &data(round, pair, nth));
            end.post_recv(1, &[end.sge(RECEIVED, LEN)]);
        }
        for (nth, end) in ends.iter_mut().enumerate() {
            let (buffer, key) = peers[1 - nth];
            let own = end.sge(0, LEN);
            end.post_send(&Wr::new(Opcode::Write, &[own]).to(buffer + WRITTEN, key));
            end.post_send(&Wr::new(Opcode::Read, &[end.sge(READ, LEN)]).to(buffer, key));
            end.post_send(&Wr::new(Opcode::Send, &[end.sge(0, LEN)]));
        }
    }
}

/// Waits for all messages, and checks the data that has arrived.
fn finish(pairs: &mut [[Endpoint; 2]], round: usize) {
    for (pair, ends) in pairs.iter_mut().enumerate() {
        for end in ends.iter_mut() {
            for _ in 0..3 {
                let cqe = wait::until("a request", || end.send_cq.poll());
                assert_eq!(status(&cqe), Status::Success, "pair {pair}");
            }
            let got = wait::until("the receive", || end.recv_cq.poll());
            assert_eq!(got.byte_len.get(), LEN);
        }
        for (nth, end) in ends.iter().enumerate() {
            let theirs = data(round, pair, 1 - nth);
            for place in [READ, WRITTEN, RECEIVED] {
                assert!(end.bytes(place, LEN as usize) == theirs, "pair {pair} at {place:#x}");
            }
        }
    }
}

fn data(round: usize, pair: usize, end: usize) -> Vec<u8> {
    pattern(LEN as usize, round * 8 + pair * 2 + end)
}

#[test]
fn functions_on_three_hosts_reach_each_other() {
    let Some(mut hosts) = Hosts::start() else { return };
    let mut pairs = hosts.connected();
    let mut run = |rounds: std::ops::Range<usize>| {
        let before = hosts.hosts[0].sent("net");
        for round in rounds {
            post(&mut pairs, round);
            finish(&mut pairs, round);
        }
        hosts.hosts[0].sent("net") - before
    };
    // Each function sends to two other functions, with three operations, three times.
    let all = 2 * 3 * 3 * u64::from(LEN / 4096);
    let joined = run(0..3);
    assert!(joined < all / 2, "{joined} packets of {all}");
    // From now on the kernel splits joined packets in their tunnel before they leave the host.
    for host in &hosts.hosts {
        host.run("ip link set net gso_max_size 5000");
    }
    let cut = run(3..6);
    assert!(cut >= all, "{cut} packets of {all}");
    hosts.daemons.iter_mut().for_each(Daemon::check);
}

/// The link of a host goes down and up: the connections go on.
#[test]
fn connections_survive_a_pulled_cable() {
    let Some(mut hosts) = Hosts::start() else { return };
    let mut pairs = hosts.connected();
    post(&mut pairs, 0);
    finish(&mut pairs, 0);
    hosts.network.run("ip link set p1 down");
    post(&mut pairs, 1);
    std::thread::sleep(Duration::from_millis(700));
    hosts.network.run("ip link set p1 up");
    finish(&mut pairs, 1);
    hosts.daemons.iter_mut().for_each(Daemon::check);
}

/// Returns the GID of the first address of a network.
fn first_of(network: usize) -> [u8; 16] {
    let network = u8::try_from(network).expect("small");
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 78, network, 1]
}

#[test]
fn connections_pass_a_router() {
    let Some(router) = Namespace::new() else { return };
    let gateways = [0, 1].map(|number| [2, 0, 0, 0, 1, number]);
    for (number, gateway) in gateways.iter().enumerate() {
        let text = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
        router.run(&format!(
            "ip tuntap add t{number} mode tap && \
             ip link set t{number} mtu 4500 address {} && ip link set t{number} up && \
             ip addr add 10.78.{number}.254/24 dev t{number} && \
             ip neigh add 10.78.{number}.1 lladdr {} dev t{number} nud permanent",
            text(*gateway),
            text(mac(number))
        ));
    }
    router.run("sysctl -qw net.ipv4.ip_forward=1");
    let mut daemons = [0, 1].map(|number| daemon(&router, number, &format!("tap=t{number}")));
    let guests = [0, 1].map(|number| guest(&daemons[number], number, first_of(number)));
    let setup = Setup { region: 2 << 20, ..Setup::default() };
    let ends = guests.each_ref().map(|guest| Endpoint::new(guest, setup));
    for (own, peer) in [(0, 1), (1, 0)] {
        ends[own].connect(gateways[own], ends[peer].qpn, |attr| {
            (attr.timeout, attr.retry_cnt) = (16, 7);
            (attr.av.dgid, attr.av.sgid_index) = (first_of(peer), 1.into());
        });
    }
    let mut pairs = [ends];
    for round in 0..3 {
        post(&mut pairs, round);
        finish(&mut pairs, round);
    }
    daemons.iter_mut().for_each(Daemon::check);
}
