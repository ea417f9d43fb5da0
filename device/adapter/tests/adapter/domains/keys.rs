//! Keys in work requests of A, and in messages of its peer B: by RoCE, which copies messages or
//! sends packets as the environment says, and by TCP connections in both ways.
//!
//! Shows: hostile: keys of other functions, in work requests and messages
//!
//! The PDs of A and C have the same number, so the check of the PD does not tell the keys apart.

use std::sync::atomic::Ordering;

use vrnic_abi::admin::{MwType, TagForm};
use vrnic_abi::cq::Status;
use vrnic_abi::sq::{Class, CommandFlags, Opcode, Sge};
use vrnic_adapter::memory::tpt::Denied;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{ALL, Setup};
use vrnic_testdriver::stream;
use vrnic_testdriver::wr::{Wr, sge};

use super::function::Picture;
use crate::bus::{Endpoint, Guest};
use crate::memory::commands::command;
use crate::memory::keys::{
    BINDABLE, PAGE, REMOTE, alloc_mr, alloc_mw, bind, local_inv, reg, reg_seg,
};
use crate::network::streams::ends::MS;
use crate::world::{World, told_by_peer};

/// The way of the messages between A and B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By RoCE, copied or as packets.
    Roce,
    /// By TCP, copied.
    Copied,
    /// By TCP, in segments.
    Segments,
}

const WAYS: [Way; 3] = [Way::Roce, Way::Copied, Way::Segments];

/// The keys of a function, which has one of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) region: u32,
    /// A region that a work request has registered.
    pub(super) fast: u32,
    /// A region that a work request can register.
    pub(super) idle_fast: u32,
    /// A window of type 2 that is bound to `region`.
    pub(super) window: u32,
    /// A window that is not bound.
    pub(super) idle_window: u32,
    /// A command that waits for a response.
    pub(super) command: u32,
    /// The address of the memory of all of them.
    pub(super) addr: u64,
}

/// A is connected with B. C has a QP that is connected with itself.
pub(super) struct Scene {
    world: World,
    pub(super) guests: [Guest; 3],
    pub(super) a: Endpoint,
    b: Endpoint,
    own: Keys,
    pub(super) foreign: Keys,
    pub(super) picture: Picture,
}

impl Scene {
    /// Creates A, B and C. C has so many other keys.
    pub(super) fn new(way: Way, others: u32) -> Self {
        let world = if way == Way::Roce { World::default() } else { World::copying() };
        if way == Way::Segments {
            world.fabric.use_packets_only();
        }
        let guests = [1, 2, 3].map(|number| world.guest(number));
        let form = if way == Way::Roce { TagForm::General } else { TagForm::None };
        let plain = Setup { kernel: true, region: 64 * PAGE, ..Setup::default() };
        let setup = Setup { tags: (form, 0), ..plain };
        let end = |guest: usize, setup| Endpoint::new(&guests[guest], setup);
        let (mut a, mut b, mut c) = (end(0, setup), end(1, plain), end(2, setup));
        assert_eq!((a.pdn, a.qpn, a.buffer), (c.pdn, c.qpn, c.buffer));
        let mut neighbour = c.beside(|_| {});
        Endpoint::connect_pair(&c, &neighbour);
        match way {
            Way::Roce => Endpoint::connect_pair(&a, &b),
            Way::Copied | Way::Segments => stream::connect_pair(&a, &b),
        }
        for _ in 0..others {
            guests[2].reg_flat(c.pdn, ALL, c.buffer, PAGE).expect("REG_MR");
        }
        let pass = || pass(&world, &guests);
        pass();
        let own = keys(&mut a, &mut b, form, pass);
        let foreign = keys(&mut c, &mut neighbour, form, pass);
        for id in 0..2 {
            b.post_recv(id, &[b.sge(id * 64, 64)]);
            a.post_recv(id, &[a.sge(id * 64, 64)]);
        }
        let picture = Picture::of(&guests[2]);
        Self { world, guests, a, b, own, foreign, picture }
    }

