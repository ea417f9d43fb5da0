//! Guarded buffers: the program cannot write to their pages until a request has completed.
//!
//! A store to them raises a signal, whose handler notes where the store was and lets it through. So
//! a report has the place in the code that changes a buffer too early.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::bytes::Range;
use crate::handler;
use crate::stack::{self, FRAMES, Stack};

/// Most buffers that are guarded at a time.
const SLOTS: usize = 1024;
/// Times that a store is tried again whose guard another thread has just taken away.
const RETRIES: usize = 8;

/// A guarded buffer.
struct Slot {
    /// True as long as a guard has this slot.
    is_taken: AtomicBool,
    /// The pages. They stay here after the guard has gone, because a thread may be about to handle
    /// a signal of them.
    start: AtomicUsize,
    end: AtomicUsize,
    /// The stack of the first store, and its number of frames.
    frames: [AtomicUsize; FRAMES],
    count: AtomicUsize,
}

static ALL: [Slot; SLOTS] = [const {
    Slot {
        is_taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        frames: [const { AtomicUsize::new(0) }; FRAMES],
        count: AtomicUsize::new(0),
    }
}; SLOTS];

/// The place of the last store that was tried again, and how often.
static AGAIN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

impl Slot {
    fn pages(&self) -> (usize, usize) {
        (self.start.load(Ordering::Acquire), self.end.load(Ordering::Acquire))
    }

    fn has(&self, address: usize) -> bool {
        let (start, end) = self.pages();
        (start..end).contains(&address)
    }

    /// Lets the program write to the pages again. Returns whether it can.
    fn open(&self) -> bool {
        let (start, end) = self.pages();
        protect(start, end, libc::PROT_READ | libc::PROT_WRITE)
    }
}

/// The guard of a buffer. When it is dropped, the program can write to the buffer again.
#[derive(Debug)]
pub(crate) struct Guard(usize);

impl Guard {
    /// Guards the pages that have nothing but bytes of this range; none if there is no such page,
    /// or too many buffers are guarded.
    pub(crate) fn new(range: Range) -> Option<Self> {
        let page = page();
        let start = range.address.checked_next_multiple_of(page)?;
        let end = range.address.checked_add(range.length)? / page * page;
        if start >= end || !handler::is_set_for(stored) {
            return None;
        }
        let is_free = |slot: &Slot| {
            let swapped =
                slot.is_taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire);
            swapped.is_ok()
        };
        let number = ALL.iter().position(is_free)?;
        let guard = Self(number);
        let slot = guard.slot()?;
        slot.count.store(0, Ordering::Relaxed);
        slot.start.store(start, Ordering::Release);
        slot.end.store(end, Ordering::Release);
        protect(start, end, libc::PROT_READ).then_some(guard)
    }

    fn slot(&self) -> Option<&'static Slot> {
        ALL.get(self.0)
    }

    /// Returns the stack of the first store to the buffer, if there was one.
    pub(crate) fn store(&self) -> Option<Stack> {
        let slot = self.slot()?;
        let count = slot.count.load(Ordering::Acquire);
        let frames = slot.frames.iter().take(count);
        let addresses: Vec<_> = frames.map(|frame| frame.load(Ordering::Relaxed)).collect();
        (count > 0).then(|| stack::of(&addresses))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(slot) = self.slot() else { return };
        let (start, end) = slot.pages();
        for address in (start..end).step_by(page()) {
            let others = ALL.iter().enumerate().filter(|(number, _)| *number != self.0);
            let mut others = others.map(|(_, slot)| slot);
            let is_guarded = others.any(|other| {
                other.is_taken.load(Ordering::Acquire)
                    && other.has(address)
                    && other.count.load(Ordering::Acquire) == 0
            });
            if !is_guarded {
                let writable = libc::PROT_READ | libc::PROT_WRITE;
                protect(address, address.saturating_add(page()), writable);
            }
        }
        slot.is_taken.store(false, Ordering::Release);
    }
}

fn page() -> usize {
    static PAGE: OnceLock<usize> = OnceLock::new();
    *PAGE.get_or_init(|| {
        // SAFETY: the call has no conditions.
        let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(size).unwrap_or(4096)
    })
}

/// Sets the rights of pages. Returns whether that has succeeded.
fn protect(start: usize, end: usize, rights: c_int) -> bool {
    let length = end.saturating_sub(start);
    // SAFETY: the pages belong to a region that the program has registered for writing, so it may
    // read and write them. The kernel refuses pages that do not exist any more.
    unsafe { libc::mprotect(start as *mut c_void, length, rights) == 0 }
}

/// Handles a store to this address. Returns whether the thread goes on with it.
fn stored(address: usize, context: *mut c_void) -> bool {
    let mut is_known = false;
    for slot in ALL.iter().filter(|slot| slot.has(address)) {
        is_known = true;
        if slot.is_taken.load(Ordering::Acquire) {
            note(slot, context);
            if slot.open() {
                return true;
            }
        }
    }
    is_known && is_tried_again(address)
}

/// Returns whether a store is tried again, because its guard may have gone meanwhile.
fn is_tried_again(address: usize) -> bool {
    let [place, count] = &AGAIN;
    if place.swap(address, Ordering::AcqRel) != address {
        count.store(0, Ordering::Release);
    }
    count.fetch_add(1, Ordering::AcqRel) < RETRIES
}

/// Notes the stack of the first store to a buffer, without memory of the allocator, which the
/// program may be using.
fn note(slot: &Slot, context: *mut c_void) {
    if slot.count.load(Ordering::Acquire) > 0 {
        return;
    }
    let mut addresses = [0; FRAMES];
    let mut count = stack::of_signal(&mut addresses, instruction(context));
    if count == 0 {
        count = 1;
    }
    for (frame, address) in slot.frames.iter().zip(addresses) {
        frame.store(address, Ordering::Relaxed);
    }
    slot.count.store(count, Ordering::Release);
}

/// Returns the address of the instruction that has raised a signal.
#[cfg(target_arch = "x86_64")]
fn instruction(context: *mut c_void) -> usize {
    let context: *const libc::ucontext_t = context.cast();
    // SAFETY: the kernel passes the registers of the thread.
    let registers = unsafe { &(*context).uc_mcontext.gregs };
    let register = usize::try_from(libc::REG_RIP).ok().and_then(|rip| registers.get(rip));
    register.map_or(0, |address| address.cast_unsigned() as usize)
}

/// Elsewhere the handler's own frames are part of the stack.
#[cfg(not(target_arch = "x86_64"))]
fn instruction(_context: *mut c_void) -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_to_a_guarded_page_is_noted_and_let_through() {
        let page = page();
        let mut memory = vec![1_u8; 4 * page];
        let whole = Range { address: memory.as_ptr() as usize, length: memory.len() };
        let guard = Guard::new(whole).expect("pages");
        assert!(guard.store().is_none());
        // Nothing guards what does not fill a page.
        assert!(Guard::new(Range { length: page - 1, ..whole }).is_none());
        let second = Guard::new(whole).expect("the same pages");
        drop(second);
        std::hint::black_box(&mut memory)[2 * page] = 2;
        assert!(guard.store().is_some());
        drop(guard);
        std::hint::black_box(&mut memory)[2 * page + 1] = 3;
        assert_eq!(memory[2 * page..2 * page + 2], [2, 3]);
    }
}
