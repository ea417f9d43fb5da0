//! Random work requests, rules and frames. Nothing panics, and another pair of QPs goes on.
//!
//! Shows: raw

use proptest::prelude::*;
use vrnic_abi::admin::{Opcode as Admin, QpFlags};
use vrnic_abi::cq::Status;
use vrnic_abi::flow::{Kind, Rule};
use vrnic_abi::rss::Fields;
use vrnic_abi::sq::Opcode;
use vrnic_adapter::ethernet::Frame;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::flow::{self, rule};
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;
use zerocopy::{FromZeros, IntoBytes};

use super::frames::{Packet, V4, V6};
use super::{expect, received};
use crate::bus::Endpoint;
use crate::world::Pair;

/// Returns a work request: mostly a SEND or a SEGMENT, with any bytes after its header.
fn wqe() -> impl Strategy<Value = Vec<u8>> {
    let opcode = prop_oneof![Just(Opcode::Send as u8), Just(Opcode::Segment as u8), any::<u8>()];
    (opcode, 0..32u8, 0..40u16, prop::collection::vec(any::<u8>(), 512)).prop_map(
        |(opcode, flags, count, mut bytes)| {
            (bytes[8], bytes[9]) = (opcode, flags);
            bytes[10..12].copy_from_slice(&count.to_le_bytes());
            bytes
        },
    )
}

/// Returns a frame: any bytes, or a packet with some of its bytes changed, and perhaps cut.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
    let packet = (any::<[bool; 3]>(), 0..300usize, changes, any::<prop::sample::Index>());
    let packet = packet.prop_map(|([six, tagged, cut], len, changes, at)| {
        let addresses = if six { V6 } else { V4 };
        let vlan = tagged.then_some(7);
        let mut bytes = Packet { addresses, vlan, ..Packet::default() }.frame(&vec![3; len]);
        change(&mut bytes, changes);
        if cut {
            bytes.truncate(at.index(bytes.len()));
        }
        bytes
    });
    prop_oneof![prop::collection::vec(any::<u8>(), 0..200), packet]
}

/// Changes bytes at some places.
fn change(bytes: &mut [u8], changes: Vec<(prop::sample::Index, u8)>) {
    for (at, byte) in changes {
        *at.get_mut(bytes) = byte;
    }
}

/// A table of a QP that spreads, as a hostile guest writes it.
#[derive(Debug)]
struct Table {
    log_entries: u8,
    /// Indexes of work queues, and other numbers.
    entries: Vec<u8>,
    /// Bytes of the table, and of the parameters of its QP, that have other values.
    table_bytes: Vec<(prop::sample::Index, u8)>,
    parameter_bytes: Vec<(prop::sample::Index, u8)>,
}

fn table() -> impl Strategy<Value = Table> {
    let changes = || prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    let number = prop_oneof![60 => 0..3u8, 1 => any::<u8>()];
    let entries = prop::collection::vec(number, 0..140);
    let log_entries = prop_oneof![4 => 0..4u8, 1 => any::<u8>()];
    (log_entries, entries, changes(), changes()).prop_map(
        |(log_entries, mut entries, table_bytes, parameter_bytes)| {
            // Mostly there are as many as the number says.
            if table_bytes.len() < 2 {
                entries.resize(1 << log_entries.min(7), 0);
            }
            Table { log_entries, entries, table_bytes, parameter_bytes }
        },
    )
}

