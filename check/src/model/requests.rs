//! Requests between post and completion.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::bytes::{self, Print, Range};
use crate::ffi::{
    IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD,
    IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV,
};
use crate::model::regions::{Region, Sge};
use crate::stack::Place;

/// A request as the program has posted it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Posted {
    pub(crate) id: u64,
    /// The opcode of a send (`IBV_WR_SEND` and so on); none for a receive.
    pub(crate) opcode: Option<u32>,
    /// `IBV_SEND_SIGNALED` and so on.
    pub(crate) flags: u32,
    /// The number of segments that the program has given.
    pub(crate) count: usize,
    /// The segments, as many as the queue can take.
    pub(crate) segments: Vec<Sge>,
}

impl Posted {
    pub(crate) fn is_inline(&self) -> bool {
        self.opcode.is_some() && self.flags & IBV_SEND_INLINE != 0
    }

    pub(crate) fn is_signaled(&self) -> bool {
        self.flags & IBV_SEND_SIGNALED != 0
    }

    /// Returns whether the device writes to the segments.
    pub(crate) fn is_written(&self) -> bool {
        matches!(
            self.opcode,
            None | Some(IBV_WR_RDMA_READ | IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD)
        )
    }

    /// Returns whether the device reads the segments.
    pub(crate) fn is_read(&self) -> bool {
        matches!(
            self.opcode,
            Some(
                IBV_WR_SEND
                    | IBV_WR_SEND_WITH_IMM
                    | IBV_WR_SEND_WITH_INV
                    | IBV_WR_RDMA_WRITE
                    | IBV_WR_RDMA_WRITE_WITH_IMM
            )
        )
    }

    /// Returns the bytes of all segments together.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| u64::from(segment.length)).sum()
    }
}

/// A segment of a request that is outstanding.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) sge: Sge,
    /// The region of its key, if it is known.
    pub(crate) region: Option<Arc<Region>>,
}

/// A request that is outstanding.
#[derive(Debug)]
pub(crate) struct Request {
    /// Grows with each request of a queue.
    pub(crate) number: u64,
    pub(crate) id: u64,
    pub(crate) place: Place,
    /// True if it completes also if it succeeds.
    pub(crate) is_signaled: bool,
    /// What was in the buffers.
    pub(crate) print: Option<u64>,
    pub(crate) segments: Vec<Segment>,
}

impl Request {
    /// Returns the bytes of its segments in memory; none if some are not this process's memory.
    pub(crate) fn ranges(&self) -> Option<Vec<Range>> {
        let range = |segment: &Segment| segment.region.as_ref()?.range(&segment.sge);
        self.segments.iter().map(range).collect()
    }

    /// Returns what is in its buffers now.
    pub(crate) fn look(&self, is_strict: bool) -> Option<Print> {
        let ranges = self.ranges().filter(|ranges| !ranges.is_empty())?;
        Some(bytes::fingerprint(ranges, is_strict))
    }

    /// Notes that its regions are used.
    pub(crate) fn hold(&self) {
        for region in self.segments.iter().filter_map(|segment| segment.region.as_ref()) {
            region.users.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that its regions are no longer used by it.
    pub(crate) fn release(&self) {
        for region in self.segments.iter().filter_map(|segment| segment.region.as_ref()) {
            region.users.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns whether it uses a region.
    pub(crate) fn uses(&self, region: &Arc<Region>) -> bool {
        let regions = self.segments.iter().filter_map(|segment| segment.region.as_ref());
        regions.into_iter().any(|used| Arc::ptr_eq(used, region))
    }
}

/// The requests of a queue, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) requests: VecDeque<Request>,
    /// The number of the next one.
    next: u64,
}

impl Queue {
    /// Returns the number of the next request.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Adds a request. `completes` counts the completions that its completion queue will get.
    pub(crate) fn push(&mut self, request: Request, completes: Option<&AtomicI64>) {
        request.hold();
        if request.is_signaled
            && let Some(expected) = completes
        {
            expected.fetch_add(1, Ordering::Relaxed);
        }
        self.requests.push_back(request);
    }

    /// Takes out the request at a place.
    pub(crate) fn take(&mut self, place: usize, completes: Option<&AtomicI64>) -> Option<Request> {
        let request = self.requests.remove(place)?;
        request.release();
        if request.is_signaled
            && let Some(expected) = completes
        {
            expected.fetch_sub(1, Ordering::Relaxed);
        }
        Some(request)
    }

    /// Returns the place of the oldest request with an identifier of the program.
    pub(crate) fn find(&self, id: u64) -> Option<usize> {
        self.requests.iter().position(|request| request.id == id)
    }

    /// Returns the place of the oldest signaled request with an identifier of the program.
    pub(crate) fn find_signaled(&self, id: u64) -> Option<usize> {
        self.requests.iter().position(|request| request.is_signaled && request.id == id)
    }

    /// Takes back requests that were refused: those from this number on, of these many.
    pub(crate) fn take_back(
        &mut self,
        numbers: std::ops::Range<u64>,
        completes: Option<&AtomicI64>,
    ) {
        let mut place = self.requests.len();
        while place > 0 {
            place -= 1;
            let number = self.requests.get(place).map_or(0, |request| request.number);
            if numbers.contains(&number) {
                self.take(place, completes);
            } else if number < numbers.start {
                break;
            }
        }
    }

    /// Forgets all requests.
    pub(crate) fn clear(&mut self, completes: Option<&AtomicI64>) {
        while self.take(0, completes).is_some() {}
    }
}
