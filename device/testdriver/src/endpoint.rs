//! A PD, a region, CQs and a QP: what most tests and all benchmarks need on each side.

use anyhow::Context;
use vrnic_abi::admin::CreateEq;
use vrnic_abi::cq::{Cqe, Status};
use vrnic_abi::eq::EQE_LEN;
use vrnic_abi::qp::{Access, Attr};
use vrnic_abi::sq::Sge;

use crate::cq::CompletionQueue;
use crate::eq::EventQueue;
use crate::guest::Guest;
use crate::qp::{QpSetup, QueuePair, Send, sge};

/// Full rights on a region.
pub const ALL_ACCESS: u32 = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .bits();

/// Sizes and kinds.
#[derive(Clone, Copy, Debug)]
pub struct EndpointSetup {
    /// Length of the region in bytes.
    pub buffer: u64,
    /// log2 of the entries of both CQs.
    pub log_cqes: u8,
    /// log2 of the entries of both queues.
    pub log_wqes: u8,
    /// log2 of the send stride.
    pub log_stride: u8,
    /// True if the send queue lies in device memory.
    pub in_device: bool,
    /// The MSI-X vector of the CQs.
    pub vector: u16,
    /// True if it is the kernel's, and not of a user context of its own.
    pub kernel: bool,
}

impl Default for EndpointSetup {
    fn default() -> Self {
        Self {
            buffer: 1 << 20,
            log_cqes: 8,
            log_wqes: 6,
            log_stride: 9,
            in_device: false,
            vector: 1,
            kernel: false,
        }
    }
}

/// One side of a connection.
pub struct Endpoint<'a> {
    /// The guest.
    pub guest: &'a Guest,
    /// The context.
    pub context: u32,
    /// Its UAR.
    pub uar: u32,
    /// The PD.
    pub pdn: u32,
    /// Guest address of the region, and its address in work requests.
    pub buffer: u64,
    /// Its key.
    pub key: u32,
    /// Number of the event queue.
    pub eqn: u32,
    /// The event queue.
    pub events: EventQueue,
    /// Vector of the event queue.
    pub vector: u16,
    /// CQ of the send queue.
    pub send_cq: CompletionQueue,
    /// CQ of the receive queue.
    pub recv_cq: CompletionQueue,
    /// The QP.
    pub qp: QueuePair,
}

impl<'a> Endpoint<'a> {
    /// Makes all of it.
    ///
    /// # Errors
    /// Fails as [`Guest::command`] does.
    pub fn new(guest: &'a Guest, setup: &EndpointSetup) -> anyhow::Result<Self> {
        let log_events = 6;
        let (ring, pages) = guest.ring_memory(u64::from(EQE_LEN) << log_events)?;
        let (eqn, slot) = guest.create_eq(&CreateEq::new(pages, setup.vector, log_events))?;
        let events = EventQueue::new(guest.memory(), ring, log_events, slot);
        Self::with_events(guest, setup, (eqn, events))
    }

    /// Like [`Self::new`] with the event queue of another, of which there are few.
    ///
    /// # Errors
    /// Fails as [`Guest::command`] does.
    pub fn beside(other: &Self, setup: &EndpointSetup) -> anyhow::Result<Self> {
        Self::with_events(other.guest, setup, (other.eqn, other.events.clone()))
    }

    fn with_events(
        guest: &'a Guest,
        setup: &EndpointSetup,
        (eqn, events): (u32, EventQueue),
    ) -> anyhow::Result<Self> {
        let (context, uar) = if setup.kernel {
            (0, 0)
        } else {
            let context = guest.alloc_context()?;
            (context, guest.alloc_uar(context)?)
        };
        let pdn = guest.alloc_pd(context)?;
        let buffer = guest.ram.alloc(setup.buffer)?;
        let key = guest.reg_flat(pdn, ALL_ACCESS, buffer, setup.buffer)?;
        let send_cq = CompletionQueue::create(guest, uar, eqn, setup.log_cqes)?;
        let recv_cq = CompletionQueue::create(guest, uar, eqn, setup.log_cqes)?;
        let qp = QpSetup {
            pdn,
            send_cqn: send_cq.cqn,
            recv_cqn: recv_cq.cqn,
            uar,
            log_size: setup.log_wqes,
            log_stride: setup.log_stride,
            in_device: setup.in_device,
        };
        let qp = QueuePair::create(guest, &qp)?;
        let vector = setup.vector;
        Ok(Self {
            guest,
            context,
            uar,
            pdn,
            buffer,
            key,
            eqn,
            events,
            vector,
            send_cq,
            recv_cq,
            qp,
        })
    }

    /// Connects two sides.
    ///
    /// # Errors
    /// Fails as [`Guest::command`] does.
    pub fn connect(a: &Self, b: &Self) -> anyhow::Result<()> {
        Self::connect_with(a, b, |_| {})
    }

    /// Connects two sides with other attributes.
    ///
    /// # Errors
    /// Fails as [`Guest::command`] does.
    pub fn connect_with(a: &Self, b: &Self, tune: impl Fn(&mut Attr)) -> anyhow::Result<()> {
        a.qp.connect(a.guest, b.guest.mac, b.qp.qpn, &tune).context("one side")?;
        b.qp.connect(b.guest, a.guest.mac, a.qp.qpn, &tune).context("other side")
    }

    /// A segment of the region.
    #[must_use]
    pub fn sge(&self, offset: u64, len: u32) -> Sge {
        sge(self.buffer + offset, len, self.key)
    }

    /// Posts a send and waits for its completion.
    ///
    /// # Errors
    /// When it does not come.
    pub fn run(&mut self, wr: &Send) -> anyhow::Result<Cqe> {
        self.qp.post_send(self.guest, wr)?;
        self.send_cq.wait(self.guest)
    }

    /// Posts a send and checks the status of its completion.
    ///
    /// # Errors
    /// When it does not come, or another.
    pub fn run_expecting(&mut self, wr: &Send, wr_id: u64, status: Status) -> anyhow::Result<Cqe> {
        self.qp.post_send(self.guest, wr)?;
        self.send_cq.expect(self.guest, wr_id, status)
    }

    /// Fills part of the region.
    ///
    /// # Errors
    /// When it lies outside guest memory.
    pub fn fill(&self, offset: u64, bytes: &[u8]) -> anyhow::Result<()> {
        self.guest.ram.write(self.buffer + offset, bytes)
    }

    /// Reads part of the region.
    ///
    /// # Errors
    /// When it lies outside guest memory.
    pub fn bytes(&self, offset: u64, len: usize) -> anyhow::Result<Vec<u8>> {
        self.guest.ram.read(self.buffer + offset, len)
    }
}
