// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Requests that are being built, from their first call to the send queue.

use std::cell::UnsafeCell;

use rustix::io::Errno;
use vrnic_abi::sq::{AtomicSeg, DatagramSeg, Sge, XrcSeg};
use vrnic_queues::heap::copied;
use vrnic_queues::layout::WqeHeader;
use vrnic_queues::qp::StagedSends;
use vrnic_queues::request::{Data, Payload, PostError, SendHeader};

use super::request::errno;

/// Requests being built. Only the thread between `wr_start` and its end uses them, which holds the
/// send queue's lock.
#[derive(Default)]
pub(in crate::ffi) struct Builder(UnsafeCell<State>);

// SAFETY: the cell is touched only by the thread that holds the send queue's lock, by libibverbs'
// rule that the calls between `wr_start` and `wr_complete` or `wr_abort` come from one thread.
unsafe impl Sync for Builder {}
// SAFETY: it is empty while no thread builds.
unsafe impl Send for Builder {}

impl Builder {
    /// Returns the requests.
    ///
    /// # Safety
    /// This thread must have the send queue's lock by `wr_start`, or be in `wr_start`; no code may
    /// hold another reference to the requests.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the send queue's lock guards the cell")]
    pub(in crate::ffi) unsafe fn state(&self) -> &mut State {
        // SAFETY: the caller's thread has the lock of the queue, so that no other thread touches
        // the cell.
        unsafe { &mut *self.0.get() }
    }
}

/// The requests that were built since `wr_start`.
#[derive(Default)]
pub(in crate::ffi) struct State {
    /// The complete requests; `None` for a queue pair without a send queue.
    staged: Option<StagedSends<'static>>,
    current: Option<Request>,
    /// The headers of the current request, if that is a large TCP segment.
    headers: Option<Headers>,
    error: Option<Errno>,
}

/// The headers of a large TCP segment for several frames.
struct Headers {
    /// Maximum number of bytes of payload in a frame.
    mss: u16,
    bytes: Vec<u8>,
}

/// A request that is not complete.
struct Request {
    header: SendHeader,
    operands: Option<AtomicSeg>,
    to: Option<To>,
    data: Option<Kept>,
}

/// The destination of a request, unless the queue pair has one.
#[derive(Clone, Copy)]
pub(in crate::ffi) enum To {
    /// The address of a datagram.
    Datagram(DatagramSeg),
    /// The shared receive queue of an XRC initiator's request.
    Xrc(XrcSeg),
}

/// The data of a request whose destination was not given yet.
enum Kept {
    Segments(Vec<Sge>),
    Inline(Vec<u8>),
}

