//! Handling of SIGBUS: accesses to mapped memory beyond the end of its file, or to pages that
//! cannot be allocated. A VMM can truncate the file, punch holes into huge pages and use up their
//! pool, or fill its file system, at any time. The kernel then sends SIGBUS to the thread that made
//! the access.
//!
//! The handler replaces the whole mapping by zero pages and marks it as lost, and the access then
//! continues. A thread checks the mark after its access, and discards the data that it read. No
//! thread starts another access.
//!
//! The handler does only what is allowed at any point of any thread: it loads and stores atomics of
//! a static table, and makes one system call. It takes no lock and allocates nothing.
//!
//! `unsafe` is confined to `crate`.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Maximum number of mappings of the process. Each needs up to three of the 65,530 areas that the
/// kernel grants a process.
pub const MAPPINGS_MAX: usize = 20_000;

/// All mappings. The base of a free slot is zero.
static SLOTS: [Slot; MAPPINGS_MAX] = [const { Slot::free() }; MAPPINGS_MAX];
/// Position at which the search for a free slot starts. Its lock serialises claims.
static NEXT: Mutex<usize> = Mutex::new(0);
/// The previous action for SIGBUS.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// The data of a mapping that the handler needs.
#[derive(Debug)]
pub struct Slot {
    base: AtomicUsize,
    len: AtomicUsize,
    lost: AtomicBool,
    /// The connection of the VMM to which the memory belongs, or [`NO_CONNECTION`].
    connection: AtomicI32,
    /// Number of threads that may be replacing the mapping ([`revoke_if`]).
    revoking: AtomicUsize,
}

/// No descriptor.
const NO_CONNECTION: i32 = -1;

impl Slot {
    const fn free() -> Self {
        Self {
            base: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            lost: AtomicBool::new(false),
            connection: AtomicI32::new(NO_CONNECTION),
            revoking: AtomicUsize::new(0),
        }
    }

    /// Registers `len` bytes at `base` for the handler. They are whole pages of a mapping that no
    /// thread uses yet.
    ///
    /// # Errors
    /// Returns an error if there are too many mappings.
    ///
    /// # Safety
    /// The mapping lives until [`Self::release`] is called, and its memory may change at any time:
    /// it is only accessed by raw pointers and as atomics.
    pub unsafe fn claim(base: usize, len: usize) -> io::Result<&'static Self> {
        install()?;
        let mut next = NEXT.lock();
        let order = (*next..MAPPINGS_MAX).chain(0..*next);
        for at in order {
            let Some(slot) = SLOTS.get(at) else { continue };
            if slot.base.load(Ordering::Acquire) == 0 {
                *next = at + 1;
                slot.len.store(len, Ordering::Relaxed);
                slot.lost.store(false, Ordering::Relaxed);
                slot.base.store(base, Ordering::Release);
                return Ok(slot);
            }
        }
        Err(io::ErrorKind::OutOfMemory.into())
    }

    /// Removes the mapping from the table. No thread uses it any more, and it is still mapped.
    pub fn release(&self) {
        self.connection.store(NO_CONNECTION, Ordering::Relaxed);
        self.base.store(0, Ordering::SeqCst);
        // A handler of another thread has seen the mapping and is about to replace it.
        while self.revoking.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
    }

    /// Binds the memory to a connection: the memory is not accessed any more if the process was
    /// stopped for long, and then finds that the peer has closed this socket. The socket stays open
    /// until the mapping is released.
    pub fn bind(&self, connection: i32) {
        self.connection.store(connection, Ordering::Relaxed);
    }

    /// Returns whether the memory is lost, and has been replaced by zero pages.
    #[inline]
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Records that other memory has replaced the lost memory.
    pub fn restore(&self) {
        self.lost.store(false, Ordering::Relaxed);
    }

    /// Returns base and length if `addr` is inside of the mapping.
    ///
    /// Another thread may claim the slot during this call, but not if the slot belongs to the
    /// mapping of the faulting access, because that mapping is alive. Any pair that is read here
    /// was the place of a living mapping at some time since the fault, and living mappings do not
    /// overlap.
    fn holds(&self, addr: usize) -> Option<(usize, usize)> {
        let base = self.base.load(Ordering::Acquire);
        let len = self.len.load(Ordering::Acquire);
        let stable = base != 0 && self.base.load(Ordering::Acquire) == base;
        (stable && addr >= base && addr - base < len).then_some((base, len))
    }
}

