//! A driver: brings an adapter up, sends admin commands, posts work and polls queues.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vrnic_abi::admin::{
    Command, Completion, CreateCq, CreateEq, CreateQp, DeviceCaps, ModifyQp, Opcode, PARAMS_LEN,
    Pages, QueryParams, QueryQp, RESULT_LEN, RegMr, ResizeCq, Stats, Status, Submission, command,
};
use vrnic_abi::cq::Cqe;
use vrnic_abi::doorbell::{CQ_SEEN, Doorbell, arm_request, ci_and_arm};
use vrnic_abi::eq::{Eqe, Kind};
use vrnic_abi::qp::{Attr, AttrMask};
use vrnic_abi::{SlotIndex, regs, stamp, uar};
use vrnic_adapter::adapter::Adapter;
use vrnic_adapter::datapath::transport::peers::Fabric;
use vrnic_adapter::host::{GuestMemory, HeldMemory, Lane};
use vrnic_adapter::limits::Limits;
use zerocopy::{FromBytes, IntoBytes};

use super::host::{BASE, TestHost};

const ADMIN_LOG: u32 = 4;
pub(crate) const ASYNC_LOG: u8 = 4;

/// Status and detail of a refused command.
pub(crate) type Refused = (Status, u32);

/// A guest with its adapter.
pub(crate) struct Guest {
    pub(crate) adapter: Arc<Adapter<TestHost>>,
    pub(crate) host: TestHost,
    next: Cell<u64>,
    admin_sq: u64,
    admin_cq: u64,
    admin_index: Cell<u32>,
    pub(crate) events: RefCell<EventQueue>,
}

/// A ring of events, as its reader sees it.
pub(crate) struct EventQueue {
    pub(crate) ring: u64,
    pub(crate) log: u8,
    pub(crate) slot: u32,
    pub(crate) ci: u32,
}

/// A ring of completions, as its reader sees it.
pub(crate) struct CompletionQueue {
    pub(crate) cqn: u32,
    pub(crate) ring: u64,
    pub(crate) log: u8,
    pub(crate) uar: u32,
    pub(crate) slot: u32,
    pub(crate) ci: u32,
    pub(crate) arms: u32,
}

/// Offset in BAR2 of a slot.
pub(crate) fn slot_offset(uar: u32, slot: u32) -> u64 {
    Doorbell::new(uar.into(), slot.into()).offset()
}

/// The parameters of a command, with zeroes behind.
pub(crate) fn padded(params: &[u8]) -> [u8; PARAMS_LEN] {
    let mut bytes = [0; PARAMS_LEN];
    bytes[..params.len()].copy_from_slice(params);
    bytes
}

impl Guest {
    /// An adapter on `fabric` whose driver has enabled it.
    pub(crate) fn new(number: u8, fabric: &Arc<Fabric<TestHost>>, clock: &Arc<AtomicU64>) -> Self {
        Self::with(number, fabric, clock, (1, Limits::default()))
    }

    /// Creates a host with so many workers, or room for fewer objects.
    pub(crate) fn with(
        number: u8,
        fabric: &Arc<Fabric<TestHost>>,
        clock: &Arc<AtomicU64>,
        (workers, limits): (usize, Limits),
    ) -> Self {
        let host = TestHost::new(clock);
        let mac = [2, 0, 0, 0, 0, number];
        let name = format!("f{number}");
        let adapter = Adapter::new(&name, mac, host.clone(), fabric, workers, limits);
        adapter.set_link(true);
        let mut guest = Self {
            adapter,
            host,
            next: Cell::new(BASE),
            admin_sq: 0,
            admin_cq: 0,
            admin_index: Cell::new(0),
            events: RefCell::new(EventQueue {
                ring: 0,
                log: ASYNC_LOG,
                slot: uar::ASYNC_EQ_SLOT,
                ci: 0,
            }),
        };
        guest.bring_up();
        guest
    }

    /// Sets the rings up, in fresh memory, and enables.
    pub(crate) fn bring_up(&mut self) {
        self.admin_sq = self.alloc(64 << ADMIN_LOG);
        self.admin_cq = self.alloc(64 << ADMIN_LOG);
        self.admin_index.set(0);
        let events = self.alloc(16 << ASYNC_LOG);
        *self.events.borrow_mut() =
            EventQueue { ring: events, log: ASYNC_LOG, slot: uar::ASYNC_EQ_SLOT, ci: 0 };
        self.set_address(regs::ADMIN_SQ_LO, self.admin_sq);
        self.set_address(regs::ADMIN_CQ_LO, self.admin_cq);
        self.set(regs::ADMIN_LOG_SIZE, ADMIN_LOG);
        self.set_address(regs::ASYNC_EQ_LO, events);
        self.set(regs::ASYNC_EQ_LOG_SIZE, u32::from(ASYNC_LOG));
        self.set(regs::CONTROL, regs::Control::ENABLE.bits());
        assert!(self.status().contains(regs::Status::ENABLED), "adapter is not enabled");
    }

