// SPDX-License-Identifier: GPL-2.0
//! MSI-X vectors and their handlers. A registered handler borrows the allocation of the
//! vectors: that self-reference stays inside [`Interrupts`].

use abi::pci::VECTOR_ASYNC;
use kernel::{
    bindings,
    cpu::CpuId,
    cpumask::CpumaskVar,
    device::Bound,
    error::to_result,
    irq::{self, IrqRequest, IrqReturn},
    pci::{self, IrqType, IrqTypes, IrqVectorRegistration},
    prelude::*,
    str::CStr,
};

use crate::events::{AsyncHandler, CompletionHandler};

/// Completion vectors that the adapter can have.
const COMPLETION_VECTORS: usize = abi::pci::MSIX_VECTORS as usize - 1;
/// Room for the name of a completion vector and its terminator.
const NAME_LEN: usize = 16;

/// The completion vectors' names in /proc/interrupts.
static NAMES: [[u8; NAME_LEN]; COMPLETION_VECTORS] = {
    let mut names = [*b"vrnic-comp\0\0\0\0\0\0"; COMPLETION_VECTORS];
    let mut i = 0;
    while i < COMPLETION_VECTORS {
        // CAST: digits.
        let (tens, ones) = (b'0' + (i / 10) as u8, b'0' + (i % 10) as u8);
        if i < 10 {
            names[i][10] = ones;
        } else {
            names[i][10] = tens;
            names[i][11] = ones;
        }
        i += 1;
    }
    names
};

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
}

impl<'a> Interrupts<'a> {
    /// Allocates the asynchronous vector and up to `completion` completion vectors.
    pub(crate) fn allocate(pdev: &'a pci::Device<Bound>, completion: u32) -> Result<Self> {
        let kinds = IrqTypes::default().with(IrqType::MsiX);
        let vectors = pdev.alloc_irq_vectors(2, 1 + completion, kinds)?;
        Ok(Self { hints: KVec::new(), handlers: KVec::new(), vectors: KBox::pin(vectors, GFP_KERNEL)? })
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

    /// Registers the handler of a completion vector (from 0), which wants to be on the processor of
    /// that number.
    pub(crate) fn handle_completion(&mut self, handler: CompletionHandler) -> Result<Line> {
        let id = handler.handler.id;
        let vector = id as usize;
        let name = NAMES.get(vector).ok_or(EINVAL)?;
        let name = CStr::from_bytes_until_nul(name).map_err(|_| EINVAL)?;
        let line = self.register(1 + vector, name, Handler::Completion(handler))?;
        if let Some(cpu) = CpuId::from_u32(id) {
            self.hints.push(Hint::new(line, cpu)?, GFP_KERNEL)?;
        }
        Ok(line)
    }

    fn register(&mut self, index: usize, name: &'static CStr, handler: Handler) -> Result<Line> {
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
        Ok(Line(irq))
    }
}