    /// Checks that C is as it was.
    fn check(&self, what: &str) {
        self.picture.check(&self.guests[2], what);
    }
}

/// Runs the adapters for a second of the clock.
pub(super) fn pass(world: &World, guests: &[Guest; 3]) {
    let now = || world.clock.load(Ordering::Acquire);
    let end = now() + 1000 * MS;
    while now() < end {
        let polls = guests.each_ref().map(|guest| guest.adapter.poll(0));
        if polls.iter().any(|polled| polled.busy) {
            continue;
        }
        let next = polls.iter().filter_map(|polled| polled.deadline).map(|at| at.0).min();
        world.clock.fetch_max(next.unwrap_or(end).min(end), Ordering::AcqRel);
    }
}

/// Creates a key of each kind. If messages of `end` have tags of this form, it sends a command to
/// its peer.
fn keys(end: &mut Endpoint, peer: &mut Endpoint, form: TagForm, pass: impl Fn()) -> Keys {
    let (guest, pdn) = (end.guest.clone(), end.pdn);
    let addr = end.buffer + 16 * PAGE;
    let region = guest.reg_flat(pdn, BINDABLE, addr, PAGE).expect("REG_MR");
    let [fast, idle_fast] = [(); 2].map(|()| alloc_mr(&guest, pdn, 1));
    let [window, idle_window] = [(); 2].map(|()| alloc_mw(&guest, pdn, MwType::Type2));
    let pages = reg_seg(&guest, &[addr], PAGE, ALL);
    let mut requests = vec![reg(fast, addr, &pages), bind(window, region, addr, PAGE, REMOTE)];
    if form != TagForm::None {
        peer.post_recv(9, &[peer.sge(128, 64)]);
        requests.push(to_command(addr, region));
    }
    let mut command = 0;
    for request in requests {
        end.post_send(&request);
        pass();
        let cqe = end.send_cq.poll().expect("a completion");
        assert_eq!(status(&cqe), Status::Success);
        command = cqe.key.get();
    }
    while peer.recv_cq.poll().is_some() {}
    Keys { region, fast, idle_fast, window, idle_window, command, addr }
}

/// Returns a command whose peer may read and write a region.
fn to_command(addr: u64, region: u32) -> Wr {
    command(&[sge(addr, 64, region)], b"tag_", 0, REMOTE, CommandFlags::empty())
}

/// A work request that names a key.
struct Row {
    what: &'static str,
    request: fn(&Scene, &Keys) -> Wr,
    /// The status if the key is that of another function. With the key of A's own object, the work
    /// request succeeds.
    refused: Status,
    /// The ways that have this work request.
    ways: &'static [Way],
}

const fn row(
    what: &'static str,
    request: fn(&Scene, &Keys) -> Wr,
    refused: Status,
    ways: &'static [Way],
) -> Row {
    Row { what, request, refused, ways }
}

const ALL_WAYS: &[Way] = &[Way::Roce, Way::Copied, Way::Segments];
const ROCE: &[Way] = &[Way::Roce];
const TCP: &[Way] = &[Way::Copied, Way::Segments];

/// Returns a work request with a segment, and with operands if it is an atomic.
fn request(opcode: Opcode, segment: Sge) -> Wr {
    let wr = Wr::new(opcode, &[segment]);
    if opcode.info().class == Class::Atomic { wr.atomic(1, 0) } else { wr }
}

/// Returns a work request of A about B's memory, with a segment of A's memory.
fn with_peer(s: &Scene, opcode: Opcode, addr: u64, key: u32) -> Wr {
    request(opcode, sge(addr, 8, key)).to(s.b.buffer + 4096, s.b.key)
}

/// Returns a work request of B about A's memory.
fn of_peer(s: &Scene, opcode: Opcode, addr: u64, key: u32) -> Wr {
    request(opcode, s.b.sge(8192, 8)).to(addr, key)
}

