//! The handler of the signals of memory that cannot be read or written.
//!
//! The checker reads buffers of the program, which may be gone, and guards others. Signals that it
//! has caused end here. All others get what they would have had without the checker. From the first
//! handler of its own that the program sets, the checker causes none any more, and neither in a
//! thread that blocks these signals, which would end the process.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::direct;

/// The signals.
const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// What the program did with each signal before.
static BEFORE: [OnceLock<libc::sigaction>; SIGNALS.len()] = [const { OnceLock::new() }; 2];
/// True from before the handler is set.
static IS_BEGUN: AtomicBool = AtomicBool::new(false);
/// True if the program has set a handler of its own since.
static IS_REPLACED: AtomicBool = AtomicBool::new(false);
/// Handles a store to a guarded buffer.
static STORES: OnceLock<Store> = OnceLock::new();

/// Handles a store to this address, with the registers of the thread. Returns whether the thread
/// goes on.
pub(crate) type Store = fn(usize, *mut c_void) -> bool;

/// The known state of the signals of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mask {
    Unknown,
    Open,
    Blocked,
}

thread_local! {
    static MASK: Cell<Mask> = const { Cell::new(Mask::Unknown) };
}

/// Returns whether signals that this thread causes come to the handler. The first call sets it.
pub(crate) fn is_ready() -> bool {
    is_set() && is_open()
}

/// Like [`is_ready`] for any thread, with a function for stores to guarded buffers.
pub(crate) fn is_set_for(stores: Store) -> bool {
    if STORES.set(stores).is_ok() && is_set() {
        // Stores need more of the stack than there may be on one that the program has set aside.
        return each(set);
    }
    is_set()
}

/// Notes what the program does with a signal from now on.
pub(crate) fn replaced(signal: c_int, handler: usize) {
    if IS_BEGUN.load(Ordering::Acquire) && SIGNALS.contains(&signal) && handler != own() {
        IS_REPLACED.store(true, Ordering::Release);
    }
}

/// Notes that the thread may have changed which signals it blocks.
pub(crate) fn masked() {
    // A thread that ends does nothing any more.
    let _unless_it_ends = MASK.try_with(|mask| mask.set(Mask::Unknown));
}

fn is_set() -> bool {
    static IS_SET: OnceLock<bool> = OnceLock::new();
    let set_all = || {
        IS_BEGUN.store(true, Ordering::Release);
        each(set)
    };
    *IS_SET.get_or_init(set_all) && !IS_REPLACED.load(Ordering::Acquire)
}

fn each(set: fn(c_int, &OnceLock<libc::sigaction>) -> bool) -> bool {
    SIGNALS.iter().zip(&BEFORE).all(|(signal, before)| set(*signal, before))
}

fn is_open() -> bool {
    let known = MASK.try_with(|mask| {
        if mask.get() == Mask::Unknown {
            mask.set(if blocks() { Mask::Blocked } else { Mask::Open });
        }
        mask.get()
    });
    known == Ok(Mask::Open)
}

/// Asks the kernel whether the thread blocks one of the signals.
fn blocks() -> bool {
    // SAFETY: a set of signals is plain numbers.
    let mut set: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: the set lives until the calls return, and nothing is changed.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &raw mut set) != 0
            || SIGNALS.iter().any(|signal| libc::sigismember(&raw const set, *signal) != 0)
    }
}

fn own() -> usize {
    handle as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize
}