proptest! {
    #![proptest_config(vrnic_cases::config(96))]

    #[test]
    fn any_work_requests(sends in prop::collection::vec(wqe(), 1..30)) {
        let mut p = Pair::raw();
        p.b.add_flow(&rule(Kind::AllDefault)).expect("CREATE_FLOW");
        (0..8).for_each(|at| expect(&mut p.b, at * 16_384, 9000));
        let setup = Setup::default();
        let (mut c, mut d) = (Endpoint::new(&p.ga, setup), Endpoint::new(&p.gb, setup));
        Endpoint::connect_pair(&c, &d);
        for mut bytes in sends {
            // Requests with valid keys get further.
            for at in (44..512).step_by(16) {
                if bytes[at] & 3 != 0 {
                    bytes[at..at + 4].copy_from_slice(&p.a.key.to_le_bytes());
                    bytes[at - 12..at - 4].copy_from_slice(&p.a.buffer.to_le_bytes());
                    bytes[at - 2..at].fill(0);
                }
            }
            bytes[28..32].copy_from_slice(&vrnic_abi::stamp(p.a.sq_pi).to_le_bytes());
            p.a.store_encoded(&bytes);
            p.a.ring();
            p.settle();
            while p.sent().is_some() {}
        }
        while received(&mut p.b).is_some() {}
        d.post_recv(1, &[d.sge(0, 64)]);
        c.post_send(&Wr::new(Opcode::Send, &[c.sge(0, 64)]));
        p.settle();
        prop_assert_eq!(status(&c.send_cq.poll().expect("it goes on")), Status::Success);
        prop_assert_eq!(status(&d.recv_cq.poll().expect("it goes on")), Status::Success);
    }

    #[test]
    fn any_rules_and_frames(
        rules in prop::collection::vec(prop::collection::vec((0..136usize, any::<u8>()), 0..6), 1..20),
        frames in prop::collection::vec(frame(), 1..20),
    ) {
        let mut p = Pair::raw();
        (0..8).for_each(|at| expect(&mut p.b, at * 4096, 4096));
        let mut ids = Vec::new();
        for changes in rules {
            let mut rule = Rule::new_zeroed();
            for (at, byte) in changes {
                rule.as_mut_bytes()[at] = byte;
            }
            ids.extend(p.b.add_flow(&rule));
        }
        for bytes in frames {
            let _whose = p.gb.adapter.offer(Frame::new(bytes.clone()));
            p.gb.adapter.sniff(&Frame::new(bytes));
            p.settle();
            while received(&mut p.b).is_some() {}
        }
        for id in ids {
            prop_assert!(p.gb.destroy_flow(id).is_ok());
        }
    }

    /// A table has any bytes, but mostly numbers of work queues. Frames are received by its work
    /// queues alone, all of which can be destroyed after it.
    #[test]
    fn any_tables(
        tables in prop::collection::vec(table(), 1..12),
        frames in prop::collection::vec(frame(), 1..12),
    ) {
        let p = Pair::raw();
        let mut queues = [(); 3].map(|()| p.b.work_queue());
        queues.iter_mut().for_each(|queue| expect(queue, 0, 4096));
        let mut made = Vec::new();
        for Table { log_entries, entries, table_bytes, parameter_bytes } in tables {
            let mut table = flow::table(Fields::all(), [7; 40], &[0]);
            table.log_entries = log_entries;
            for (entry, number) in table.entries.iter_mut().zip(entries) {
                let foreign = [p.b.qpn, p.a.qpn, number.into()];
                let of_queue = queues.get(usize::from(number)).map(|queue| queue.qpn);
                *entry = of_queue.unwrap_or(foreign[usize::from(number) % 3]).into();
            }
            change(table.as_mut_bytes(), table_bytes);
            let mut params = p.b.spread_params(&table);
            change(params.as_mut_bytes(), parameter_bytes);
            if params.flags & QpFlags::SPREADS.bits() == 0 {
                continue;
            }
            if let Ok((qpn, ..)) = p.gb.create_qp(&params) {
                made.push((qpn, p.b.add_flow_of(qpn, &rule(Kind::AllDefault))));
            }
        }
        for bytes in frames {
            let _whose = p.gb.adapter.offer(Frame::new(bytes));
            p.settle();
            while queues.iter_mut().any(|queue| received(queue).is_some()) {}
        }
        for (qpn, flow) in made {
            let _none = flow.map(|flow| p.gb.destroy_flow(flow));
            prop_assert!(p.gb.on_object(Admin::DestroyQp, qpn).is_ok());
        }
        for queue in &queues {
            prop_assert!(p.gb.on_object(Admin::DestroyQp, queue.qpn).is_ok());
        }
    }
}
