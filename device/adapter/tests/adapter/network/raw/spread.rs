//! QPs that spread frames over work queues.
//!
//! Shows: raw

use std::mem::offset_of;
use std::net::IpAddr;

use vrnic_abi::Qpn;
use vrnic_abi::admin::{CreateQp, Opcode as Admin, QpFlags, Status};
use vrnic_abi::flow::{Flags, Kind, Rule};
use vrnic_abi::qp::{State, Type};
use vrnic_abi::rss::{ENTRIES_MAX, Fields, KEY_LEN, LOG_ENTRIES_MAX, Spread};
use vrnic_adapter::ethernet::{Frame, Offered};
use vrnic_adapter::limits::Limits;
use vrnic_adapter::limits::resource::Resource;
use vrnic_packet::ip::Protocol;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::flow::{rule, table};
use vrnic_testdriver::qp::Setup;

use super::frames::{Packet, V4, V6, mac, plain};
use super::{endpoint, expect, received, to_mac};
use crate::bus::{Endpoint, Guest};
use crate::world::World;

/// All fields together.
const ALL: Fields = Fields::all();

fn key() -> [u8; KEY_LEN] {
    std::array::from_fn(|at| (at as u8).wrapping_mul(73) ^ 0x5a)
}

/// Returns the Toeplitz hash of bytes, a bit at a time: bit `n` of the input selects the 32 bits of
/// the key that begin at bit `n`.
fn toeplitz(input: &[u8]) -> u32 {
    let bit = |bytes: &[u8], at: usize| u32::from(bytes[at / 8] >> (7 - at % 8) & 1);
    let word = |from| (from..from + 32).fold(0, |word, at| word << 1 | bit(&key(), at));
    (0..8 * input.len()).filter(|at| bit(input, *at) == 1).fold(0, |hash, at| hash ^ word(at))
}

/// Returns the hash of a packet's addresses and ports.
fn hash_of(packet: &Packet) -> u32 {
    let mut input = Vec::new();
    for address in packet.addresses {
        match address {
            IpAddr::V4(address) => input.extend(address.octets()),
            IpAddr::V6(address) => input.extend(address.octets()),
        }
    }
    input.extend(packet.ports.iter().flat_map(|port| port.to_be_bytes()));
    toeplitz(&input)
}

/// A guest with work queues, and a QP that spreads frames over them.
struct Rig {
    world: World,
    guest: Guest,
    /// The endpoint that all others are beside.
    base: Endpoint,
    queues: Vec<Endpoint>,
    qpn: u32,
}

impl Rig {
    /// Creates work queues, and a QP with a table of them in turn.
    fn new(queues: usize, entries: usize, fields: Fields) -> Self {
        Self::with_limits(queues, entries, fields, Limits::default())
    }

    fn with_limits(queues: usize, entries: usize, fields: Fields, limits: Limits) -> Self {
        let world = World::default();
        let guest = world.guest_with(2, 1, limits);
        let base = endpoint(&guest);
        let queues: Vec<Endpoint> = (0..queues).map(|_| base.work_queue()).collect();
        let qpns: Vec<u32> = queues.iter().cycle().take(entries).map(|queue| queue.qpn).collect();
        let params = base.spread_params(&table(fields, key(), &qpns));
        let (qpn, ..) = guest.create_qp(&params).expect("CREATE_QP");
        let mut rig = Self { world, guest, base, queues, qpn };
        rig.queues.iter_mut().for_each(|queue| expect(queue, 0, 2048));
        rig
    }

    fn add_flow(&self, rule: &Rule) -> u32 {
        self.base.add_flow_of(self.qpn, rule).expect("CREATE_FLOW")
    }

    /// Brings a frame. Returns the work queues that receive it.
    fn bring(&mut self, frame: &[u8]) -> Vec<usize> {
        let _whose = self.guest.adapter.offer(Frame::copy(frame));
        self.world.settle(&[&self.guest]);
        let mut takers = Vec::new();
        for (nth, queue) in self.queues.iter_mut().enumerate() {
            while let Some((bytes, cqe)) = received(queue) {
                assert_eq!((bytes.as_slice(), cqe.qpn.get()), (frame, queue.qpn));
                takers.push(nth);
                expect(queue, 0, 2048);
            }
        }
        takers
    }

    fn destroy(&self, qpn: u32) -> Result<(), Refused> {
        self.guest.on_object(Admin::DestroyQp, qpn).map(drop)
    }