/// Work requests of A.
const LOCAL: &[Row] = &[
    row(
        "SEND",
        |s, k| with_peer(s, Opcode::Send, k.addr, k.region).to(0, 0),
        Status::LocProtErr,
        ALL_WAYS,
    ),
    row(
        "SEND from a fast region",
        |s, k| with_peer(s, Opcode::Send, k.addr, k.fast).to(0, 0),
        Status::LocProtErr,
        ALL_WAYS,
    ),
    row(
        "WRITE",
        |s, k| with_peer(s, Opcode::Write, k.addr, k.region),
        Status::LocProtErr,
        ALL_WAYS,
    ),
    row("READ", |s, k| with_peer(s, Opcode::Read, k.addr, k.region), Status::LocProtErr, ALL_WAYS),
    row("READ_INV", |s, k| with_peer(s, Opcode::ReadInv, k.addr, k.fast), Status::LocProtErr, TCP),
    row(
        "FETCH_ADD",
        |s, k| with_peer(s, Opcode::FetchAdd, k.addr, k.region),
        Status::LocProtErr,
        ALL_WAYS,
    ),
    row(
        "CMP_SWP",
        |s, k| with_peer(s, Opcode::CmpSwp, k.addr, k.region),
        Status::LocProtErr,
        ALL_WAYS,
    ),
    row(
        "BIND_MW: region",
        |s, k| bind(s.own.idle_window, k.region, k.addr, 8, REMOTE),
        Status::MwBindErr,
        ALL_WAYS,
    ),
    row(
        "BIND_MW: window",
        |s, k| bind(k.idle_window, s.own.region, k.addr, 8, REMOTE),
        Status::MwBindErr,
        ALL_WAYS,
    ),
    row(
        "REG_MR",
        |s, k| reg(k.idle_fast, k.addr, &reg_seg(&s.a.guest, &[k.addr], PAGE, ALL)),
        Status::MwBindErr,
        ALL_WAYS,
    ),
    row("LOCAL_INV of a region", |_, k| local_inv(k.fast), Status::MwBindErr, ALL_WAYS),
    row("LOCAL_INV of a window", |_, k| local_inv(k.window), Status::MwBindErr, ALL_WAYS),
    row("SEND_CMD", |_, k| to_command(k.addr, k.region), Status::MwBindErr, ROCE),
];

/// Work requests of B.
const REMOTE_ROWS: &[Row] = &[
    row(
        "WRITE",
        |s, k| of_peer(s, Opcode::Write, k.addr, k.region),
        Status::RemAccessErr,
        ALL_WAYS,
    ),
    row(
        "WRITE to a fast region",
        |s, k| of_peer(s, Opcode::Write, k.addr, k.fast),
        Status::RemAccessErr,
        ALL_WAYS,
    ),
    row(
        "WRITE to a window",
        |s, k| of_peer(s, Opcode::Write, k.addr, k.window),
        Status::RemAccessErr,
        ALL_WAYS,
    ),
    row(
        "WRITE to a command",
        |s, k| of_peer(s, Opcode::Write, 0, k.command),
        Status::RemAccessErr,
        ROCE,
    ),
    row(
        "WRITE_IMM",
        |s, k| of_peer(s, Opcode::WriteImm, k.addr, k.region),
        Status::RemAccessErr,
        ALL_WAYS,
    ),
    row("READ", |s, k| of_peer(s, Opcode::Read, k.addr, k.region), Status::RemAccessErr, ALL_WAYS),
    row(
        "READ of a window",
        |s, k| of_peer(s, Opcode::Read, k.addr, k.window),
        Status::RemAccessErr,
        ALL_WAYS,
    ),
    row(
        "FETCH_ADD",
        |s, k| of_peer(s, Opcode::FetchAdd, k.addr, k.region),
        Status::RemAccessErr,
        ALL_WAYS,
    ),
    row(
        "CMP_SWP",
        |s, k| of_peer(s, Opcode::CmpSwp, k.addr, k.region),
        Status::RemAccessErr,
        ALL_WAYS,
    ),
    row(
        "SEND_INV of a region",
        |_, k| Wr::new(Opcode::SendInv, &[]).to(0, k.fast),
        Status::RemAccessErr,
        ALL_WAYS,
    ),
    row(
        "SEND_INV of a window",
        |_, k| Wr::new(Opcode::SendInv, &[]).to(0, k.window),
        Status::RemAccessErr,
        ALL_WAYS,
    ),
    row(
        "a response to a command",
        |_, k| Wr::new(Opcode::Send, &[]).inline(&k.command.to_be_bytes()),
        Status::RemAccessErr,
        ROCE,
    ),
];

