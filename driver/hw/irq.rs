// SPDX-License-Identifier: GPL-2.0
//! MSI-X vectors and their handlers.
//!
//! A handler takes a few events in the interrupt itself. Its thread takes the remaining events, and
//! those that arrive in the meantime, and leaves processor time to other tasks. So neither a storm
//! of interrupts nor programs that request events as fast as they get them can keep a processor in
//! an interrupt.

use core::pin::Pin;

use kernel::{
    bindings,
    cpu::CpuId,
    cpumask::CpumaskVar,
    device::{self, Bound},
    error::to_result,
    ffi::{c_int, c_ulong, c_void},
    fmt,
    irq::IrqRequest,
    new_mutex,
    pci::{self, IrqType, IrqTypes, IrqVectorRegistration},
    prelude::*,
    str::CString,
    sync::{
        Arc, Mutex,
        atomic::{Acquire, Atomic, Relaxed, Release},
    },
    time::{Delta, Instant, Monotonic, delay::fsleep},
};

use super::turns::{Source, take_all};

/// The minimum time that a handler's thread sleeps between two turns, in ns.
const PAUSE: i64 = 20_000;

/// The context in which events are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The handler of the interrupt takes events.
    Interrupt,
    /// The interrupt's thread takes events.
    Thread,
}

impl Turn {
    /// Events of a queue that are taken there at a time, at most.
    pub(crate) fn budget(self) -> u32 {
        match self {
            Self::Interrupt => 16,
            Self::Thread => 64,
        }
    }
}

/// The handler of a vector's interrupt.
pub(crate) trait Handler: Send + Sync {
    /// Takes some events, as many as `turn` allows. Returns whether there may be more.
    fn take(&self, turn: Turn) -> bool;

    /// Returns whether the adapter has died, whose last events matter to nobody.
    fn is_over(&self) -> bool;
}

/// An interrupt's number, while it is registered.
#[pin_data]
pub(crate) struct Line {
    #[pin]
    number: Mutex<Option<u32>>,
}

impl Line {
    fn new(number: u32) -> Result<Arc<Self>> {
        let number = Some(number);
        Arc::pin_init(pin_init!(Self { number <- new_mutex!(number, "vrnic::Line") }), GFP_KERNEL)
    }

    /// Sends it to a processor from now on.
    ///
    /// # Errors
    ///
    /// When the processor is offline or has no vector left, or the interrupt is no longer
    /// registered.
    pub(crate) fn set_affinity(&self, cpu: CpuId) -> Result {
        let mask = single(cpu)?;
        let number = self.number.lock();
        // SAFETY: the mask is valid, and copied; the interrupt stays registered while the lock is
        // held.
        to_result(unsafe { bindings::irq_set_affinity(number.ok_or(ENODEV)?, mask.as_raw()) })
    }
}

/// Returns the mask of one processor.
fn single(cpu: CpuId) -> Result<CpumaskVar> {
    let mut mask = CpumaskVar::new_zero(GFP_KERNEL)?;
    mask.set(cpu);
    Ok(mask)
}

/// A vector's handler, and what the kernel keeps pointers to while it is registered.
struct Vector<'a> {
    number: u32,
    line: Arc<Line>,
    /// The name in `/proc/interrupts`.
    name: CString,
    /// The preferred processor of the interrupt, for programs that distribute interrupts
    /// (`/proc/irq/*/affinity_hint`).
    hint: Option<CpumaskVar>,
    handler: KBox<dyn Handler>,
    /// Set while the interrupt or the thread takes events: clients are called by one of them at a
    /// time.
    busy: Atomic<bool>,
    /// Set when the interrupt is about to be freed, which waits for the thread.
    ended: Atomic<bool>,
    _vectors: Arc<IrqVectorRegistration<'a>>,
}

// SAFETY: the mask of `hint`, the only part that is not `Send`, is owned and not changed.
unsafe impl Send for Vector<'_> {}
// SAFETY: there are no shared operations on the mask of `hint`, the only part that is not `Sync`.
unsafe impl Sync for Vector<'_> {}

impl Vector<'_> {
    /// Takes some events, unless the interrupt or the thread is already doing so. Returns whether
    /// there may be more.
    fn take(&self, turn: Turn) -> bool {
        if self.busy.xchg(true, Acquire) {
            return true;
        }
        let more = self.handler.take(turn);
        self.busy.store(false, Release);
        more
    }

    /// Handles the interrupt: takes some events, and wakes the thread if there may be more.
    ///
    /// # Safety
    ///
    /// `vector` must point to the vector of a [`Registration`] that is alive.
    unsafe extern "C" fn interrupt(_irq: c_int, vector: *mut c_void) -> bindings::irqreturn_t {
        // SAFETY: the caller passes the vector of a registration that is alive.
        let vector = unsafe { &*vector.cast_const().cast::<Self>() };
        if vector.take(Turn::Interrupt) {
            return bindings::irqreturn::IRQ_WAKE_THREAD;
        }
        bindings::irqreturn::IRQ_HANDLED
    }

    /// Runs in the interrupt's thread: takes all events.
    ///
    /// # Safety
    ///
    /// As for [`Self::interrupt`].
    unsafe extern "C" fn thread(_irq: c_int, vector: *mut c_void) -> bindings::irqreturn_t {
        // SAFETY: the caller passes the vector of a registration that is alive.
        let vector = unsafe { &*vector.cast_const().cast::<Self>() };
        take_all(&Thread { vector, start: Instant::now() }, PAUSE);
        bindings::irqreturn::IRQ_HANDLED
    }
}