/// Returns the payload of a complete request.
#[inline]
fn payload(to: Option<To>, data: Data<'_>) -> Payload<'_> {
    match to {
        None => Payload::Plain(data),
        Some(To::Datagram(to)) => Payload::Datagram(to, data),
        Some(To::Xrc(to)) => Payload::Xrc(to, data),
    }
}

impl State {
    /// Begins with requests that go into `staged`.
    pub(in crate::ffi) fn new(staged: StagedSends<'static>) -> Self {
        Self { staged: Some(staged), current: None, headers: None, error: None }
    }

    /// Records the first error, after which nothing is posted.
    pub(in crate::ffi) fn fail(&mut self, error: Errno) {
        self.error.get_or_insert(error);
        self.current = None;
        self.headers = None;
    }

    /// Adds a complete request.
    pub(in crate::ffi) fn push(&mut self, header: SendHeader, payload: Payload<'_>) {
        let Some(staged) = &mut self.staged else { return };
        if self.error.is_none()
            && let Err(error) = staged.push(header, payload)
        {
            self.fail(errno(error));
        }
    }

    /// Begins a request.
    pub(in crate::ffi) fn begin(&mut self, header: SendHeader, operands: Option<AtomicSeg>) {
        self.finish();
        self.current = Some(Request { header, operands, to: None, data: None });
    }

    /// Begins a request for a large TCP segment, whose headers it copies.
    pub(in crate::ffi) fn begin_segment(&mut self, header: SendHeader, mss: u16, headers: &[u8]) {
        self.begin(header, None);
        match concatenated(&[headers]) {
            Ok(bytes) => self.headers = Some(Headers { mss, bytes }),
            Err(error) => self.fail(error),
        }
    }

    /// Completes the previous request, if it still waits. A request that never got its data has
    /// none; a request without its destination is an error.
    pub(in crate::ffi) fn finish(&mut self) {
        match &self.current {
            None => {}
            Some(request) if request.to.is_none() && self.names_destinations() => {
                self.fail(errno(PostError::Address));
            }
            Some(_) => self.set_segments(&[]),
        }
    }

    /// Returns the header of the queue pair's WQEs; `None` without a send queue.
    pub(in crate::ffi) fn wqe_header(&self) -> Option<WqeHeader> {
        self.staged.as_ref().map(StagedSends::wqe_header)
    }

    /// Returns whether each request must name a destination.
    fn names_destinations(&self) -> bool {
        matches!(self.wqe_header(), Some(WqeHeader::Datagram | WqeHeader::Xrc))
    }

    /// Sets the data of the current request to segments.
    #[inline]
    pub(in crate::ffi) fn set_segments(&mut self, segments: &[Sge]) {
        let Some(request) = self.current.take() else { return self.fail(Errno::INVAL) };
        if request.to.is_none() && self.names_destinations() {
            return self.keep(request, copied(segments).map(Kept::Segments));
        }
        if let Some(Headers { mss, bytes }) = self.headers.take() {
            let payload = Payload::Segment { mss, headers: &bytes, data: segments };
            return self.push(request.header, payload);
        }
        let data = match request.operands {
            None => Data::Segments(segments),
            Some(operands) => Data::Atomic(operands, segments),
        };
        self.push(request.header, payload(request.to, data));
    }

    /// Sets the data of the current request to a copy of `pieces`.
    pub(in crate::ffi) fn set_inline(&mut self, pieces: &[&[u8]]) {
        let Some(request) = self.current.take() else { return self.fail(Errno::INVAL) };
        if request.operands.is_some() || self.headers.is_some() {
            return self.fail(errno(PostError::Inline));
        }
        if request.to.is_none() && self.names_destinations() {
            return self.keep(request, concatenated(pieces).map(Kept::Inline));
        }
        self.push(request.header, payload(request.to, Data::Inline(pieces)));
    }

    /// Keeps the data of a request until its destination is known.
    fn keep(&mut self, request: Request, data: Result<Kept, Errno>) {
        match data {
            Ok(data) => self.current = Some(Request { data: Some(data), ..request }),
            Err(error) => self.fail(error),
        }
    }

    /// Sets the destination of the current request, whose data may be known already.
    pub(in crate::ffi) fn set_destination(&mut self, to: To) {
        let Some(request) = &mut self.current else { return self.fail(Errno::INVAL) };
        request.to = Some(to);
        match request.data.take() {
            None => {}
            Some(Kept::Segments(segments)) => self.set_segments(&segments),
            Some(Kept::Inline(bytes)) => self.set_inline(&[&bytes]),
        }
    }

    /// Posts all requests that were built, or none.
    ///
    /// # Errors
    /// The first error of a request; `EINVAL` without a send queue.
    pub(in crate::ffi) fn post(mut self) -> Result<(), Errno> {
        self.finish();
        match self.error {
            Some(error) => Err(error),
            None => self.staged.ok_or(Errno::INVAL).map(StagedSends::post),
        }
    }
}

/// Copies pieces of data to one place.
fn concatenated(pieces: &[&[u8]]) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    for piece in pieces {
        bytes.try_reserve(piece.len()).map_err(|_| Errno::NOMEM)?;
        bytes.extend_from_slice(piece);
    }
    Ok(bytes)
}
