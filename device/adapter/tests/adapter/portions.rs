//! No portion of work keeps a worker for long: each request, with its largest parameters, on each
//! way between two QPs.
//!
//! Shows: hostile: the longest portion of work of each request

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vrnic_abi::admin::{MwType, TagForm};
use vrnic_abi::cq::Status;
use vrnic_abi::direct::{Direction, RANGE_LEN};
use vrnic_abi::qp::{Access, Type};
use vrnic_abi::sq::{CommandFlags, MAX_DATAGRAM, Opcode, Sge};
use vrnic_adapter::limits::MAX_FAST_REG_PAGES;
use vrnic_simlink::Faults;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{ALL, Setup};
use vrnic_testdriver::stream;
use vrnic_testdriver::wr::{Wr, sge};

use crate::bus::{Endpoint, Guest};
use crate::cable::Cable;
use crate::control::slices::{members, post};
use crate::direct::marks::until_marked;
use crate::direct::{armed, packet, store, until};
use crate::memory::commands::command;
use crate::memory::keys::{
    BINDABLE, PAGE, REMOTE, alloc_mr, alloc_mw, bind, local_inv, reg, reg_seg,
};
use crate::messages::datagrams::datagram;
use crate::network::streams::receives::connect_at;
use crate::network::toe;
use crate::polls::{KINDS, Kind, Polls};
use crate::world::{Pair, World};

/// All rights, and the right to flush.
const RIGHTS: u32 = ALL | Access::FLUSH_GLOBAL.bits();
/// Bytes of the region of each end.
const REGION: u64 = 4 << 20;
/// Segments of a request, and the bytes of each.
const SEGMENTS: u64 = 16;
const SEGMENT: u32 = 64 << 10;
/// Bytes of the messages of these segments.
const MESSAGE: u32 = 16 * SEGMENT;
/// Requests of each QP.
const REQUESTS: u64 = 4;

/// A way from one QP to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// RC QPs of one daemon.
    Copy,
    /// RC QPs that exchange packets.
    Packets,
    /// iWARP connections of one daemon.
    Pair,
    /// iWARP connections of two daemons.
    Segments,
}

/// The ways of RC QPs, and those of iWARP connections.
const ROCE: &[Way] = &[Way::Copy, Way::Packets];
const IWARP: &[Way] = &[Way::Pair, Way::Segments];
const ALL_WAYS: &[Way] = &[Way::Copy, Way::Packets, Way::Pair, Way::Segments];

/// Returns the ways on which a request is tested here.
fn ways(opcode: Opcode) -> &'static [Way] {
    match opcode {
        Opcode::Send
        | Opcode::SendInv
        | Opcode::Write
        | Opcode::WriteImm
        | Opcode::Read
        | Opcode::CmpSwp
        | Opcode::FetchAdd
        | Opcode::LocalInv
        | Opcode::RegMr => ALL_WAYS,
        Opcode::SendImm | Opcode::BindMw | Opcode::SendCmd => ROCE,
        Opcode::Flush | Opcode::AtomicWrite => ROCE,
        Opcode::ReadInv => IWARP,
        Opcode::Transfer | Opcode::Await => &[Way::Copy],
        // A QP of raw packets has it (`network::raw::costs`).
        Opcode::Segment => &[],
    }
}

/// Adapters that reach each other.
enum Net {
    Daemon(Box<World>, [Guest; 2]),
    Daemons(Box<Cable>),
}

/// Connected QPs, of which the first ones have requests.
struct Scene {
    net: Net,
    polls: Polls,
    pairs: Vec<(Endpoint, Endpoint)>,
}

impl Scene {
    fn new(way: Way, opcode: Opcode) -> Self {
        let net = if way == Way::Segments {
            Net::Daemons(Box::new(Cable::new(1, Faults::default())))
        } else {
            let world = World::copying();
            if way == Way::Packets {
                world.fabric.use_packets_only();
            }
            let guests = [world.guest(1), world.guest(2)];
            Net::Daemon(Box::new(world), guests)
        };
        let tags =
            if opcode == Opcode::SendCmd { (TagForm::General, 0) } else { (TagForm::None, 0) };
        let setup = Setup { kernel: true, region: REGION, ..Setup::default() };
        let [ga, gb] = net.guests();
        let mut pairs = Vec::new();
        // Small requests of many QPs, and large ones of a few.
        for nth in 0..if is_large(opcode) { 2 } else { 16 } {
            let a = Endpoint::new(ga, Setup { tags, ..setup });
            let b = Endpoint::new(gb, setup);
            if matches!(way, Way::Copy | Way::Packets) {
                for (end, peer) in [(&a, &b), (&b, &a)] {
                    end.connect(peer.guest.mac(), peer.qpn, |attr| attr.access = RIGHTS.into());
                }
            } else {
                connect_at(&a, &b, 8000 + nth);
            }
            pairs.push((a, b));
        }
        let polls = Polls::new(net.clock());
        let this = Self { net, polls, pairs };
        // Connections open within this time.
        for _ in 0..10 {
            this.net.clock().fetch_add(1_000_000, Ordering::AcqRel);
            this.run();
        }
        this
    }

