//! Receives that were taken before the turn of their messages, because octets of these have come
//! behind a gap in the stream. They belong to the QP from then on.

use std::collections::VecDeque;

use vrnic_abi::rq::STRIDE_MAX;

use crate::requests::wqe::RecvWqe;

/// Receives that may be taken ahead.
const RECEIVES: usize = 16;

/// A receive with a private copy of its WQE.
#[derive(Debug)]
pub struct ReceiveAhead {
    /// The receive.
    pub wqe: RecvWqe,
    /// The bytes of its WQE.
    pub raw: [u8; STRIDE_MAX as usize],
}

/// Receives that were taken ahead, in their order. Room for all is allocated at once.
#[derive(Debug)]
pub struct ReceivesAhead(VecDeque<ReceiveAhead>);

impl Default for ReceivesAhead {
    fn default() -> Self {
        Self(VecDeque::with_capacity(RECEIVES))
    }
}

impl ReceivesAhead {
    /// Returns the receive at a place, after taking those up to it with `fetch`; `None` if there
    /// are not as many, or no room.
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

    /// Takes the first one.
    pub fn pop(&mut self) -> Option<ReceiveAhead> {
        self.0.pop_front()
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
