//! ATOMIC WRITE and FLUSH, by copy and as packets.
//!
//! Shows: data

use vrnic_abi::cq::{self, Cqe, Status};
use vrnic_abi::qp::{Access, Attr, State};
use vrnic_abi::sq::{Flags, FlushFlags, Opcode};
use vrnic_simlink::Faults;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{ALL, Setup};
use vrnic_testdriver::wr::Wr;

use crate::bus::Endpoint;
use crate::cable::Cable;
use crate::world::Pair;

/// All rights, with the right to flush.
const RIGHTS: u32 = ALL | Access::FLUSH_GLOBAL.bits();
/// Bytes of the region that the tests use.
const LENGTH: u64 = 1 << 20;

/// Two connected QPs.
enum Ends {
    Copy(Box<Pair>),
    Packets(Box<Cable>, Box<Endpoint>, Box<Endpoint>),
}

impl Ends {
    /// Returns the QPs of both paths. `tune` changes their attributes.
    fn both(tune: impl Fn(&mut Attr) + Copy) -> [Self; 2] {
        let rights = move |attr: &mut Attr| {
            attr.access = RIGHTS.into();
            tune(attr);
        };
        let cable = Cable::new(1, Faults::default());
        let (a, b) = cable.connected(Setup::default(), rights);
        let copy = Self::Copy(Box::new(Pair::with(Setup::default(), rights)));
        [copy, Self::Packets(Box::new(cable), Box::new(a), Box::new(b))]
    }

    fn a(&mut self) -> &mut Endpoint {
        match self {
            Self::Copy(pair) => &mut pair.a,
            Self::Packets(_, a, _) => a,
        }
    }

    fn b(&self) -> &Endpoint {
        match self {
            Self::Copy(pair) => &pair.b,
            Self::Packets(_, _, b) => b,
        }
    }

    /// Returns a key of B's memory with these rights.
    fn key(&self, access: u32) -> u32 {
        let b = self.b();
        let guest = match self {
            Self::Copy(pair) => &pair.gb,
            Self::Packets(cable, ..) => &cable.gb,
        };
        guest.reg_flat(b.pdn, access, b.buffer, LENGTH).expect("MR")
    }

    fn complete(&mut self, wr: &Wr) -> Cqe {
        match self {
            Self::Copy(pair) => pair.complete(wr),
            Self::Packets(cable, a, _) => cable.complete(a, wr),
        }
    }
}

/// Returns an ATOMIC WRITE of the first word of A to offset `at` of B.
fn atomic_write(ends: &mut Ends, at: u64, key: u32) -> Wr {
    let to = ends.b().buffer + at;
    Wr::new(Opcode::AtomicWrite, &[ends.a().sge(0, 8)]).to(to, key)
}

/// Returns a FLUSH of memory of B.
fn flush(ends: &Ends, flags: FlushFlags, at: u64, length: u64, key: u32) -> Wr {
    Wr::new(Opcode::Flush, &[]).atomic(flags.bits(), length).to(ends.b().buffer + at, key)
}

#[test]
fn an_atomic_write_stores_a_word() {
    for mut ends in Ends::both(|_| {}) {
        let key = ends.key(ALL);
        ends.b().fill(56, &[0xee; 24]);
        ends.a().fill(0, b"8 bytes!");
        let wr = atomic_write(&mut ends, 64, key);
        let done = ends.complete(&wr);
        assert_eq!((status(&done), done.byte_len.get()), (Status::Success, 0));
        assert_eq!(done.opcode, cq::Opcode::AtomicWrite as u8);
        assert_eq!(ends.b().bytes(64, 8), b"8 bytes!");
        let inline = Wr { sges: vec![], ..wr }.inline(b"in entry");
        assert_eq!(status(&ends.complete(&inline)), Status::Success);
        assert_eq!(ends.b().bytes(56, 8), [0xee; 8]);
        assert_eq!(ends.b().bytes(64, 8), b"in entry");
        assert_eq!(ends.b().bytes(72, 8), [0xee; 8]);
    }
}

#[test]
fn a_flush_of_a_range_and_of_a_region_succeeds() {
    for mut ends in Ends::both(|_| {}) {
        let key = ends.key(RIGHTS);
        for (flags, at, length) in [
            (FlushFlags::GLOBAL, 0, LENGTH),
            (FlushFlags::GLOBAL, 100, 0),
            // Address and length have no meaning.
            (FlushFlags::GLOBAL | FlushFlags::REGION, LENGTH + 5, u64::from(u32::MAX)),
        ] {
            let wr = flush(&ends, flags, at, length, key);
            let done = ends.complete(&wr);
            assert_eq!((status(&done), done.byte_len.get()), (Status::Success, 0), "{flags:?}");
            assert_eq!(done.opcode, cq::Opcode::Flush as u8);
        }
    }
}

/// The word of an ATOMIC WRITE is stored after the bytes of a WRITE and a FLUSH before it, and they
/// complete in order.
#[test]
fn they_are_executed_after_earlier_writes() {
    const BYTES: usize = 300_000;
    for mut ends in Ends::both(|_| {}) {
        let key = ends.key(RIGHTS);
        let data: Vec<u8> = (0..BYTES).map(|at| (at * 7) as u8).collect();
        ends.a().fill(0, &data);
        let to = ends.b().buffer;
        let write = Wr::new(Opcode::Write, &[ends.a().sge(0, BYTES as u32)]).to(to, key);
        ends.a().post_send(&write.flags(Flags::empty()));
        let wr = flush(&ends, FlushFlags::GLOBAL, 0, BYTES as u64, key).flags(Flags::empty());
        ends.a().post_send(&wr);
        let wr = atomic_write(&mut ends, BYTES.next_multiple_of(8) as u64, key).id(3);
        let done = ends.complete(&wr);
        assert_eq!((status(&done), done.wr_id.get()), (Status::Success, 3));
        assert_eq!(ends.b().bytes(0, BYTES), data);
        assert_eq!(ends.b().bytes(BYTES.next_multiple_of(8) as u64, 8), data[..8]);
    }
}