    /// Lets the adapters work until nothing is left.
    fn run(&self) {
        match &self.net {
            Net::Daemons(cable) => cable.settle(),
            Net::Daemon(_, guests) => {
                for _ in 0..1_000_000 {
                    if !guests.iter().fold(false, |busy, guest| self.polls.poll(guest).busy | busy)
                    {
                        return;
                    }
                }
                panic!("the adapters still have work");
            }
        }
    }

    /// Runs requests that have been stored, in polls of this kind, and checks how long each poll
    /// takes.
    fn measure(&self, kind: Kind, what: &str) {
        let polls = self.net.polls().unwrap_or(&self.polls);
        polls.measure(&self.net.guests(), kind);
        self.pairs.iter().for_each(|(a, _)| a.ring());
        self.run();
        polls.check(what);
    }

    /// Checks that all requests of A's have succeeded.
    fn succeeded(&mut self, count: u64, what: &str) {
        for (a, _) in &mut self.pairs {
            for _ in 0..count {
                let cqe = a.send_cq.poll().unwrap_or_else(|| panic!("{what}: no completion"));
                assert_eq!(status(&cqe), Status::Success, "{what}");
            }
        }
    }
}

impl Net {
    fn guests(&self) -> [&Guest; 2] {
        match self {
            Self::Daemon(_, [a, b]) => [a, b],
            Self::Daemons(cable) => [&cable.ga, &cable.gb],
        }
    }

    fn clock(&self) -> &Arc<AtomicU64> {
        match self {
            Self::Daemon(world, _) => &world.clock,
            Self::Daemons(cable) => &cable.world.clock,
        }
    }

    fn polls(&self) -> Option<&Polls> {
        match self {
            Self::Daemon(..) => None,
            Self::Daemons(cable) => Some(&cable.polls),
        }
    }
}

/// Returns whether requests move many bytes.
fn is_large(opcode: Opcode) -> bool {
    use Opcode::{Read, ReadInv, Send, SendCmd, SendImm, SendInv, Write, WriteImm};
    matches!(opcode, Send | SendImm | SendInv | Write | WriteImm | Read | ReadInv | SendCmd)
}

/// Returns the most segments that a request can have.
fn segments(end: &Endpoint) -> Vec<Sge> {
    (0..SEGMENTS).map(|nth| end.sge(nth * u64::from(SEGMENT), SEGMENT)).collect()
}

/// Returns a new key of an endpoint, and the request that registers as many pages with it as
/// possible.
fn registered(end: &Endpoint) -> (u32, Wr) {
    let key = alloc_mr(&end.guest, end.pdn, MAX_FAST_REG_PAGES);
    // From the last page to the first one, so that no two of them adjoin.
    let page = |nth| end.buffer + u64::from(nth) * PAGE;
    let pages: Vec<u64> = (0..MAX_FAST_REG_PAGES).rev().map(page).collect();
    let length = u64::from(MAX_FAST_REG_PAGES) * PAGE;
    (key, reg(key, 0, &reg_seg(&end.guest, &pages, length, ALL)))
}

/// Stores the requests of a pair, with their largest parameters. Returns how many there are.
fn store_all(a: &mut Endpoint, b: &mut Endpoint, opcode: Opcode) -> u64 {
    for id in 0..REQUESTS {
        if is_large(opcode) {
            store_large(a, b, opcode, id);
        } else {
            store_small(a, b, opcode, id);
        }
    }
    match opcode {
        Opcode::Transfer | Opcode::Await | Opcode::LocalInv | Opcode::ReadInv => 2 * REQUESTS,
        _ => REQUESTS,
    }
}

/// Stores a request that moves many bytes, and posts what it needs at the peer.
fn store_large(a: &mut Endpoint, b: &mut Endpoint, opcode: Opcode, id: u64) {
    let all = Wr::new(opcode, &segments(a)).id(id);
    match opcode {
        Opcode::Write | Opcode::Read => return a.store_send(&all.to(b.buffer, b.key)),
        Opcode::ReadInv => {
            let (key, wr) = registered(a);
            a.store_send(&wr);
            let sink = [sge(0, MESSAGE, key)];
            return a.store_send(&Wr::new(opcode, &sink).to(b.buffer, b.key));
        }
        Opcode::WriteImm => b.post_recv(id, &[]),
        Opcode::SendCmd => b.post_recv(id, &[b.sge(0, 4096)]),
        _ => b.post_recv(id, &segments(b)),
    }
    match opcode {
        Opcode::WriteImm => a.store_send(&all.to(b.buffer, b.key)),
        Opcode::SendCmd => {
            let none = CommandFlags::empty();
            a.store_send(&command(&segments(a), &[7; 100], 0, REMOTE, none));
        }
        Opcode::SendInv => {
            let (key, wr) = registered(b);
            b.post_send(&wr);
            a.store_send(&all.to(0, key));
        }
        _ => a.store_send(&all),
    }
}