/// Calls `run` for each row and way. Prints which one fails.
fn each(rows: &[Row], run: impl Fn(&Row, Way)) {
    for row in rows {
        for way in row.ways {
            eprintln!("{}, {way:?}", row.what);
            run(row, *way);
        }
    }
}

/// Posts a request on A or on its peer, and returns the status, with the reason if it is known.
fn complete(s: &mut Scene, on_peer: bool, wr: &Wr) -> (Status, u32) {
    let end = if on_peer { &mut s.b } else { &mut s.a };
    end.post_send(wr);
    pass(&s.world, &s.guests);
    let cqe = end.send_cq.poll().expect("a completion");
    (status(&cqe), cqe.vendor_err.get())
}

#[test]
fn a_work_request_finds_no_key_of_another_function() {
    each(LOCAL, |row, way| {
        let mut s = Scene::new(way, 20);
        let request = (row.request)(&s, &s.foreign);
        let got = complete(&mut s, false, &request);
        // An error of a segment that TCP sends has no cause of its own.
        let why = if way == Way::Segments { got.1 } else { Denied::Invalid as u32 };
        assert_eq!(got, (row.refused, why));
        s.check(row.what);
    });
}

#[test]
fn a_message_finds_no_key_of_another_function() {
    each(REMOTE_ROWS, |row, way| {
        let mut s = Scene::new(way, 20);
        let before = Picture::of(&s.guests[0]);
        let request = (row.request)(&s, &s.foreign);
        let (status, why) = complete(&mut s, true, &request);
        assert_eq!(status, row.refused);
        if way == Way::Roce {
            assert_eq!(why, told_by_peer(Denied::Invalid));
        }
        assert_eq!(s.a.guest.stats().resp_remote_access_errors.get(), 1);
        assert!(before.has_keys_of(&s.guests[0]), "the keys of A have changed");
        s.check(row.what);
    });
}

#[test]
fn a_key_is_that_of_the_own_function() {
    for (rows, on_peer) in [(LOCAL, false), (REMOTE_ROWS, true)] {
        each(rows, |row, way| {
            let mut s = Scene::new(way, 0);
            assert_eq!(s.own, s.foreign);
            let request = (row.request)(&s, &s.foreign);
            assert_eq!(complete(&mut s, on_peer, &request), (Status::Success, 0));
            s.check(row.what);
        });
    }
}

#[test]
fn a_receive_finds_no_key_of_another_function() {
    for way in WAYS {
        let refused = if way == Way::Roce { Status::RemOpErr } else { Status::FatalErr };
        for (others, sent, received) in
            [(20, refused, Status::LocProtErr), (0, Status::Success, Status::Success)]
        {
            let mut s = Scene::new(way, others);
            // The first receives have A's own key.
            for _ in 0..2 {
                let send = Wr::new(Opcode::Send, &[s.b.sge(8192, 3)]);
                assert_eq!(complete(&mut s, true, &send).0, Status::Success, "{way:?}");
                s.a.recv_cq.poll_success();
            }
            let Keys { addr, region, .. } = s.foreign;
            s.a.post_recv(7, &[sge(addr, 64, region)]);
            let send = Wr::new(Opcode::Send, &[s.b.sge(8192, 3)]);
            let (status, _) = complete(&mut s, true, &send);
            // Segments have been acknowledged before they are placed.
            assert!(status == sent || way == Way::Segments, "{way:?}: {status:?}");
            s.a.recv_cq.expect(7, received);
            s.check("a receive");
        }
    }
}