/// Checks that a work request fails with `expected`, and that memory of B does not change.
fn fails(tune: impl Fn(&mut Attr) + Copy, wr: impl Fn(&mut Ends) -> Wr, expected: Status) {
    for mut ends in Ends::both(tune) {
        ends.b().fill(0, &[0x77; 80]);
        let wr = wr(&mut ends);
        assert_eq!(status(&ends.complete(&wr)), expected, "{wr:?}");
        assert_eq!(ends.a().state(), State::Err);
        assert_eq!(ends.b().bytes(0, 80), [0x77; 80]);
    }
}

#[test]
fn malformed_atomic_writes_and_flushes_fail_at_the_requester() {
    let bad = Status::LocQpOpErr;
    let length = |length| {
        move |ends: &mut Ends| {
            let key = ends.key(RIGHTS);
            Wr { sges: vec![ends.a().sge(0, length)], ..atomic_write(ends, 0, key) }
        }
    };
    for len in [0, 4, 7, 9, 16] {
        fails(|_| {}, length(len), Status::LocLenErr);
    }
    let two = |ends: &mut Ends| {
        let sges = vec![ends.a().sge(0, 4), ends.a().sge(4, 4)];
        Wr { sges, ..atomic_write(ends, 0, 0) }
    };
    fails(|_| {}, two, bad);
    fails(|_| {}, |ends| atomic_write(ends, 0, 0).inline(&[1; 9]), Status::LocLenErr);
    for flags in [0, 4, 1 | 1 << 5, FlushFlags::REGION.bits()] {
        let flags = FlushFlags::from_bits_retain(flags);
        fails(|_| {}, move |ends| flush(ends, flags, 0, 8, ends.key(RIGHTS)), bad);
    }
    fails(|_| {}, |ends| flush(ends, FlushFlags::GLOBAL, 0, 1 << 32, ends.key(RIGHTS)), bad);
    let with_data = |ends: &mut Ends| {
        let sges = vec![ends.a().sge(0, 8)];
        Wr { sges, ..flush(ends, FlushFlags::GLOBAL, 0, 8, ends.key(RIGHTS)) }
    };
    fails(|_| {}, with_data, bad);
    let none = |attr: &mut Attr| attr.max_rd_atomic = 0;
    fails(none, |ends| atomic_write(ends, 0, ends.key(RIGHTS)), bad);
    fails(none, |ends| flush(ends, FlushFlags::GLOBAL, 0, 8, ends.key(RIGHTS)), bad);
}

#[test]
fn keys_without_the_right_or_the_memory_are_refused() {
    let access = Status::RemAccessErr;
    let all = FlushFlags::GLOBAL;
    fails(|_| {}, |ends| atomic_write(ends, 0, ends.key(RIGHTS) ^ 1), access);
    fails(|_| {}, |ends| atomic_write(ends, LENGTH, ends.key(RIGHTS)), access);
    let no_write = RIGHTS & !Access::REMOTE_WRITE.bits();
    fails(|_| {}, move |ends| atomic_write(ends, 0, ends.key(no_write)), access);
    for flags in [all, all | FlushFlags::REGION] {
        fails(|_| {}, move |ends| flush(ends, flags, 0, 8, ends.key(RIGHTS) ^ 1), access);
        fails(|_| {}, move |ends| flush(ends, flags, 0, 8, ends.key(ALL)), access);
    }
    fails(|_| {}, move |ends| flush(ends, all, LENGTH - 7, 8, ends.key(RIGHTS)), access);
    // The key of a FLUSH of no bytes is checked, too.
    fails(|_| {}, move |ends| flush(ends, all, 0, 0, ends.key(RIGHTS) ^ 1), access);
}

#[test]
fn what_the_responder_does_not_enable_is_invalid() {
    let invalid = Status::RemInvReqErr;
    let all = FlushFlags::GLOBAL;
    fails(|_| {}, |ends| atomic_write(ends, 4, ends.key(RIGHTS)), invalid);
    let no_write = |attr: &mut Attr| attr.access = Access::FLUSH_GLOBAL.bits().into();
    fails(no_write, |ends| atomic_write(ends, 0, ends.key(RIGHTS)), invalid);
    let no_flush = |attr: &mut Attr| attr.access = ALL.into();
    fails(no_flush, move |ends| flush(ends, all, 0, 8, ends.key(RIGHTS)), invalid);
    // There is no persistent memory: a QP may have the right, but a region never does.
    let both = all | FlushFlags::PERSISTENT;
    let right = Access::FLUSH_PERSISTENT.bits();
    let persistent = move |attr: &mut Attr| attr.access = (RIGHTS | right).into();
    for flags in [FlushFlags::PERSISTENT, both, both | FlushFlags::REGION] {
        fails(|_| {}, move |ends| flush(ends, flags, 0, 8, ends.key(RIGHTS)), invalid);
        let wr = move |ends: &mut Ends| flush(ends, flags, 0, 8, ends.key(RIGHTS | right));
        fails(persistent, wr, Status::RemAccessErr);
    }
    let none = |attr: &mut Attr| attr.max_dest_rd_atomic = 0;
    fails(none, |ends| atomic_write(ends, 0, ends.key(RIGHTS)), invalid);
    fails(none, move |ends| flush(ends, all, 0, 8, ends.key(RIGHTS)), invalid);
}