    /// Guest addresses of the admin rings.
    pub(crate) fn admin_rings(&self) -> (u64, u64) {
        (self.admin_sq, self.admin_cq)
    }

    pub(crate) fn status(&self) -> regs::Status {
        regs::Status::from_bits_retain(self.adapter.read_register(regs::STATUS))
    }

    /// Writes a register and lets the control thread act.
    pub(crate) fn set(&self, offset: u32, value: u32) {
        if self.adapter.write_register(offset, value) {
            self.adapter.control();
        }
    }

    pub(crate) fn set_address(&self, offset: u32, addr: u64) {
        self.set(offset, addr as u32);
        self.set(offset + 4, (addr >> 32) as u32);
    }

    /// Zeroed pages.
    pub(crate) fn alloc(&self, len: u64) -> u64 {
        let at = self.next.get();
        self.next.set(at + len.next_multiple_of(4096).max(4096));
        at
    }

    pub(crate) fn write(&self, addr: u64, bytes: &[u8]) {
        self.host.hold(Lane::SHARED).write(addr, bytes).expect("write guest memory");
    }

    pub(crate) fn read(&self, addr: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.host.hold(Lane::SHARED).read(addr, &mut bytes).expect("read guest memory");
        bytes
    }

    pub(crate) fn fetch<T: FromBytes>(&self, addr: u64) -> T {
        T::read_from_bytes(&self.read(addr, size_of::<T>())).expect("length")
    }

    /// Sends a command of raw bytes and returns its completion.
    pub(crate) fn raw_command(
        &self,
        opcode: u16,
        flags: u16,
        params: [u8; PARAMS_LEN],
    ) -> Completion {
        let index = self.admin_index.get();
        self.admin_index.set(index.wrapping_add(1));
        let id = index ^ 0x5a5a;
        let command =
            Submission { opcode: opcode.into(), flags: flags.into(), id: id.into(), params };
        let offset = u64::from(index % (1 << ADMIN_LOG)) * 64;
        self.write(self.admin_sq + offset, command.as_bytes());
        self.set(regs::ADMIN_SQ_PI, index.wrapping_add(1));
        let completion: Completion = self.fetch(self.admin_cq + offset);
        assert_eq!(completion.stamp.get(), stamp(index), "command was not completed");
        assert_eq!((completion.id.get(), completion.opcode.get()), (id, opcode));
        completion
    }

    /// Sends a command and returns its result.
    pub(crate) fn command<C: Command>(&self, params: &C::Params) -> Result<C::Reply, Refused> {
        let result = self.bytes_command(C::OPCODE, params.as_bytes())?;
        Ok(C::Reply::read_from_prefix(&result).expect("result").0)
    }

    /// Sends a command about an object and returns the number in its result, if it has one.
    pub(crate) fn on_object(&self, opcode: Opcode, id: u32) -> Result<u32, Refused> {
        let result = self.bytes_command(opcode, &id.to_le_bytes())?;
        Ok(u32::read_from_prefix(&result).expect("result").0)
    }

    fn bytes_command(&self, opcode: Opcode, params: &[u8]) -> Result<[u8; RESULT_LEN], Refused> {
        let completion = self.raw_command(opcode as u16, 0, padded(params));
        match Status::from_raw(completion.status.get()).expect("known status") {
            Status::Ok => Ok(completion.result),
            status => Err((status, completion.detail.get())),
        }
    }

    pub(crate) fn reg_flat(
        &self,
        pdn: u32,
        access: u32,
        addr: u64,
        len: u64,
    ) -> Result<u32, Refused> {
        let params = RegMr::new(pdn, access, addr, len, Pages::new(addr & !0xfff, 12, 0));
        self.command::<command::RegMr>(&params).map(|key| key.get())
    }

    /// An event queue of `1 << log` entries on `vector`.
    pub(crate) fn create_eq(&self, vector: u16, log: u8) -> (u32, EventQueue) {
        let ring = self.alloc(16 << log);
        let params = CreateEq::new(Pages::new(ring, 12, 0), vector, log);
        let result = self.command::<command::CreateEq>(&params).expect("CREATE_EQ");
        (result.eqn.get(), EventQueue { ring, log, slot: result.slot.get(), ci: 0 })
    }

    pub(crate) fn create_cq(
        &self,
        uar: u32,
        eqn: u32,
        log: u8,
    ) -> Result<CompletionQueue, Refused> {
        let ring = self.alloc(64 << log);
        let params = CreateCq::new(uar, eqn, log, Pages::new(ring, 12, 0));
        let result = self.command::<command::CreateCq>(&params)?;
        let (cqn, slot) = (result.cqn.get(), result.slot.get());
        Ok(CompletionQueue { cqn, ring, log, uar, slot, ci: 0, arms: 0 })
    }

