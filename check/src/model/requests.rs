//! Requests between post and completion.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use smallvec::SmallVec;

use crate::bytes::{self, Extent, Print};
use crate::ffi::{
    IBV_ACCESS_LOCAL_WRITE, IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SIGNALED,
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV,
};
use crate::guard::Guard;
use crate::model::regions::{Region, Sge};
use crate::stack::Place;

/// Segments of a request that is posted. Most have one.
pub(crate) type Sges = SmallVec<[Sge; 1]>;
/// Requests that are posted together. Most are single ones.
pub(crate) type Batch = SmallVec<[Posted; 1]>;

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
    pub(crate) segments: Sges,
    /// The remote key of an RDMA write, if it is known.
    pub(crate) target: Option<u32>,
}

impl Posted {
    pub(crate) fn is_inline(&self) -> bool {
        self.opcode.is_some() && self.flags & IBV_SEND_INLINE != 0
    }

    pub(crate) fn is_signaled(&self) -> bool {
        self.flags & IBV_SEND_SIGNALED != 0
    }

    /// Returns whether reads and atomic operations before it may still change its data.
    pub(crate) fn is_fenced(&self) -> bool {
        self.flags & IBV_SEND_FENCE != 0
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

/// The segments of a request that is outstanding.
pub(crate) type Segments = SmallVec<[Segment; 1]>;

/// A request that is outstanding.
#[derive(Debug)]
pub(crate) struct Request {
    /// Grows with each request of a queue.
    pub(crate) number: u64,
    pub(crate) id: u64,
    pub(crate) place: Place,
    /// True if it completes also if it succeeds.
    pub(crate) is_signaled: bool,
    /// True if the library has taken it.
    pub(crate) is_taken: bool,
    /// True if it is a read or an atomic operation, which fills its segments.
    pub(crate) is_filled: bool,
    /// True if it sends its segments, and does not wait for reads before it.
    pub(crate) is_unfenced: bool,
    /// The remote key of an RDMA write, if it is known.
    pub(crate) target: Option<u32>,
    /// What was in the buffers.
    pub(crate) print: Option<u64>,
    pub(crate) segments: Segments,
    /// The guards of its buffers.
    pub(crate) guards: Vec<Guard>,
}

impl Request {
    /// Returns what is in its buffers now; none if some are not this process's memory.
    pub(crate) fn look(&self, is_strict: bool) -> Option<Print> {
        let range = |segment: &Segment| segment.region.as_ref()?.range(&segment.sge);
        if self.segments.is_empty() || self.segments.iter().any(|segment| range(segment).is_none())
        {
            return None;
        }
        let extent = if is_strict { Extent::All } else { Extent::Samples(self.number) };
        Some(bytes::fingerprint(self.segments.iter().filter_map(range), extent))
    }

    /// Guards those of its buffers that the program may write to, as far as they fill pages.
    pub(crate) fn guard(&mut self) {
        let guard = |segment: &Segment| {
            let region = segment.region.as_ref()?;
            let is_writable = region.access & IBV_ACCESS_LOCAL_WRITE != 0;
            Guard::new(region.range(&segment.sge).filter(|_| is_writable)?)
        };
        self.guards = self.segments.iter().filter_map(guard).collect();
    }

    /// Returns the bytes of all segments together.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| u64::from(segment.sge.length)).sum()
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
    /// Number of requests that the library has taken.
    taken: usize,
    /// Number of reads and atomic operations.
    filled: usize,
    /// The number of the next one.
    next: u64,
}

impl Queue {
    /// Adds requests that the library may still refuse, each of which is made with its number.
    /// Returns their numbers.
    pub(crate) fn push<T>(
        &mut self,
        posted: impl IntoIterator<Item = T>,
        mut prepare: impl FnMut(T, u64) -> Request,
    ) -> Range<u64> {
        let first = self.next;
        for posted in posted {
            let request = prepare(posted, self.next);
            request.hold();
            self.filled += usize::from(request.is_filled);
            self.requests.push_back(request);
            self.next += 1;
        }
        first..self.next
    }

    /// Takes out the request at a place. `completes` counts the completions that its completion
    /// queue will get.
    pub(crate) fn take(&mut self, place: usize, completes: Option<&AtomicI64>) -> Option<Request> {
        let request = self.requests.remove(place)?;
        request.release();
        self.filled -= usize::from(request.is_filled);
        if request.is_taken {
            self.taken -= 1;
            if request.is_signaled
                && let Some(expected) = completes
            {
                expected.fetch_sub(1, Ordering::Relaxed);
            }
        }
        Some(request)
    }

    /// Returns the number of reads and atomic operations.
    pub(crate) fn filled(&self) -> usize {
        self.filled
    }

    /// Returns how many requests the library has taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Notes how many of these requests the library has taken. The others were refused.
    pub(crate) fn settle(
        &mut self,
        numbers: Range<u64>,
        taken: u64,
        completes: Option<&AtomicI64>,
    ) {
        let refused = numbers.start.saturating_add(taken).min(numbers.end);
        let mut place = if numbers.is_empty() { 0 } else { self.requests.len() };
        while place > 0 {
            place -= 1;
            let Some(request) = self.requests.get_mut(place) else { return };
            if request.number < numbers.start {
                return;
            }
            if request.number >= numbers.end {
                continue;
            }
            if request.number >= refused {
                self.take(place, None);
                continue;
            }
            request.is_taken = true;
            self.taken += 1;
            if request.is_signaled
                && let Some(expected) = completes
            {
                expected.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns the place of the oldest request with an identifier of the program.
    pub(crate) fn find(&self, id: u64) -> Option<usize> {
        self.requests.iter().position(|request| request.id == id)
    }

    /// Returns the place of the oldest signaled request with an identifier of the program.
    pub(crate) fn find_signaled(&self, id: u64) -> Option<usize> {
        self.requests.iter().position(|request| request.is_signaled && request.id == id)
    }

    /// Forgets all requests.
    pub(crate) fn clear(&mut self, completes: Option<&AtomicI64>) {
        while self.take(0, completes).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(id: u64, number: u64) -> Request {
        Request {
            number,
            id,
            place: Place::default(),
            is_signaled: true,
            is_taken: false,
            is_filled: id == 2,
            is_unfenced: false,
            target: None,
            print: None,
            segments: Segments::new(),
            guards: Vec::new(),
        }
    }

    #[test]
    fn only_requests_that_the_library_has_taken_count() {
        let expected = AtomicI64::new(0);
        let mut queue = Queue::default();
        let first = queue.push([1, 2], request);
        let second = queue.push([3, 4], request);
        assert_eq!((queue.taken(), expected.load(Ordering::Relaxed)), (0, 0));
        // A completion arrives before the call that has posted its request returns.
        let place = queue.find(1).expect("the first request");
        queue.take(place, Some(&expected));
        queue.settle(first, 2, Some(&expected));
        assert_eq!((queue.taken(), expected.load(Ordering::Relaxed)), (1, 1));
        queue.settle(second, 1, Some(&expected));
        assert_eq!((queue.taken(), expected.load(Ordering::Relaxed)), (2, 2));
        assert_eq!((queue.find(4), queue.filled()), (None, 1));
        queue.clear(Some(&expected));
        assert_eq!(queue.filled(), 0);
        assert_eq!((queue.taken(), expected.load(Ordering::Relaxed)), (0, 0));
    }
}
