//! Loads that a guest puts on its worker: those by which it tries to keep the worker to itself, and
//! an honest one to compare with.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use vrnic_abi::admin::{CreateCq, CreateQp, Mcast, ModifyCq, Opcode as Admin, SetGid, command};
use vrnic_abi::doorbell::RQ_PI;
use vrnic_abi::qp::{AddressVector, Attr, AttrMask, GRH_LEN, MULTICAST_QPN, NO_VLAN, State, Type};
use vrnic_abi::rq::RqWqe;
use vrnic_abi::sq::{DatagramSeg, Flags, Opcode, Sge};
use vrnic_abi::uar::{ARM_COUNT_SHIFT, ARM_NEXT, SLOTS};
use vrnic_figures::Load;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::CompletionQueue;
use vrnic_testdriver::memory::Ram;
use vrnic_testdriver::qp::{ALL, INIT, Setup, TO_RTS, attributes, link_local};
use vrnic_testdriver::vmm::vfio::{Endpoint, Guest};
use vrnic_testdriver::wr::{Wr, sge};
use zerocopy::IntoBytes;

/// A multicast group: ff0e::beef.
const GROUP: [u8; 16] = [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xbe, 0xef];
/// The queue key of its members.
const QKEY: u32 = 0x1111;
/// Members of the group.
const MEMBERS: u32 = 256;
/// QPs that feed a CQ.
const FEEDERS: u32 = 10_000;
/// CQs with events.
const QUEUES: u32 = 16_000;
/// Time that moderated events wait, in µs.
const PERIOD: u16 = 50_000;
/// log2 of the entries of a send queue, and of their bytes.
const LOG_WQES: u8 = 10;
const LOG_STRIDE: u8 = 9;
/// log2 of the entries of a long CQ.
const LOG_CQES: u8 = 18;
const MIB: u32 = 1 << 20;
/// Messages of 1 MiB.
const MESSAGES: u32 = 192;

/// The loads that are measured, in the order of the table.
pub(crate) const LOADS: [Load; 7] = [
    Load::Nothing,
    Load::Multicast(MEMBERS),
    Load::FailingCq(FEEDERS),
    Load::Arming(QUEUES),
    Load::Moderated(QUEUES),
    Load::LongMessages(MESSAGES),
    Load::Flush(1 << LOG_WQES),
];

/// Returns the duration of the measurement.
pub(crate) fn span(load: Load) -> Duration {
    Duration::from_millis(if matches!(load, Load::Moderated(_)) { 150 } else { 60 })
}

/// A hostile pair of guests.
pub(crate) struct Villain {
    near: Endpoint,
    far: Endpoint,
}

/// An object and its doorbell.
#[derive(Clone, Copy)]
struct Slot {
    id: u32,
    uar: u32,
    slot: u32,
}

/// Doorbells to ring: the slot's words are stored first.
pub(crate) struct Burst {
    guest: Guest,
    /// Slots, with the new content of their first 16 bytes.
    slots: Vec<(Slot, [u32; 4])>,
}

impl Burst {
    /// Stores the words of all slots, and rings their doorbells.
    pub(crate) fn start(&self) {
        for (Slot { uar, slot, .. }, words) in &self.slots {
            for (offset, value) in (0..).step_by(4).zip(words) {
                self.guest.slot32(*uar, *slot, offset).store(*value, Ordering::Release);
            }
        }
        // By group, as each has one bit.
        self.slots.iter().for_each(|(at, _)| self.guest.ring(at.uar, at.slot));
    }
}

impl Villain {
    /// Creates two endpoints, on functions with a GID.
    pub(crate) fn new(near: &Guest, far: &Guest) -> anyhow::Result<Self> {
        for guest in [near, far] {
            let gid = link_local(guest.mac());
            guest.command::<command::SetGid>(&SetGid::set(0, gid, guest.mac(), 0xffff))?;
        }
        let setup = Setup { log_cqes: 2, ..Setup::default() };
        let this = Self { near: Endpoint::new(near, setup), far: Endpoint::new(far, setup) };
        Endpoint::connect_pair(&this.near, &this.far);
        Ok(this)
    }

