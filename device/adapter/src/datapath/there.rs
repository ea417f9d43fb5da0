//! A QP as the receiver of a message, while another has its turn.

use std::any::Any;
use std::cell::Cell;
use std::panic::resume_unwind;
use std::sync::Arc;

use crate::datapath::turn::TurnContext;
use crate::host::Host;
use crate::objects::core::Core;
use crate::objects::qp::Qp;
use crate::slice::Slice;

/// The responder's QP, while a requester has its turn.
pub struct There<'a, H: Host> {
    /// Its adapter's memory, time and counters.
    pub turn: TurnContext<'a, H>,
    /// The QP.
    pub qp: &'a Arc<Qp<H>>,
    /// True if the requester's turn is about the responder's own objects just now.
    acts: Cell<bool>,
}

impl<'a, H: Host> There<'a, H> {
    /// Holds the memory of the adapter whose QP it is.
    #[inline]
    pub fn new(core: &'a Arc<Core<H>>, qp: &'a Arc<Qp<H>>, slice: &'a Slice<'a, H>) -> Self {
        Self { turn: TurnContext::new(core, qp, slice), qp, acts: Cell::new(false) }
    }

    /// Runs work on the responder's own objects. A panic in it is the failure of its adapter.
    #[inline(always)]
    pub fn act<T>(&self, work: impl FnOnce() -> T) -> T {
        let outer = self.acts.replace(true);
        let done = work();
        self.acts.set(outer);
        done
    }

    /// Charges the panic that has ended a turn to the responder's adapter, if the turn was about
    /// its objects. Else the panic goes on.
    #[cold]
    pub fn charge(&self, panic: Box<dyn Any + Send>) {
        if !self.acts.get() {
            resume_unwind(panic);
        }
        self.turn.host().fail();
    }
}
