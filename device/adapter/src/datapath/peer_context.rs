//! The receiver of a message during another QP's turn.

use std::any::Any;
use std::cell::Cell;
use std::panic::resume_unwind;
use std::sync::Arc;

use crate::datapath::turn::TurnContext;
use crate::host::Host;
use crate::objects::core::Core;
use crate::objects::qp::Qp;
use crate::slice::Slice;

/// The responder's QP, during the turn of a requester.
pub struct PeerContext<'a, H: Host> {
    /// The memory, time and counters of its adapter.
    pub turn: TurnContext<'a, H>,
    /// The QP at the other end.
    pub qp: &'a Arc<Qp<H>>,
    /// True while the requester's turn works on the responder's own objects.
    acts: Cell<bool>,
}

impl<'a, H: Host> PeerContext<'a, H> {
    /// Holds the memory of the QP's adapter.
    #[inline]
    pub fn new(core: &'a Arc<Core<H>>, qp: &'a Arc<Qp<H>>, slice: &'a Slice<'a, H>) -> Self {
        Self { turn: TurnContext::new(core, qp, slice), qp, acts: Cell::new(false) }
    }

    /// Holds the memory as [`Self::new`] does, for work of the half `asker` of the QP that is done
    /// again later if memory is absent.
    #[inline]
    pub fn patient(
        core: &'a Arc<Core<H>>,
        qp: &'a Arc<Qp<H>>,
        asker: u64,
        slice: &'a Slice<'a, H>,
    ) -> Self {
        let turn = TurnContext::patient(core, qp, asker, slice);
        Self { turn, qp, acts: Cell::new(false) }
    }

    /// Runs work on the responder's own objects. A panic in it counts as a failure of the
    /// responder's adapter.
    #[inline(always)]
    pub fn act<T>(&self, work: impl FnOnce() -> T) -> T {
        let outer = self.acts.replace(true);
        let done = work();
        self.acts.set(outer);
        done
    }

    /// Attributes the panic that has ended a turn to the responder's adapter, if the turn worked on
    /// the responder's objects. Otherwise the panic continues.
    #[cold]
    pub fn charge(&self, panic: Box<dyn Any + Send>) {
        if !self.acts.get() {
            resume_unwind(panic);
        }
        self.turn.host().fail();
    }
}