    /// Makes what a load needs.
    ///
    /// # Errors
    /// When a command is refused.
    pub(crate) fn prepare(&self, load: Load) -> anyhow::Result<Burst> {
        let slots = match load {
            Load::Nothing => Vec::new(),
            Load::Multicast(members) => self.multicast(members)?,
            Load::FailingCq(feeders) => self.failing_cq(feeders)?,
            Load::Arming(queues) => self.arming(queues)?,
            Load::Moderated(queues) => self.moderated(queues)?,
            Load::LongMessages(mib) => self.long_messages(mib.into())?,
            Load::Flush(_) => self.flush()?,
            Load::Frames(count) => self.frames(count)?,
            Load::Writes(qps) => self.writes(qps)?,
        };
        Ok(Burst { guest: self.near.guest.clone(), slots })
    }

    fn multicast(&self, members: u32) -> anyhow::Result<Vec<(Slot, [u32; 4])>> {
        let Self { near, far } = self;
        let receiving = params(far, Type::Ud);
        let receiving = CreateQp { recv_cqn: long_cq(far)?.into(), ..receiving };
        let place = far.sge(0, 4096 + GRH_LEN);
        fill(&far.guest, &receiving, &[RqWqe::new(1, 1).as_bytes(), place.as_bytes()].concat());
        for member in self.qps(far, &receiving, members)? {
            datagrams(&far.guest, member.id);
            let posted = far.guest.slot32(member.uar, member.slot, RQ_PI);
            posted.store(1 << LOG_WQES, Ordering::Release);
            far.guest.command::<command::AttachMcast>(&Mcast::new(member.id, GROUP))?;
        }
        let av = AddressVector {
            dgid: GROUP,
            dmac: [0x33, 0x33, 0, 0, 0xbe, 0xef],
            vlan: NO_VLAN.into(),
            hop_limit: 1,
            ..AddressVector::default()
        };
        let to = DatagramSeg { av, dest_qpn: MULTICAST_QPN.into(), qkey: QKEY.into() };
        let wqe =
            Wr::new(Opcode::Send, &[near.sge(0, 4096)]).flags(Flags::empty()).body(to.as_bytes());
        let params = params(near, Type::Ud);
        fill(&near.guest, &params, &wqe.encode());
        let senders = self.qps(near, &params, 16)?;
        senders.iter().for_each(|sender| datagrams(&near.guest, sender.id));
        Ok(senders.into_iter().map(|sender| (sender, [64, 0, 0, 0])).collect())
    }

    fn failing_cq(&self, feeders: u32) -> anyhow::Result<Vec<(Slot, [u32; 4])>> {
        let Self { near, far } = self;
        let cqn = CompletionQueue::create(&near.guest, near.uar, near.eqn, 1)?.cqn;
        let params = params(near, Type::Rc);
        let params = CreateQp { send_cqn: cqn.into(), recv_cqn: cqn.into(), ..params };
        let attr = Attr { state: State::Init as u8, ..attributes(far.guest.mac(), far.qpn) };
        let qps = self.qps(near, &params, feeders)?;
        for qp in &qps {
            near.guest.modify_qp(qp.id, INIT, &attr)?;
        }
        // The first one fails, and its requests overflow the CQ.
        let first = *qps.first().context("a QP")?;
        fail(&near.guest, first.id)?;
        Ok(vec![(first, [8, 0, 0, 0])])
    }

    fn arming(&self, queues: u32) -> anyhow::Result<Vec<(Slot, [u32; 4])>> {
        let cqs = self.cqs(queues)?;
        // Arms as if a completion had been overlooked.
        let words = [0, 1 << ARM_COUNT_SHIFT | ARM_NEXT, u32::MAX, 0];
        Ok(cqs.into_iter().map(|cq| (cq, words)).collect())
    }