/// Sets the handler of a signal. Returns whether that was possible.
fn set(signal: c_int, before: &OnceLock<libc::sigaction>) -> bool {
    // SAFETY: a set of signals and pointers may be zero.
    let mut present: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: the struct lives until the call returns, and nothing is changed.
    if unsafe { libc::sigaction(signal, ptr::null(), &raw mut present) } != 0 {
        return false;
    }
    let before = before.get_or_init(|| present);
    let is_usual = matches!(before.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
    let mut action = *before;
    action.sa_sigaction = own();
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    if !is_usual {
        if before.sa_flags & libc::SA_RESETHAND != 0 {
            return false;
        }
        // A handler of the program may need the stack that it has set aside.
        let stack = if STORES.get().is_none() { libc::SA_ONSTACK } else { 0 };
        action.sa_flags = libc::SA_SIGINFO | before.sa_flags & (stack | libc::SA_RESTART);
    }
    let expected = present.sa_sigaction;
    // SAFETY: the handler has the right type, and both structs live until the call returns.
    let error = unsafe { libc::sigaction(signal, &raw const action, &raw mut present) };
    if error == 0 && present.sa_sigaction != expected {
        // Another thread was faster.
        // SAFETY: the struct is one that the kernel has filled in.
        unsafe { libc::sigaction(signal, &raw const present, ptr::null_mut()) };
        return false;
    }
    error == 0
}

/// Handles a signal.
extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the registers of the thread.
    if unsafe { direct::give_up(context) } {
        return;
    }
    // SAFETY: the kernel passes the details of the signal.
    let is_sent = unsafe { (*info).si_code } <= 0;
    // SAFETY: a signal that no process has sent has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    if signal == libc::SIGSEGV
        && !is_sent
        && STORES.get().is_some_and(|store| store(address, context))
    {
        return;
    }
    pass_on(signal, info, context, is_sent);
}

/// Does what would have been done without the checker.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, is_sent: bool) {
    let place = SIGNALS.iter().position(|other| *other == signal);
    let Some(before) = place.and_then(|place| BEFORE.get(place)).and_then(OnceLock::get) else {
        return;
    };
    if matches!(before.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
        if is_sent && before.sa_sigaction == libc::SIG_IGN {
            return;
        }
        // The instruction is executed once more, and then the kernel does it.
        // SAFETY: the struct is one that the kernel has filled in.
        unsafe { libc::sigaction(signal, before, ptr::null_mut()) };
        if is_sent {
            // SAFETY: the signal comes when this handler returns, and ends the process.
            unsafe { libc::raise(signal) };
        }
        return;
    }
    if before.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: with this flag the program's handler has this type.
        let handler: unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
            unsafe { mem::transmute(before.sa_sigaction) };
        // SAFETY: the kernel has given these arguments.
        unsafe { handler(signal, info, context) };
    } else {
        // SAFETY: without the flag the program's handler has this type.
        let handler: unsafe extern "C" fn(c_int) = unsafe { mem::transmute(before.sa_sigaction) };
        // SAFETY: the kernel has given this argument.
        unsafe { handler(signal) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_blocks_the_signals_causes_none() {
        let change = |how| {
            // SAFETY: the set lives until the calls return.
            unsafe {
                let mut set: libc::sigset_t = mem::zeroed();
                libc::sigaddset(&raw mut set, libc::SIGSEGV);
                assert_eq!(libc::pthread_sigmask(how, &raw const set, ptr::null_mut()), 0);
            }
        };
        assert!(is_ready());
        change(libc::SIG_BLOCK);
        assert!(!is_ready());
        // A thread that it starts blocks them, too.
        assert!(!std::thread::spawn(is_ready).join().expect("an answer"));
        change(libc::SIG_UNBLOCK);
        assert!(is_ready());
    }

    /// Returns whether all of these bytes could be read, and those that were.
    fn read(address: usize, length: usize) -> (bool, Vec<u8>) {
        let mut bytes = vec![0; length];
        (direct::copy(&mut bytes, address), bytes)
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn bytes_are_copied_up_to_the_end_of_the_memory() {
        assert!(is_ready());
        let page = 4096;
        // SAFETY: new memory of two pages, of which the second is given back.
        let address = unsafe {
            let address = libc::mmap(
                ptr::null_mut(),
                2 * page,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(address, libc::MAP_FAILED);
            for place in 0..page {
                address.cast::<u8>().add(place).write((place % 251) as u8);
            }
            assert_eq!(libc::munmap(address.byte_add(page), page), 0);
            address as usize
        };
        for length in [0, 1, 7, 8, 9, 100, page] {
            let expected = ((page - length)..page).map(|place| (place % 251) as u8).collect();
            assert_eq!(read(address + page - length, length), (true, expected));
            assert!(!read(address + page - length + 1, length.max(1)).0, "{length} bytes");
        }
        assert!(!read(8, 100).0);
    }
}
