// SPDX-License-Identifier: GPL-2.0
//! Two queue pairs of a device, connected to each other.

use core::ops::Range;

use kernel::{prelude::*, sync::Arc};

use crate::{
    kclient::{
        attached::Attached,
        cq::{Cq, Poll},
        mapped::{Mapped, Part},
        memory::Memory,
        pd::{Device, Pd},
        qp::{Caps, Qp},
        request::Request,
        work::Op,
    },
    path::{Gid, PORT, Path},
    states::{self, Verbs},
};

/// Requests outstanding on a queue.
pub(crate) const DEPTH: u32 = 16;
/// Bytes of inline data.
pub(crate) const INLINE: usize = 64;
/// Bytes of a side's buffer.
pub(crate) const BUFFER: usize = 8192;
/// The first half is for what is sent, the second for what is received.
pub(crate) const HALF: usize = BUFFER / 2;

/// One side of a connection.
pub(crate) struct Side {
    /// The queue pair of this side.
    pub(crate) qp: Qp<Verbs>,
    /// The memory of this side, in one piece.
    pub(crate) buffer: Arc<Mapped>,
    /// A request of the send queue.
    pub(crate) sent: Arc<Request>,
    /// A request of the receive queue.
    pub(crate) received: Arc<Request>,
}

impl Side {
    fn new(pd: &Arc<Pd>, cq: &Arc<Cq>, flags: u32) -> Result<Self> {
        // CAST: a small constant.
        let inline = INLINE as u32;
        let caps = Caps { depth: DEPTH, segments: 1, inline, signal_all: false, flags };
        Ok(Self {
            qp: states::create(pd, cq, caps)?,
            buffer: Mapped::new(pd.device().clone(), Memory::new(1, BUFFER)?)?,
            sent: Request::new()?,
            received: Request::new()?,
        })
    }

    /// Returns the length of the buffer in bytes.
    pub(crate) fn part(&self, range: Range<usize>) -> Result<Part> {
        Part::new(&self.buffer, range)
    }

    /// Posts a receive into the second half of the buffer.
    pub(crate) fn receive(&self) -> Result {
        self.receive_as(&self.received)
    }

    /// Posts another request for receiving.
    pub(crate) fn receive_as(&self, request: &Arc<Request>) -> Result {
        self.qp.receive(request, &self.part(HALF..BUFFER)?)
    }

    /// Posts to the send queue, with the first `length` bytes of the buffer.
    pub(crate) fn post(&self, op: &Op, length: usize) -> Result {
        self.qp.post(&self.sent, op, &self.part(0..length)?)
    }
}

/// Both sides of a connection.
pub(crate) struct Test {
    /// One side.
    pub(crate) a: Side,
    /// The other side.
    pub(crate) b: Side,
    /// The domain of both sides.
    pub(crate) pd: Arc<Pd>,
}

impl Test {
    /// Makes both, a on the largest completion queue that there may be, b on a small one. They are
    /// not connected.
    pub(crate) fn new(device: &Arc<Attached>) -> Result<Self> {
        let largest = device.max_cqe()?;
        let device: Arc<dyn Device> = device.clone();
        // SAFETY: the peer is this test, which names the key only by `Remote::under_global_key`.
        // All other keys that it uses as numbers belong to regions that exist, or
        // `Remote::with_wrong_key` has made them invalid.
        let pd = unsafe { Pd::with_global_key(device.clone()) }?;
        let large = Cq::new(device.clone(), largest, Poll::Workqueue)?;
        let small = Cq::new(device, 4 * DEPTH, Poll::Workqueue)?;
        Self::on(&pd, &large, &small)
    }

    /// Makes both on these completion queues. They are not connected.
    pub(crate) fn on(pd: &Arc<Pd>, a: &Arc<Cq>, b: &Arc<Cq>) -> Result<Self> {
        Self::with_flags(pd, [a, b], 0)
    }

    /// Makes both on these completion queues, b with these creation flags. They are not connected.
    pub(crate) fn with_flags(pd: &Arc<Pd>, [a, b]: [&Arc<Cq>; 2], flags: u32) -> Result<Self> {
        Ok(Self { a: Side::new(pd, a, 0)?, b: Side::new(pd, b, flags)?, pd: pd.clone() })
    }

    /// Connects both sides.
    pub(crate) fn connect(&self) -> Result {
        let gid = Gid::new(self.pd.device(), 0)?;
        let path = Path {
            port: PORT,
            dgid: gid.gid(),
            // The core resolves addresses for user space only; this is the port's own.
            dmac: gid.mac()?,
            sgid_index: gid.index()?,
            hop_limit: 64,
            ..Path::default()
        };
        for (side, peer) in [(&self.a, &self.b), (&self.b, &self.a)] {
            states::connect(&side.qp, states::number(&peer.qp), &path)
                .inspect_err(|error| pr_err!("connecting two queue pairs failed: {error:?}\n"))?;
        }
        Ok(())
    }

    /// Connects them again through the reset state, which ends errors. No request may be
    /// outstanding.
    pub(crate) fn reconnect(&self) -> Result {
        states::reset(&self.a.qp)?;
        states::reset(&self.b.qp)?;
        self.connect()
    }
}