    fn moderated(&self, queues: u32) -> anyhow::Result<Vec<(Slot, [u32; 4])>> {
        let near = &self.near;
        let cqs = self.cqs(queues)?;
        let params = params(near, Type::Rc);
        let attr = attributes(self.far.guest.mac(), self.far.qpn);
        let attr = Attr { state: State::Init as u8, ..attr };
        let mut slots: Vec<_> = Vec::new();
        for cq in cqs {
            near.guest.command::<command::ModifyCq>(&ModifyCq::new(cq.id, 2, PERIOD))?;
            slots.push((cq, [0, 1 << ARM_COUNT_SHIFT | ARM_NEXT, 0, 0]));
        }
        Burst { guest: near.guest.clone(), slots: slots.clone() }.start();
        let mut qps = Vec::new();
        let (mut uar, mut free) = (0, 0);
        for (cq, _) in slots {
            if free == 0 {
                (uar, free) = (near.guest.on_object(Admin::AllocUar, near.context)?, SLOTS);
            }
            free -= 1;
            let params = CreateQp { send_cqn: cq.id.into(), uar: uar.into(), ..params };
            let (id, slot, _) = near.guest.create_qp(&params)?;
            near.guest.modify_qp(id, INIT, &attr)?;
            fail(&near.guest, id)?;
            qps.push((Slot { id, uar, slot }, [1, 0, 0, 0]));
        }
        Ok(qps)
    }

    fn long_messages(&self, messages: u64) -> anyhow::Result<Vec<(Slot, [u32; 4])>> {
        let Self { near, far } = self;
        let len = messages * u64::from(MIB);
        let (from, to) = (near.guest.ram().alloc(len), far.guest.ram().alloc(len));
        let mut slots = Vec::new();
        for nth in 0..16u64 {
            let setup = Setup { region: 4096, log_wqes: 6, ..Setup::default() };
            let (mut a, b) = (near.apart(setup), far.apart(setup));
            Endpoint::connect_pair(&a, &b);
            for message in 0..messages / 16 {
                let at = (nth * messages / 16 + message) * u64::from(MIB);
                let lkey = near.guest.reg_flat(a.pdn, ALL, from + at, MIB.into())?;
                let rkey = far.guest.reg_flat(b.pdn, ALL, to + at, MIB.into())?;
                let sges: Vec<Sge> =
                    (0..16).map(|n| sge(from + at + n * 65_536, 65_536, lkey)).collect();
                a.store_send(
                    &Wr::new(Opcode::Write, &sges).flags(Flags::empty()).to(to + at, rkey),
                );
            }
            let slot = Slot { id: a.qpn, uar: a.uar, slot: a.slot };
            slots.push((slot, [a.sq_pi, 0, 0, 0]));
        }
        Ok(slots)
    }

    fn flush(&self) -> anyhow::Result<Vec<(Slot, [u32; 4])>> {
        let near = &self.near;
        let cqn = long_cq(near)?;
        let params = params(near, Type::Rc);
        let params = CreateQp { send_cqn: cqn.into(), recv_cqn: cqn.into(), ..params };
        let attr = attributes(self.far.guest.mac(), self.far.qpn);
        let attr = Attr { state: State::Init as u8, ..attr };
        let mut slots = Vec::new();
        for qp in self.qps(near, &params, 64)? {
            near.guest.modify_qp(qp.id, INIT, &attr)?;
            fail(&near.guest, qp.id)?;
            slots.push((qp, [1 << LOG_WQES, 1 << LOG_WQES, 0, 0]));
        }
        Ok(slots)
    }

    /// Datagrams to a station that does not exist, which the switch sends to all ports.
    fn frames(&self, count: u32) -> anyhow::Result<Vec<(Slot, [u32; 4])>> {
        let near = &self.near;
        let av = AddressVector {
            dgid: [0xfd; 16],
            dmac: [0x52, 0x54, 0xff, 0xff, 0xff, 0xff],
            vlan: NO_VLAN.into(),
            hop_limit: 1,
            ..AddressVector::default()
        };
        let to = DatagramSeg { av, dest_qpn: 100.into(), qkey: QKEY.into() };
        let wqe = Wr::new(Opcode::Send, &[near.sge(0, 1024)]).flags(Flags::empty());
        let params = params(near, Type::Ud);
        fill(&near.guest, &params, &wqe.body(to.as_bytes()).encode());
        let senders = self.qps(near, &params, count >> LOG_WQES)?;
        senders.iter().for_each(|sender| datagrams(&near.guest, sender.id));
        Ok(senders.into_iter().map(|sender| (sender, [1 << LOG_WQES, 0, 0, 0])).collect())
    }