/// Stores another request, with those that belong to it.
fn store_small(a: &mut Endpoint, b: &Endpoint, opcode: Opcode, id: u64) {
    let word = Wr::new(opcode, &[a.sge(0, 8)]).to(b.buffer, b.key);
    match opcode {
        Opcode::CmpSwp | Opcode::FetchAdd => a.store_send(&word.atomic(1, 1)),
        Opcode::Flush => {
            let key = b.guest.reg_flat(b.pdn, RIGHTS, b.buffer, REGION).expect("MR");
            a.store_send(&Wr::new(opcode, &[]).atomic(1, REGION).to(b.buffer, key));
        }
        Opcode::RegMr => a.store_send(&registered(a).1),
        Opcode::LocalInv => {
            let (key, wr) = registered(a);
            a.store_send(&wr);
            a.store_send(&local_inv(key));
        }
        Opcode::BindMw => {
            let region = a.guest.reg_flat(a.pdn, BINDABLE, a.buffer, REGION).expect("MR");
            let window = alloc_mw(&a.guest, a.pdn, MwType::Type2);
            a.store_send(&bind(window, region, a.buffer, REGION, REMOTE));
        }
        Opcode::Transfer => {
            let range = u32::try_from(id).expect("few");
            let from = packet(a, range, RANGE_LEN);
            armed(a, range, Direction::Write, RANGE_LEN);
            store(&a.guest, range, 0, &vec![5; RANGE_LEN as usize]);
            a.store_send(&until(range));
            a.store_send(&Wr::new(Opcode::Write, &[from]).to(b.buffer, b.key));
        }
        Opcode::Await => {
            a.mark(0, 1);
            a.store_send(&until_marked(0, 1));
            a.store_send(&Wr::new(Opcode::Write, &segments(a)).to(b.buffer, b.key));
        }
        _ => a.store_send(&word),
    }
}

/// Shows: hostile: the longest portion of work of each operation
#[test]
fn each_request_with_its_largest_parameters() {
    for opcode in (0..=u8::MAX).filter_map(Opcode::from_raw) {
        for (way, kind) in
            ways(opcode).iter().flat_map(|way| KINDS.iter().map(move |kind| (*way, *kind)))
        {
            let what = format!("{opcode:?} by {way:?}");
            let mut scene = Scene::new(way, opcode);
            // An adapter has few address ranges.
            let pairs = if opcode == Opcode::Transfer { 1 } else { usize::MAX };
            scene.pairs.truncate(pairs);
            let mut count = 0;
            for (a, b) in &mut scene.pairs {
                count = store_all(a, b, opcode);
            }
            // The keys of B that A's requests invalidate.
            scene.run();
            scene.measure(kind, &what);
            scene.succeeded(count, &what);
        }
    }
}

/// Datagrams of many segments, and those to all members of a large group.
#[test]
fn datagrams_in_portions() {
    for (packets, kind) in
        [false, true].into_iter().flat_map(|packets| KINDS.map(|kind| (packets, kind)))
    {
        let world = World::copying();
        if packets {
            world.fabric.use_packets_only();
        }
        let setup = Setup { kind: Type::Ud, ..Setup::default() };
        let mut p = Pair::datagrams(world, setup);
        let all = members(&p, 256);
        (0..8).for_each(|number| post(&mut p, number));
        let each = MAX_DATAGRAM / 16;
        let sges: Vec<_> = (0..16).map(|nth| p.a.sge(nth * u64::from(each), each)).collect();
        for id in 0..8 {
            p.expect(MAX_DATAGRAM);
            let wr = datagram(&sges, p.there()).id(100 + id);
            p.a.post_send(&wr);
        }
        let polls = Polls::new(&p.world.clock);
        polls.measure(&[&p.ga, &p.gb], kind);
        for _ in 0..100_000 {
            if !(polls.poll(&p.ga).busy | polls.poll(&p.gb).busy) {
                break;
            }
        }
        polls.check(&format!("datagrams, packets {packets}"));
        let sent = std::iter::from_fn(|| p.sent()).map(|cqe| status(&cqe));
        assert_eq!(sent.collect::<Vec<_>>(), [Status::Success; 16]);
        assert!(all.iter().all(|member| member.recv_cq.peek().is_some()));
    }
}

/// Bytes of TCP streams, in sends and receives of many segments.
#[test]
fn streams_in_portions() {
    for kind in KINDS {
        let cable = toe::cable(1, Faults::default());
        let (mut a, mut b) = (
            Endpoint::new(&cable.ga, toe::setup(true)),
            Endpoint::new(&cable.gb, toe::setup(true)),
        );
        stream::connect_toes(&a, &b);
        for id in 0..REQUESTS {
            b.post_recv(id, &segments(&b));
            a.store_send(&Wr::new(Opcode::Send, &segments(&a)).id(id));
        }
        cable.polls.measure(&[&cable.ga, &cable.gb], kind);
        a.ring();
        cable.settle();
        cable.polls.check("TCP streams");
        for _ in 0..REQUESTS {
            assert_eq!(a.send_cq.poll().map(|cqe| status(&cqe)), Some(Status::Success));
        }
        assert!(b.recv_cq.poll().is_some());
    }
}
