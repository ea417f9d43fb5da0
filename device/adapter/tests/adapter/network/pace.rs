//! The ceilings of a function, on every path of its messages.
//!
//! Shows: resources

use std::num::NonZeroU64;

use vrnic_abi::cq::Status;
use vrnic_abi::qp::{Attr, AttrMask, Type};
use vrnic_abi::sq::Opcode;
use vrnic_adapter::objects::pace::Ceilings;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::stream;
use vrnic_testdriver::wr::Wr;

use crate::bus::Endpoint;
use crate::messages::datagrams::{datagram, ipv4, path, ready, set_gids};
use crate::network::streams::ends::MS;
use crate::network::streams::pairs::Daemon;

/// Number of work requests in a test.
const REQUESTS: u64 = 50;
/// Length of a message.
const LEN: u32 = 1000;

/// A way to connect two endpoints.
type Connect = fn(&Daemon) -> [Endpoint; 2];

/// Returns an endpoint of each guest, with room for all work requests.
fn ends(daemon: &Daemon, kind: Type) -> [Endpoint; 2] {
    let setup = Setup { kind, log_wqes: 6, ..Setup::default() };
    daemon.guests.each_ref().map(|guest| Endpoint::new(guest, setup))
}

fn roce(daemon: &Daemon) -> [Endpoint; 2] {
    let ends = ends(daemon, Type::Rc);
    Endpoint::connect_pair(&ends[0], &ends[1]);
    ends
}

fn iwarp(daemon: &Daemon) -> [Endpoint; 2] {
    let ends = ends(daemon, Type::Rc);
    stream::connect_pair(&ends[0], &ends[1]);
    ends
}

fn unreliable(daemon: &Daemon) -> [Endpoint; 2] {
    for (guest, number) in daemon.guests.iter().zip(1..) {
        set_gids(guest, number);
    }
    let ends = ends(daemon, Type::Ud);
    ends.iter().for_each(ready);
    ends
}

/// Returns a message from the first of two ends to the second.
fn message([from, to]: &[Endpoint; 2], opcode: Opcode) -> Wr {
    let data = [from.sge(0, LEN)];
    if from.kind == Type::Ud {
        return datagram(&data, path(&to.guest, to.qpn, ipv4(2)));
    }
    Wr::new(opcode, &data).to(to.buffer, to.key)
}

/// Returns how many of these requests of the first end have been completed.
fn completed(ends: &mut [Endpoint; 2]) -> u64 {
    let mut count = 0;
    while let Some(done) = ends[0].send_cq.poll() {
        assert_eq!(done.status, Status::Success as u8);
        count += 1;
    }
    count
}

/// A limit of 1000 messages per second.
#[derive(Clone, Copy, Debug)]
enum Limit {
    Messages,
    Bytes,
    /// That of the queue pair.
    Queue,
}

impl Limit {
    /// Sets or removes it.
    fn apply(self, daemon: &Daemon, end: &Endpoint, on: bool) {
        let per_second = |number| NonZeroU64::new(if on { number } else { 0 });
        let bytes = 1000 * u64::from(LEN);
        let ceilings = match self {
            Self::Messages => Ceilings { messages: per_second(1000), ..Ceilings::default() },
            Self::Bytes => Ceilings { bytes: per_second(bytes), ..Ceilings::default() },
            Self::Queue => {
                let kilobits = if on { 8 * LEN } else { 0 };
                let attr = Attr { rate_limit: kilobits.into(), ..Attr::default() };
                end.guest.modify_qp(end.qpn, AttrMask::RATE_LIMIT, &attr).expect("MODIFY_QP");
                assert_eq!(
                    end.guest.query_qp(end.qpn).expect("QUERY_QP").rate_limit.get(),
                    kilobits
                );
                return;
            }
        };
        daemon.guests[0].adapter.limit_pace(ceilings);
    }
}

#[test]
fn messages_wait_for_the_limit_on_every_path() {
    use Limit::{Bytes, Messages, Queue};
    let ways: [(&str, Connect, &[Opcode]); 3] = [
        ("RoCE", roce, &[Opcode::Write, Opcode::Read]),
        ("iWARP", iwarp, &[Opcode::Write, Opcode::Read]),
        ("datagrams", unreliable, &[Opcode::Send]),
    ];
    for (name, connect, opcodes) in ways {
        for (packets, limit) in [false, true]
            .into_iter()
            .flat_map(|packets| [Messages, Bytes, Queue].map(|limit| (packets, limit)))
        {
            for opcode in opcodes {
                let daemon = Daemon::new(packets);
                let mut ends = connect(&daemon);
                daemon.pass(5 * MS);
                limit.apply(&daemon, &ends[0], true);
                for id in 0..REQUESTS {
                    let wr = message(&ends, *opcode).id(id);
                    ends[0].post_send(&wr);
                }
                daemon.pass(20 * MS);
                let what = format!("{name}, packets {packets}, {limit:?}, {opcode:?}");
                let first = completed(&mut ends);
                assert!((18..=22).contains(&first), "{what}: {first} in 20 ms");
                // Messages of the peer do not wait.
                let [a, mut b] = ends;
                if b.kind != Type::Ud {
                    let back = Wr::new(Opcode::Write, &[b.sge(0, LEN)]).to(a.buffer, a.key);
                    b.post_send(&back);
                    daemon.pass(MS);
                    assert!(b.send_cq.poll().is_some(), "{what}: the peer waits, too");
                }
                // Without a limit the rest is executed when its time has come.
                limit.apply(&daemon, &a, false);
                daemon.pass(5 * MS);
                let mut ends = [a, b];
                assert_eq!(first + completed(&mut ends), REQUESTS, "{what}");
            }
        }
    }
}
