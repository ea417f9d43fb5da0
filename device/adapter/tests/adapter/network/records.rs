//! The records of connections by INSPECT.
//!
//! Shows: views

use vrnic_abi::admin::{Carried, ConnectionRecord, Inspected, NONE, TcpState};
use vrnic_abi::connection::START_HEADER;
use vrnic_abi::cq::Status;
use vrnic_abi::qp::NO_VLAN;
use vrnic_abi::sq::Opcode;
use vrnic_simlink::Faults;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::stream;
use vrnic_testdriver::wr::Wr;

use crate::bus::{Endpoint, Guest};
use crate::cable::Cable;
use crate::control::inspect::{all, list};
use crate::network::streams::ends::{MS, connected, lose, pass};
use crate::network::toe;
use crate::world::Pair;

/// Returns the only connection of a guest.
fn only(guest: &Guest) -> ConnectionRecord {
    let records: Vec<ConnectionRecord> = all(guest, Inspected::Connection);
    let [record] = records[..] else { panic!("{records:?}") };
    record
}

/// Returns an IPv4 address as records have it.
fn ipv4(last: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, last]
}

/// Lets A write `len` bytes to B.
fn write(cable: &Cable, a: &mut Endpoint, b: &Endpoint, len: u32) {
    let wr = Wr::new(Opcode::Write, &[a.sge(0, len)]).to(b.buffer, b.key);
    assert_eq!(status(&cable.complete(a, &wr)), Status::Success);
}

#[test]
fn a_connection_shows_what_people_look_for_when_it_is_slow() {
    let cable = Cable::new(1, Faults::default());
    let (mut a, b) = connected(&cable);
    write(&cable, &mut a, &b, 100_000);
    pass(&cable, 100 * MS);
    let [at_a, at_b] = [only(&cable.ga), only(&cable.gb)];
    assert_eq!((at_a.qpn.get(), at_a.context.get()), (a.qpn, a.context));
    assert_eq!((at_a.carried, at_a.state), (Carried::Iwarp as u8, TcpState::Established as u8));
    assert_eq!((at_a.ip, at_a.local, at_a.remote), (4, ipv4(1), ipv4(2)));
    assert_eq!((at_b.local, at_b.remote), (at_a.remote, at_a.local));
    assert_eq!((at_b.local_port, at_b.remote_port), (at_a.remote_port, at_a.local_port));
    assert_eq!((at_a.vlan.get(), at_a.hop_limit, at_a.mss.get()), (NO_VLAN, 64, stream::MSS));
    // A frame takes 2 µs from one end to the other.
    assert!((4..1_000_000).contains(&at_a.rtt.get()), "{at_a:?}");
    assert!(at_a.rto > at_a.rtt && at_a.cwnd.get() >= u32::from(stream::MSS), "{at_a:?}");
    assert!(at_a.bytes_sent.get() > 100_000 && at_a.segs_out.get() > 60, "{at_a:?}");
    // B's kernel has read the request in the start frame.
    let request = START_HEADER as u64 + 4;
    let received = at_b.bytes_received.get() + request;
    assert_eq!((at_a.bytes_acked, received), (at_a.bytes_sent, at_a.bytes_sent.get()));
    assert_eq!((at_a.unacked.get(), at_a.retrans.get(), at_a.retries), (0, 0, 0));
    assert!(at_a.age.get() >= 100 && at_a.snd_wnd.get() > 0 && at_b.rcv_wnd.get() > 0);

    lose(&cable, true);
    a.post_send(&Wr::new(Opcode::Write, &[a.sge(0, 5000)]).to(b.buffer, b.key));
    pass(&cable, 3000 * MS);
    let stuck = only(&cable.ga);
    assert!(stuck.unacked.get() >= 5000 && stuck.bytes_acked == at_a.bytes_acked, "{stuck:?}");
    assert!(stuck.retries > 0 && stuck.retries <= stuck.retry_limit, "{stuck:?}");
    assert!(stuck.retrans > at_a.retrans && stuck.timeouts > at_a.timeouts, "{stuck:?}");
    assert!(stuck.rto > at_a.rto && stuck.cwnd < at_a.cwnd, "{stuck:?}");
}

#[test]
fn a_connection_of_bytes_has_a_record() {
    let cable = toe::cable(1, Faults::default());
    let (mut a, b) = toe::connected(&cable, true);
    let mut b = b;
    b.post_recv(0, &[b.sge(0, 100)]);
    toe::send(&mut a, 0, 100);
    pass(&cable, 100 * MS);
    let [at_a, at_b] = [only(&cable.ga), only(&cable.gb)];
    assert_eq!((at_a.carried, at_a.bytes_acked.get()), (Carried::Bytes as u8, 100));
    assert_eq!((at_b.qpn.get(), at_b.bytes_received.get()), (b.qpn, 100));
}

#[test]
fn a_connection_of_packets_has_what_applies_to_it() {
    let cable = Cable::new(1, Faults::default());
    let (mut a, b) = cable.connected(Setup::default(), |attr| attr.retry_cnt = 7);
    write(&cable, &mut a, &b, 100_000);
    let record = only(&cable.ga);
    assert_eq!((record.qpn.get(), record.carried, record.state), (a.qpn, Carried::Roce as u8, 0));
    assert_eq!((record.remote_port.get(), record.retry_limit, record.retries), (4791, 7, 0));
    assert!(record.segs_out.get() >= 25 && record.rtt.get() < 1_000_000, "{record:?}");
    assert_eq!((record.ssthresh.get(), record.snd_wnd.get()), (NONE, NONE));
    lose(&cable, true);
    a.post_send(&Wr::new(Opcode::Write, &[a.sge(0, 5000)]).to(b.buffer, b.key));
    cable.run_until(|| only(&cable.ga).timeouts.get() > 1);
    let stuck = only(&cable.ga);
    assert!(stuck.unacked.get() >= 2 && stuck.retries >= 1, "{stuck:?}");
}

#[test]
fn connections_are_listed_in_pieces() {
    let cable = Cable::new(1, Faults::default());
    let pairs: Vec<_> = (0..3).map(|_| cable.connected(Setup::default(), |_| {})).collect();
    let size = size_of::<ConnectionRecord>() as u32;
    let (mut from, mut found) = (0, Vec::new());
    while from != NONE {
        let (records, next) =
            list::<ConnectionRecord>(&cable.ga, Inspected::Connection, from, size);
        found.extend(records.iter().map(|record| record.qpn.get()));
        from = next;
    }
    let mut known: Vec<_> = pairs.iter().map(|(a, _)| a.qpn).collect();
    known.sort_unstable();
    assert_eq!(found, known);
    // Messages to a guest of the same daemon are copied: there is no connection.
    let p = Pair::local(Setup::default(), |_| {});
    assert!(all::<ConnectionRecord>(&p.ga, Inspected::Connection).is_empty());
}