/// Replaces each mapping by zero pages that is bound to a connection for which `is_gone` holds.
/// Returns their number. Can be called from a signal handler, with such a function.
pub fn revoke_if(mut is_gone: impl FnMut(i32) -> bool) -> usize {
    let revokes = |slot: &&Slot| {
        if slot.base.load(Ordering::Relaxed) == 0 {
            return false;
        }
        // From here on, [`Slot::release`] waits. So the mapping lives if its base is still there.
        slot.revoking.fetch_add(1, Ordering::SeqCst);
        let (base, connection) =
            (slot.base.load(Ordering::SeqCst), slot.connection.load(Ordering::Relaxed));
        let gone = base != 0 && connection != NO_CONNECTION && is_gone(connection);
        let revokes = gone && !slot.lost.swap(true, Ordering::SeqCst);
        // Other threads may have found it lost already, and may be here at the same time.
        let done = gone && give_zeroes(base, slot.len.load(Ordering::Relaxed));
        slot.revoking.fetch_sub(1, Ordering::SeqCst);
        revokes && done
    };
    SLOTS.iter().filter(revokes).count()
}

/// Installs the handler, once for the process.
fn install() -> io::Result<()> {
    static ONCE: Mutex<bool> = Mutex::new(false);
    let mut installed = ONCE.lock();
    if *installed {
        return Ok(());
    }
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null action asks only; the kernel's answer fits `before`, all of whose bytes may be
    // zero.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), before.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above filled it.
    let before = BEFORE.get_or_init(|| unsafe { before.assume_init() });
    let mut action = *before;
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = handle;
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: `action` is valid and names a handler of the form that SA_SIGINFO asks for, which
    // keeps to what a signal handler may do (see the head of this file).
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    *installed = true;
    Ok(())
}

/// Handles the signal. Preserves the thread's errno.
extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid `info`; with a code above zero the signal comes from a
    // fault, whose address it holds.
    let addr = unsafe { if (*info).si_code > 0 { (*info).si_addr() as usize } else { 0 } };
    // SAFETY: errno is the thread's own.
    let errno = unsafe { *libc::__errno_location() };
    let done = SLOTS.iter().find_map(|slot| Some((slot, slot.holds(addr)?))).is_some_and(
        |(slot, (base, len))| {
            slot.lost.store(true, Ordering::SeqCst);
            give_zeroes(base, len)
        },
    );
    // SAFETY: errno is the thread's own.
    unsafe { *libc::__errno_location() = errno };
    if !done {
        pass_on(signal, info, context);
    }
}

/// Replaces a mapping by zero pages. Returns whether that succeeded.
fn give_zeroes(base: usize, len: usize) -> bool {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: the range consists of whole pages of a mapping of this process that still exists. The
    // kernel exchanges the memory in one step, so every pointer into it stays valid. No memory is
    // taken before it is written to, and mmap is one system call.
    let at = unsafe { libc::mmap(base as *mut libc::c_void, len, prot, flags, -1, 0) };
    at as usize == base
}

/// Applies the previous action for SIGBUS.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let before = BEFORE.get().filter(|before| {
        before.sa_flags & libc::SA_SIGINFO != 0
            && ![libc::SIG_DFL, libc::SIG_IGN].contains(&before.sa_sigaction)
    });
    if let Some(before) = before {
        type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: SA_SIGINFO says that the number is the address of such a function, which was
        // installed for this signal.
        let handler: Handler =
            unsafe { std::mem::transmute::<usize, Handler>(before.sa_sigaction) };
        handler(signal, info, context);
    } else {
        // SAFETY: the default action of the signal; the access, made again on return, ends the
        // process.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    }
}
