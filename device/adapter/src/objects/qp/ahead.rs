//! Receives that were taken before their messages are next in order, because octets of these
//! messages have arrived after a gap in the stream. They belong to the QP from then on.

use std::collections::VecDeque;

use vrnic_abi::rq::STRIDE_MAX;

use crate::requests::wqe::RecvWqe;

/// Maximum number of receives that are taken early.
const RECEIVES: usize = 16;

/// A receive with a private copy of its WQE.
#[derive(Debug)]
pub struct ReceiveAhead {
    /// The receive.
    pub wqe: RecvWqe,
    /// The bytes of its WQE.
    pub raw: [u8; STRIDE_MAX as usize],
}

/// Receives that were taken early, in order. Room for all of them is allocated at once.
#[derive(Debug)]
pub struct ReceivesAhead(VecDeque<ReceiveAhead>);

impl Default for ReceivesAhead {
    fn default() -> Self {
        Self(VecDeque::with_capacity(RECEIVES))
    }
}

impl ReceivesAhead {
    /// Returns the receive at an index, after taking all receives up to it with `fetch`. Returns
    /// `None` if there are too few, or if there is no room.
    pub fn get(
        &mut self,
        nth: usize,
        mut fetch: impl FnMut(&mut [u8]) -> Option<RecvWqe>,
    ) -> Option<&ReceiveAhead> {
        while self.0.len() <= nth {
            if self.0.len() == RECEIVES {
                return None;
            }
            let mut raw = [0; STRIDE_MAX as usize];
            let wqe = fetch(&mut raw)?;
            self.0.push_back(ReceiveAhead { wqe, raw });
        }
        self.0.get(nth)
    }

    /// Removes the first one, and returns it.
    pub fn pop(&mut self) -> Option<ReceiveAhead> {
        self.0.pop_front()
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