    /// Tries to create a QP that spreads, with changed parameters and a changed table.
    fn create(
        &self,
        change: impl FnOnce(&mut CreateQp),
        tune: impl FnOnce(&mut Spread),
    ) -> Result<u32, Refused> {
        let mut table = table(ALL, key(), &[self.queues[0].qpn]);
        tune(&mut table);
        let mut params = self.base.spread_params(&table);
        change(&mut params);
        self.guest.create_qp(&params).map(|(qpn, ..)| qpn)
    }
}

fn packets() -> impl Iterator<Item = Packet> {
    (0..160u16).map(|nth| Packet {
        addresses: if nth % 2 == 0 { V4 } else { V6 },
        protocol: if nth % 3 == 0 { Protocol::TCP } else { Protocol::UDP },
        ports: [nth * 251, 2000 + nth],
        ..Packet::default()
    })
}

#[test]
fn frames_go_to_the_queue_that_the_hash_selects() {
    let mut rig = Rig::new(4, 8, ALL);
    rig.add_flow(&to_mac(mac(2)));
    let mut counts = [0; 4];
    for packet in packets() {
        let queue = hash_of(&packet) as usize % 8 % 4;
        assert_eq!(rig.bring(&packet.frame(b"data")), [queue], "{packet:?}");
        counts[queue] += 1;
    }
    assert!(counts.iter().all(|count| (20..60).contains(count)), "{counts:?}");
}

#[test]
fn a_table_of_the_largest_size() {
    let mut rig = Rig::new(3, ENTRIES_MAX, ALL);
    rig.add_flow(&rule(Kind::AllDefault));
    for packet in packets() {
        let queue = hash_of(&packet) as usize % ENTRIES_MAX % 3;
        assert_eq!(rig.bring(&packet.frame(&[])), [queue], "{packet:?}");
    }
}

/// Only the fields that are named, and that a frame has, are hashed.
#[test]
fn other_fields_have_no_effect() {
    let mut rig = Rig::new(4, 4, Fields::SRC_PORT_UDP);
    rig.add_flow(&rule(Kind::AllDefault));
    for packet in packets() {
        let queue = match packet.protocol {
            Protocol::UDP => toeplitz(&packet.ports[0].to_be_bytes()) as usize % 4,
            _ => 0,
        };
        assert_eq!(rig.bring(&packet.frame(b"data")), [queue], "{packet:?}");
    }
    assert_eq!(rig.bring(&plain(mac(2), 60)), [0]);
    let mut first = Packet { ports: [1, 2], ..Packet::default() }.frame(b"data");
    assert_ne!(toeplitz(&[0, 1]) as usize % 4, 0, "the port would select another queue");
    // More fragments follow.
    first[20] = 0x20;
    assert_eq!(rig.bring(&first), [0], "the ports of the first fragment do not count");
}

#[test]
fn sniffers_and_rules_that_do_not_trap_spread_frames_too() {
    let mut rig = Rig::new(2, 2, ALL);
    rig.add_flow(&rule(Kind::Sniffer));
    let mut seen = [0; 2];
    for packet in packets() {
        let queue = hash_of(&packet) as usize % 2;
        assert_eq!(rig.bring(&packet.frame(b"data")), [queue]);
        seen[queue] += 1;
    }
    assert!(seen[0] > 0 && seen[1] > 0);
    let passing = Rule { flags: Flags::DONT_TRAP.bits(), ..to_mac(mac(2)) };
    rig.add_flow(&passing);
    let packet = Packet::default();
    let queue = hash_of(&packet) as usize % 2;
    assert_eq!(rig.bring(&packet.frame(b"data")), [queue; 1], "the second finds no receive");
    assert_eq!(rig.guest.stats().rx_raw_discards.get(), 1);
    let offered = rig.guest.adapter.offer(Frame::new(packet.frame(b"data")));
    assert!(matches!(offered, Offered::Other(_)), "the network card gets it, too");
}

#[test]
fn a_queue_that_is_not_ready_loses_its_frames_and_no_others() {
    let mut rig = Rig::new(2, 2, ALL);
    rig.add_flow(&to_mac(mac(2)));
    rig.queues[1].set_state(State::Err);
    rig.world.settle(&[&rig.guest]);
    while rig.queues[1].recv_cq.poll().is_some() {}
    let mut lost = 0;
    for packet in packets() {
        let queue = hash_of(&packet) as usize % 2;
        let takers = if queue == 0 { vec![0] } else { vec![] };
        assert_eq!(rig.bring(&packet.frame(b"data")), takers);
        lost += queue as u64;
    }
    assert!(lost > 0);
    assert_eq!(rig.guest.stats().rx_raw_discards.get(), lost);
}

