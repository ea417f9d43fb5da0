// SPDX-License-Identifier: GPL-2.0
//! MSI-X vectors and their handlers. A registered handler borrows the allocation of the
//! vectors: that self-reference stays inside [`Interrupts`].

use abi::pci::VECTOR_ASYNC;
use kernel::{
    bindings,
    cpu::CpuId,
    cpumask::CpumaskVar,
    device::{self, Bound},
    error::to_result,
    fmt,
    irq::{self, IrqRequest, IrqReturn},
    pci::{self, IrqType, IrqTypes, IrqVectorRegistration},
    prelude::*,
    str::{CStr, CString},
};

use crate::events::{AsyncHandler, CompletionHandler};

/// A registered interrupt.
#[derive(Clone, Copy)]
pub(crate) struct Line(u32);

impl Line {
    /// Sends it to a processor from now on.
    ///
    /// # Errors
    ///
    /// When the processor is offline or has no vector left.
    pub(crate) fn set_affinity(self, cpu: CpuId) -> Result {
        let mask = single(cpu)?;
        // SAFETY: the mask is valid, and copied. A number that is no interrupt any more is refused.
        to_result(unsafe { bindings::irq_set_affinity(self.0, mask.as_raw()) })
    }
}

/// The mask of one processor.
fn single(cpu: CpuId) -> Result<CpumaskVar> {
    let mut mask = CpumaskVar::new_zero(GFP_KERNEL)?;
    mask.set(cpu);
    Ok(mask)
}

/// Where an interrupt wants to be, for whoever distributes interrupts (`/proc/irq/*/affinity_hint`).
struct Hint {
    line: Line,
    /// The kernel keeps a pointer to it.
    _mask: CpumaskVar,
}

// SAFETY: the mask is owned, and not changed after `new`.
unsafe impl Send for Hint {}
// SAFETY: as above; there are no shared operations.
unsafe impl Sync for Hint {}

impl Hint {
    /// An interrupt that wants to be on this processor.
    fn new(line: Line, cpu: CpuId) -> Result<Self> {
        let mask = single(cpu)?;
        // SAFETY: the interrupt is registered; the mask stays where it is until `drop` takes the
        // pointer back.
        to_result(unsafe { bindings::__irq_apply_affinity_hint(line.0, mask.as_raw(), false) })?;
        Ok(Self { line, _mask: mask })
    }
}

impl Drop for Hint {
    fn drop(&mut self) {
        // SAFETY: a null pointer takes the hint back.
        unsafe { bindings::__irq_apply_affinity_hint(self.line.0, core::ptr::null(), false) };
    }
}

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
    // Dropped before the interrupts.
    hints: KVec<Hint>,
    // Dropped next: the handlers borrow the vectors.
    handlers: KVec<Pin<KBox<irq::Registration<'a, Handler>>>>,
    vectors: Pin<KBox<IrqVectorRegistration<'a>>>,
    /// What `/proc/interrupts` shows: the kernel keeps pointers to them.
    names: KVec<CString>,
    pdev: &'a pci::Device<Bound>,
}

impl<'a> Interrupts<'a> {
    /// Allocates the asynchronous vector and up to `completion` completion vectors.
    pub(crate) fn allocate(pdev: &'a pci::Device<Bound>, completion: u32) -> Result<Self> {
        let kinds = IrqTypes::default().with(IrqType::MsiX);
        let vectors = pdev.alloc_irq_vectors(2, 1 + completion, kinds)?;
        Ok(Self {
            hints: KVec::new(),
            handlers: KVec::new(),
            vectors: KBox::pin(vectors, GFP_KERNEL)?,
            names: KVec::new(),
            pdev,
        })
    }

    /// Number of completion vectors.
    pub(crate) fn completion_vectors(&self) -> usize {
        self.vectors.len() - 1
    }

    /// Registers the handler of admin completions and asynchronous events.
    pub(crate) fn handle_async(&mut self, handler: AsyncHandler) -> Result {
        self.register(VECTOR_ASYNC.into(), fmt!("async"), Handler::Async(handler))?;
        Ok(())
    }

    /// Registers the handler of a completion vector (from 0), which wants to be on the processor of
    /// that number.
    pub(crate) fn handle_completion(&mut self, handler: CompletionHandler) -> Result<Line> {
        let id = handler.handler.id;
        let line =
            self.register(1 + id as usize, fmt!("comp{id}"), Handler::Completion(handler))?;
        if let Some(cpu) = CpuId::from_u32(id) {
            self.hints.push(Hint::new(line, cpu)?, GFP_KERNEL)?;
        }
        Ok(line)
    }

    /// Registers the handler of a vector; `what` and the device tell it from others.
    fn register(
        &mut self,
        index: usize,
        what: fmt::Arguments<'_>,
        handler: Handler,
    ) -> Result<Line> {
        let device: &device::Device<Bound> = self.pdev.as_ref();
        let name = CString::try_from_fmt(fmt!("vrnic-{what}@pci:{}", device.name()))?;
        // SAFETY: the text is on the heap, where it stays; `names`, which owns it from here on, is dropped after all
        // handlers, which alone keep this reference.
        let shown: &'static CStr = unsafe { &*core::ptr::from_ref::<CStr>(&name) };
        self.names.push(name, GFP_KERNEL)?;
        // SAFETY: the allocation is pinned on the heap and dropped after all handlers, which
        // alone keep this reference.
        let vectors: &'a IrqVectorRegistration<'a> =
            unsafe { &*core::ptr::from_ref(&*self.vectors) };
        let request: IrqRequest<'a> = vectors.index(index)?.into();
        let irq = request.irq();
        self.handlers.reserve(1, GFP_KERNEL)?;
        // SAFETY: the registration is kept in `self` and not leaked: see `Nic`.
        let registration = unsafe {
            irq::Registration::new(request, irq::Flags::TRIGGER_NONE, shown, Ok(handler))
        };
        let registration = KBox::pin_init(registration, GFP_KERNEL)?;
        self.handlers.push(registration, GFP_KERNEL)?;
        Ok(Line(irq))
    }
}