/// The thread of a vector's interrupt. An adapter that sends events without end keeps the thread
/// only as long as it lives and has a driver.
struct Thread<'a, 'v> {
    vector: &'a Vector<'v>,
    start: Instant<Monotonic>,
}

impl Source for Thread<'_, '_> {
    fn take(&self) -> bool {
        self.vector.take(Turn::Thread)
    }

    fn is_over(&self) -> bool {
        self.vector.ended.load(Relaxed) || self.vector.handler.is_over()
    }

    fn now(&self) -> i64 {
        self.start.elapsed().as_nanos()
    }

    fn pause(&self, time: i64) {
        fsleep(Delta::from_nanos(time));
    }
}

/// A registered handler.
///
/// # Invariants
///
/// The kernel calls the handler with the address of the vector, which is pinned, and has its hint.
struct Registration<'a>(Pin<KBox<Vector<'a>>>);

impl<'a> Registration<'a> {
    fn new(vector: Vector<'a>) -> Result<Self> {
        let vector = KBox::pin(vector, GFP_KERNEL)?;
        // SAFETY: the functions take the cookie for what it is; name and cookie stay where they are
        // until `drop` has freed the interrupt.
        to_result(unsafe {
            bindings::request_threaded_irq(
                vector.number,
                Some(Vector::interrupt),
                Some(Vector::thread),
                // CAST: to a wider type.
                bindings::IRQF_TRIGGER_NONE as c_ulong,
                vector.name.as_char_ptr(),
                core::ptr::from_ref(&*vector).cast_mut().cast(),
            )
        })?;
        let this = Self(vector);
        this.hint(this.0.hint.as_ref())?;
        Ok(this)
    }

    /// Gives the interrupt a hint or takes it back.
    fn hint(&self, mask: Option<&CpumaskVar>) -> Result {
        let mask = mask.map_or(core::ptr::null(), |mask| mask.as_raw().cast_const());
        // SAFETY: the interrupt is registered; a mask stays where it is until `drop` takes the
        // pointer back.
        to_result(unsafe { bindings::__irq_apply_affinity_hint(self.0.number, mask, false) })
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        *self.0.line.number.lock() = None;
        self.0.ended.store(true, Relaxed);
        let _ = self.hint(None);
        // SAFETY: registered by `new` with this cookie. On return neither handler nor thread runs.
        unsafe {
            bindings::free_irq(
                self.0.number,
                core::ptr::from_ref(&*self.0).cast_mut().cast::<c_void>(),
            )
        };
    }
}

/// The vectors of the adapter and the handlers registered for them.
pub(crate) struct Interrupts<'a> {
    handlers: KVec<Registration<'a>>,
    vectors: Arc<IrqVectorRegistration<'a>>,
    pdev: &'a pci::Device<Bound>,
}

impl<'a> Interrupts<'a> {
    /// Allocates the asynchronous vector and up to `completion` completion vectors.
    pub(crate) fn allocate(pdev: &'a pci::Device<Bound>, completion: u32) -> Result<Self> {
        let kinds = IrqTypes::default().with(IrqType::MsiX);
        let vectors = pdev.alloc_irq_vectors(2, 1 + completion, kinds)?;
        Ok(Self { handlers: KVec::new(), vectors: Arc::new(vectors, GFP_KERNEL)?, pdev })
    }

    /// Returns the number of completion vectors.
    pub(crate) fn completion_vectors(&self) -> usize {
        self.vectors.len() - 1
    }

    /// Registers the handler of a vector, whose preferred processor is `cpu`. Its name in
    /// `/proc/interrupts` has `what` and the PCI address of the device.
    pub(crate) fn register(
        &mut self,
        index: usize,
        what: fmt::Arguments<'_>,
        cpu: Option<CpuId>,
        handler: impl Handler + 'static,
    ) -> Result<Arc<Line>> {
        let device: &device::Device<Bound> = self.pdev.as_ref();
        let request: IrqRequest<'_> = self.vectors.index(index)?.into();
        let number = request.irq();
        let line = Line::new(number)?;
        self.handlers.reserve(1, GFP_KERNEL)?;
        let registration = Registration::new(Vector {
            number,
            line: line.clone(),
            name: CString::try_from_fmt(fmt!("vrnic-{what}@pci:{}", device.name()))?,
            hint: cpu.map(single).transpose()?,
            handler: KBox::new(handler, GFP_KERNEL)? as KBox<dyn Handler>,
            busy: Atomic::new(false),
            ended: Atomic::new(false),
            _vectors: self.vectors.clone(),
        })?;
        self.handlers.push(registration, GFP_KERNEL)?;
        Ok(line)
    }
}