    /// WRITEs of 4 KiB over connections, each with a full send queue.
    fn writes(&self, qps: u32) -> anyhow::Result<Vec<(Slot, [u32; 4])>> {
        let Self { near, far } = self;
        let wr = Wr::new(Opcode::Write, &[near.sge(0, 4096)]).flags(Flags::empty());
        let [sending, receiving] = [near, far].map(|end| params(end, Type::Rc));
        fill(&near.guest, &sending, &wr.to(far.buffer, far.key).encode());
        let senders = self.qps(near, &sending, qps)?;
        for (sender, receiver) in senders.iter().zip(self.qps(far, &receiving, qps)?) {
            let connect = |guest: &Guest, qpn, to: &Guest, dest| {
                guest.take_through(qpn, attributes(to.mac(), dest), &TO_RTS);
            };
            connect(&near.guest, sender.id, &far.guest, receiver.id);
            connect(&far.guest, receiver.id, &near.guest, sender.id);
        }
        Ok(senders.into_iter().map(|sender| (sender, [1 << LOG_WQES, 0, 0, 0])).collect())
    }

    /// Makes QPs that share rings, with slots in doorbell pages of their own.
    fn qps(&self, on: &Endpoint, params: &CreateQp, count: u32) -> anyhow::Result<Vec<Slot>> {
        let (mut uar, mut free) = (0, 0);
        let make = |_| {
            if free == 0 {
                (uar, free) = (on.guest.on_object(Admin::AllocUar, on.context)?, SLOTS);
            }
            free -= 1;
            let params = CreateQp { uar: uar.into(), ..*params };
            let (id, slot, _) = on.guest.create_qp(&params)?;
            Ok(Slot { id, uar, slot })
        };
        (0..count).map(make).collect()
    }

    /// Makes CQs of one entry.
    fn cqs(&self, count: u32) -> anyhow::Result<Vec<Slot>> {
        let near = &self.near;
        let ring = near.guest.ram().alloc(4096);
        let (mut uar, mut free) = (0, 0);
        let make = |_| {
            if free == 0 {
                (uar, free) = (near.guest.on_object(Admin::AllocUar, near.context)?, SLOTS);
            }
            free -= 1;
            let params = CreateCq::new(uar, near.eqn, 0, Ram::pages(ring));
            let result = near.guest.command::<command::CreateCq>(&params)?;
            Ok(Slot { id: result.cqn.get(), uar, slot: result.slot.get() })
        };
        (0..count).map(make).collect()
    }
}

/// Parameters of QPs of an endpoint's PD and CQs.
fn params(on: &Endpoint, kind: Type) -> CreateQp {
    let ring = on.guest.ram().alloc(1 << (LOG_WQES + LOG_STRIDE));
    CreateQp {
        sq_table: ring.into(),
        rq_table: ring.into(),
        sq_page_shift: 12,
        rq_page_shift: 12,
        sq_log_size: LOG_WQES,
        sq_log_stride: LOG_STRIDE,
        rq_log_size: LOG_WQES,
        rq_log_stride: LOG_STRIDE,
        pdn: on.pdn.into(),
        send_cqn: on.recv_cq.cqn.into(),
        recv_cqn: on.recv_cq.cqn.into(),
        uar: on.uar.into(),
        qp_type: kind as u8,
        ..CreateQp::default()
    }
}

/// Creates a CQ with room for all completions of a load. Returns its number.
fn long_cq(on: &Endpoint) -> anyhow::Result<u32> {
    Ok(CompletionQueue::create(&on.guest, on.uar, on.eqn, LOG_CQES)?.cqn)
}

/// Stores an entry everywhere in the ring.
fn fill(guest: &Guest, params: &CreateQp, entry: &[u8]) {
    let place = |nth: u64| params.sq_table.get() + (nth << LOG_STRIDE);
    (0..1 << LOG_WQES).for_each(|nth| guest.ram().write(place(nth), entry));
}

/// Brings a datagram QP to Ready to Send.
fn datagrams(guest: &Guest, qpn: u32) {
    let init = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::QKEY;
    let rts = AttrMask::STATE | AttrMask::SQ_PSN;
    let attr = Attr { port: 1, qkey: QKEY.into(), ..Attr::default() };
    let steps = [(State::Init, init), (State::Rtr, AttrMask::STATE), (State::Rts, rts)];
    guest.take_through(qpn, attr, &steps);
}

/// Moves a QP to the error state.
fn fail(guest: &Guest, qpn: u32) -> Result<(), Refused> {
    let attr = Attr { state: State::Err as u8, ..Attr::default() };
    guest.modify_qp(qpn, AttrMask::STATE, &attr)
}
