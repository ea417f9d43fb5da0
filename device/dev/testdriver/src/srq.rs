//! A shared receive queue, as a program sees it.

use std::sync::atomic::Ordering;

use vrnic_abi::admin::{CreateSrq, ResizeSrq, SrqStatus, command};
use vrnic_abi::doorbell::SRQ_FREED;
use vrnic_abi::sq::Sge;
use vrnic_queues::request::write_recv;
use vrnic_queues::ring::Ring;

use crate::admin::Refused;
use crate::bus::Bus;
use crate::endpoint::Endpoint;
use crate::guest::Guest;
use crate::memory::Ram;
use crate::qp::{RECV_LOG_STRIDE, RECV_SGES};

/// log2 of the entries of a [`SharedQueue`].
pub const LOG_SHARED: u8 = 3;

/// The program's side of an SRQ.
pub struct SharedQueue<B> {
    guest: Guest<B>,
    /// The number of the SRQ.
    pub srqn: u32,
    /// The doorbell slot of the SRQ.
    pub slot: u32,
    uar: u32,
    ring: Ring,
    /// The index of the next entry.
    pub pi: u32,
}

impl<B: Bus> SharedQueue<B> {
    /// Creates an SRQ in the context and PD of an endpoint.
    #[must_use]
    pub fn new(e: &Endpoint<B>) -> Self {
        Self::with(e, |_| {})
    }

    /// Creates an SRQ with other parameters.
    pub fn with(e: &Endpoint<B>, tune: impl FnOnce(&mut CreateSrq)) -> Self {
        let (guest, uar) = (e.guest.clone(), e.uar);
        let addr = guest.ram().alloc(1 << (LOG_SHARED + RECV_LOG_STRIDE));
        let ring = guest.ram().ring(addr, LOG_SHARED, RECV_LOG_STRIDE).expect("guest memory");
        let mut params = CreateSrq {
            pages: Ram::pages(addr),
            pdn: e.pdn.into(),
            uar: uar.into(),
            log_size: LOG_SHARED,
            log_stride: RECV_LOG_STRIDE,
            ..CreateSrq::default()
        };
        tune(&mut params);
        let result = guest.command::<command::CreateSrq>(&params).expect("CREATE_SRQ");
        Self { guest, srqn: result.srqn.get(), slot: result.slot.get(), uar, ring, pi: 0 }
    }

    /// Stores a receive and rings the doorbell.
    pub fn post(&mut self, wr_id: u64, sges: &[Sge]) {
        write_recv(self.ring.entry(self.pi), wr_id, sges, RECV_SGES)
            .expect("room for the segments");
        self.pi = self.pi.wrapping_add(1);
        self.publish(self.pi);
    }

    /// Copies the entries from `first` on to a ring of `1 << log_size` entries, and continues
    /// there.
    ///
    /// # Errors
    /// Returns the adapter's refusal. The queue stays in its ring then.
    pub fn resize(&mut self, first: u32, log_size: u8) -> Result<(), Refused> {
        let addr = self.guest.ram().alloc(1 << (log_size + RECV_LOG_STRIDE));
        let ring = self.guest.ram().ring(addr, log_size, RECV_LOG_STRIDE).expect("guest memory");
        for index in (0..self.pi.wrapping_sub(first)).map(|nth| first.wrapping_add(nth)) {
            for (to, from) in ring.entry(index).iter().zip(self.ring.entry(index)) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        let params = ResizeSrq::new(self.srqn, log_size, Ram::pages(addr));
        self.guest.command::<command::ResizeSrq>(&params)?;
        self.ring = ring;
        Ok(())
    }

    /// Stores this producer index.
    pub fn publish(&self, pi: u32) {
        self.guest.slot32(self.uar, self.slot, 0).store(pi, Ordering::Release);
    }

    /// Returns the index below which entries are free, as the adapter reports it.
    #[must_use]
    pub fn freed(&self) -> u32 {
        self.guest.slot32(self.uar, self.slot, SRQ_FREED).load(Ordering::Acquire)
    }

    /// Reads the attributes of the SRQ.
    #[must_use]
    pub fn status(&self) -> SrqStatus {
        self.guest.command::<command::QuerySrq>(&self.srqn.into()).expect("QUERY_SRQ")
    }
}