#[test]
fn queues_are_destroyed_after_the_tables_that_name_them() {
    let rig = Rig::new(2, 4, ALL);
    let second = rig.create(|_| {}, |_| {}).expect("a second table");
    let flow = rig.add_flow(&rule(Kind::AllDefault));
    let [first_queue, second_queue] = [0, 1].map(|nth| rig.queues[nth].qpn);
    let busy = Err(Refused(Status::Busy, 0));
    for qpn in [first_queue, second_queue, rig.qpn] {
        assert_eq!(rig.destroy(qpn), busy);
    }
    rig.guest.destroy_flow(flow).expect("DESTROY_FLOW");
    rig.destroy(rig.qpn).expect("DESTROY_QP");
    rig.destroy(second_queue).expect("no table names it any more");
    assert_eq!(rig.destroy(first_queue), busy);
    rig.destroy(second).expect("DESTROY_QP");
    rig.destroy(first_queue).expect("DESTROY_QP");
}

#[test]
fn bad_parameters_are_refused_and_change_nothing() {
    let rig = Rig::new(1, 1, ALL);
    rig.destroy(rig.qpn).expect("DESTROY_QP");
    let count = || rig.guest.adapter.actual(Resource::Qp);
    let before = count();
    let bad = |at| Err(Refused(Status::BadParam, at as u32));
    let change = |change: &dyn Fn(&mut CreateQp)| rig.create(change, |_| {});
    for (got, at) in [
        (change(&|p| p.qp_type = Type::Ud as u8), offset_of!(CreateQp, flags)),
        (change(&|p| p.flags |= QpFlags::SQ_IN_DEVICE.bits()), offset_of!(CreateQp, flags)),
        (change(&|p| p.sq_log_size = 4), offset_of!(CreateQp, sq_log_size)),
        (change(&|p| p.rq_log_size = 4), offset_of!(CreateQp, rq_log_size)),
        (change(&|p| p.rq_page_shift = 12), offset_of!(CreateQp, rq_page_shift)),
        (change(&|p| p.rq_levels = 1), offset_of!(CreateQp, rq_levels)),
        (change(&|p| p.rq_table = (p.rq_table.get() + 4).into()), offset_of!(CreateQp, rq_table)),
    ] {
        assert_eq!(got, bad(at));
    }
    let far = rig.create(|p| p.rq_table = (1 << 60).into(), |_| {});
    assert_eq!(far, Err(Refused(Status::BadAddress, 0)));
    let tune = |tune: &dyn Fn(&mut Spread)| rig.create(|_| {}, tune);
    let entry = |nth| offset_of!(Spread, entries) + nth * size_of::<Qpn>();
    for (got, at) in [
        (tune(&|t| t.fields = (1 << 8).into()), offset_of!(Spread, fields)),
        (tune(&|t| t.log_entries = LOG_ENTRIES_MAX + 1), offset_of!(Spread, log_entries)),
        (tune(&|t| t.log_entries = u8::MAX), offset_of!(Spread, log_entries)),
        (tune(&|t| t.reserved[1] = 1), offset_of!(Spread, reserved) + 1),
        (tune(&|t| t.entries[1] = t.entries[0]), entry(1)),
        (tune(&|t| t.log_entries = 1), entry(1)),
    ] {
        assert_eq!(got, bad(at));
    }
    assert_eq!(count(), before);
    rig.destroy(rig.queues[0].qpn).expect("no table names it");
}

#[test]
fn only_work_queues_of_the_same_pd_are_named() {
    let rig = Rig::new(1, 1, ALL);
    let foreign = endpoint(&rig.guest).work_queue();
    let ud = Endpoint::new(&rig.guest, Setup { kind: Type::Ud, ..Setup::default() });
    for qpn in [9999, u32::MAX, 1, rig.base.qpn, rig.qpn, foreign.qpn, ud.qpn] {
        let got = rig.create(|_| {}, |table| table.entries[0] = qpn.into());
        let at = offset_of!(Spread, entries) as u32;
        assert_eq!(got, Err(Refused(Status::BadParam, at)), "{qpn}");
    }
    rig.destroy(foreign.qpn).expect("no table names it");
}

/// The endpoint, the work queue and the QP that spreads are all QPs of the function.
#[test]
fn the_limit_of_qps_counts_all_of_them() {
    let rig = Rig::with_limits(1, 1, ALL, Limits { qp: 3, ..Limits::default() });
    assert_eq!(rig.guest.adapter.actual(Resource::Qp), Some(3));
    assert_eq!(rig.create(|_| {}, |_| {}), Err(Refused(Status::NoResource, 0)));
    // The refused one does not use the work queue.
    rig.destroy(rig.qpn).expect("DESTROY_QP");
    rig.destroy(rig.queues[0].qpn).expect("no table names it");
}