    /// Continues a CQ in `1 << log` entries at `ring`, as a driver does: what the old ring still
    /// holds is copied.
    pub(crate) fn resize_cq(
        &self,
        cq: &mut CompletionQueue,
        ring: u64,
        log: u8,
    ) -> Result<(), Refused> {
        for slot in 0..1u64 << log {
            self.write(ring + slot * 64 + 60, &cq.ci.to_le_bytes());
        }
        let params = ResizeCq::new(cq.cqn, log, Pages::new(ring, 12, 0));
        let first = self.command::<command::ResizeCq>(&params)?.first.get();
        let mut index = cq.ci;
        while index != first {
            let slot = |log: u8| u64::from(index & ((1 << log) - 1)) * 64;
            let entry = self.read(cq.ring + slot(cq.log), 64);
            assert_eq!(entry[60..], stamp(index).to_le_bytes(), "entry {index} of the old ring");
            self.write(ring + slot(log), &entry);
            index = index.wrapping_add(1);
        }
        (cq.ring, cq.log) = (ring, log);
        Ok(())
    }

    pub(crate) fn create_qp(&self, params: &CreateQp) -> Result<(u32, u32, u64), Refused> {
        let result = self.command::<command::CreateQp>(params)?;
        Ok((result.qpn.get(), result.slot.get(), result.sq_offset.get()))
    }

    pub(crate) fn modify_qp(&self, qpn: u32, mask: AttrMask, attr: &Attr) -> Result<(), Refused> {
        let buffer = self.alloc(size_of::<Attr>() as u64);
        self.write(buffer, attr.as_bytes());
        self.command::<command::ModifyQp>(&ModifyQp::new(qpn, mask.bits(), buffer))
    }

    pub(crate) fn query_qp(&self, qpn: u32) -> Result<Attr, Refused> {
        let buffer = self.alloc(size_of::<Attr>() as u64);
        self.command::<command::QueryQp>(&QueryQp::new(qpn, buffer))?;
        Ok(self.fetch(buffer))
    }

    pub(crate) fn caps(&self) -> DeviceCaps {
        let buffer = self.alloc(4096);
        let params = QueryParams::new(buffer, size_of::<DeviceCaps>() as u32);
        self.command::<command::QueryDevice>(&params).expect("QUERY_DEVICE");
        self.fetch(buffer)
    }

    pub(crate) fn stats(&self) -> Stats {
        let buffer = self.alloc(4096);
        let params = QueryParams::new(buffer, size_of::<Stats>() as u32);
        self.command::<command::QueryStats>(&params).expect("QUERY_STATS");
        self.fetch(buffer)
    }

    /// Sets the summary bit of a slot, as a doorbell does.
    pub(crate) fn ring(&self, uar: u32, slot: u32) {
        let summary = self.host.bar().word(slot_offset(uar, 0)).expect("UAR");
        summary.fetch_or(SlotIndex::new(slot).summary_bit(), Ordering::SeqCst);
    }

    /// Takes the next asynchronous event.
    pub(crate) fn event(&self) -> Option<(Kind, u32)> {
        self.events.borrow_mut().poll(self)
    }

    /// All asynchronous events, in order.
    pub(crate) fn drain_events(&self) -> Vec<(Kind, u32)> {
        std::iter::from_fn(|| self.event()).collect()
    }
}

impl EventQueue {
    pub(crate) fn poll(&mut self, guest: &Guest) -> Option<(Kind, u32)> {
        let slot = u64::from(self.ci & ((1 << self.log) - 1));
        let event: Eqe = guest.fetch(self.ring + slot * 16);
        if event.stamp.get() != stamp(self.ci) {
            return None;
        }
        self.ci = self.ci.wrapping_add(1);
        guest.host.bar_store32(slot_offset(0, self.slot), self.ci);
        Some((Kind::from_raw(event.kind).expect("kind"), event.id.get()))
    }
}

impl CompletionQueue {
    /// The next entry, without giving its place back.
    pub(crate) fn peek(&self, guest: &Guest) -> Option<Cqe> {
        let at = self.ring + u64::from(self.ci & ((1 << self.log) - 1)) * 64;
        // The stamp first: it was written last.
        let written = guest.read(at + 60, 4) == stamp(self.ci).to_le_bytes();
        written.then(|| guest.fetch(at))
    }

    pub(crate) fn poll(&mut self, guest: &Guest) -> Option<Cqe> {
        let cqe = self.peek(guest)?;
        self.ci = self.ci.wrapping_add(1);
        guest.host.bar_store32(slot_offset(self.uar, self.slot), self.ci);
        Some(cqe)
    }

    pub(crate) fn arm(&mut self, guest: &Guest, kind: u32) {
        self.arms = self.arms.wrapping_add(1);
        let arm = arm_request(self.arms, kind);
        let word = ci_and_arm(self.ci, arm);
        let at = slot_offset(self.uar, self.slot);
        guest.host.bar_store32(at + u64::from(CQ_SEEN), self.ci);
        guest.host.bar().word(at).expect("slot").store(word, Ordering::Release);
        guest.ring(self.uar, self.slot);
    }
}
