// SPDX-License-Identifier: GPL-2.0
//! MSI-X vectors and their handlers. A registered handler borrows the allocation of the
//! vectors: that self-reference stays inside [`Interrupts`].

use abi::pci::VECTOR_ASYNC;
use kernel::{
    bindings,
    cpu::CpuId,
    cpumask::CpumaskVar,
    device::Bound,
    irq::{self, IrqRequest, IrqReturn},
    pci::{self, IrqType, IrqTypes, IrqVectorRegistration},
    prelude::*,
};

use crate::events::{AsyncHandler, CompletionHandler};

/// What a vector's interrupt does.
enum Handler {
    Async(AsyncHandler),
    Completion(CompletionHandler),
}

impl irq::Handler for Handler {
    fn handle(&self) -> IrqReturn {
        match self {
            Self::Async(handler) => handler.handle(),
            Self::Completion(handler) => handler.handle(),
        }
        IrqReturn::Handled
    }
}

/// The vectors of the adapter and the handlers registered for them.
pub(crate) struct Interrupts<'a> {
    // Dropped first: the handlers borrow the vectors.
    handlers: KVec<Pin<KBox<irq::Registration<'a, Handler>>>>,
    vectors: Pin<KBox<IrqVectorRegistration<'a>>>,
}

impl<'a> Interrupts<'a> {
    /// Allocates the asynchronous vector and up to `completion` completion vectors.
    pub(crate) fn allocate(pdev: &'a pci::Device<Bound>, completion: u32) -> Result<Self> {
        let kinds = IrqTypes::default().with(IrqType::MsiX);
        let vectors = pdev.alloc_irq_vectors(2, 1 + completion, kinds)?;
        Ok(Self { handlers: KVec::new(), vectors: KBox::pin(vectors, GFP_KERNEL)? })
    }

    /// Number of completion vectors.
    pub(crate) fn completion_vectors(&self) -> usize {
        self.vectors.len() - 1
    }

    /// Registers the handler of admin completions and asynchronous events.
    pub(crate) fn handle_async(&mut self, handler: AsyncHandler) -> Result {
        self.register(VECTOR_ASYNC.into(), c"vrnic-async", Handler::Async(handler))?;
        Ok(())
    }

    /// Registers the handler of a completion vector (from 0), on a CPU of its own if possible.
    pub(crate) fn handle_completion(&mut self, handler: CompletionHandler) -> Result {
        let vector = handler.vector;
        let index = 1 + vector;
        let irq = self.register(index, c"vrnic-comp", Handler::Completion(handler))?;
        if let Some(cpu) = CpuId::from_u32(u32::try_from(vector)?) {
            let mut mask = CpumaskVar::new_zero(GFP_KERNEL)?;
            mask.set(cpu);
            // SAFETY: `irq` was registered above; the mask is valid. A CPU that is offline is
            // refused, and the interrupt then goes where the kernel likes.
            let _ = unsafe { bindings::irq_set_affinity(irq, mask.as_raw()) };
        }
        Ok(())
    }

    fn register(&mut self, index: usize, name: &'static CStr, handler: Handler) -> Result<u32> {
        // SAFETY: the allocation is pinned on the heap and dropped after all handlers, which
        // alone keep this reference.
        let vectors: &'a IrqVectorRegistration<'a> =
            unsafe { &*core::ptr::from_ref(&*self.vectors) };
        let request: IrqRequest<'a> = vectors.index(index)?.into();
        let irq = request.irq();
        self.handlers.reserve(1, GFP_KERNEL)?;
        // SAFETY: the registration is kept in `self` and not leaked: see `Nic`.
        let registration =
            unsafe { irq::Registration::new(request, irq::Flags::TRIGGER_NONE, name, Ok(handler)) };
        let registration = KBox::pin_init(registration, GFP_KERNEL)?;
        self.handlers.push(registration, GFP_KERNEL)?;
        Ok(irq)
    }
}
