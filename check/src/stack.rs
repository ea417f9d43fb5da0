//! Stacks of calls: captured cheaply, and resolved only when they are printed.
//!
//! A stack is a list of return addresses. Most calls of verbs are made again and again from the
//! same place at the same depth. So each thread remembers where on its stack the return addresses
//! of recent captures were. If they are still there, this is the same stack, and nothing has to be
//! unwound.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, c_void};
use std::sync::LazyLock;

use parking_lot::Mutex;

/// Most return addresses of a stack that are kept.
pub(crate) const FRAMES: usize = 24;
/// Addresses below this one are no code.
const FIRST_PAGE: usize = 4096;
/// Most stacks that are kept. Later ones are unknown.
const STACKS: usize = 1 << 16;
/// The function of the C library that calls `main`.
const START: &str = "__libc_start_call_main";
/// Stacks that a thread remembers.
const REMEMBERED: usize = 16;

/// A stack that was captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Stack(u32);

/// A call of a program, and the stack of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// The function of libibverbs.
    pub(crate) call: &'static str,
    /// Who has called it.
    pub(crate) stack: Stack,
}

/// A frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Frame {
    /// The function, if it is known.
    pub(crate) function: Option<String>,
    /// The source and the line, if they are known.
    pub(crate) line: Option<String>,
    /// The path of the source, if it is known.
    pub(crate) path: Option<String>,
    /// The file of the program or library, without its folder.
    pub(crate) library: String,
    /// The place in this file.
    pub(crate) offset: usize,
}

/// All stacks by number. Number 0 is an unknown one.
#[derive(Debug)]
struct Stacks {
    numbers: HashMap<Box<[usize]>, u32>,
    all: Vec<Box<[usize]>>,
}

static STACKS_SEEN: LazyLock<Mutex<Stacks>> =
    LazyLock::new(|| Mutex::new(Stacks { numbers: HashMap::new(), all: vec![Box::default()] }));

/// A return address, and where on the stack it is.
#[derive(Clone, Copy, Debug)]
struct Slot {
    place: usize,
    address: usize,
}

/// A stack that this thread has captured.
#[derive(Debug)]
struct Known {
    stack_pointer: usize,
    slots: Vec<Slot>,
    stack: Stack,
}

impl Known {
    /// Returns whether the thread is at the same place again. Only for the thread itself, with its
    /// present stack pointer.
    fn is_here(&self, stack_pointer: usize) -> bool {
        self.stack_pointer == stack_pointer
            && self.slots.iter().all(|slot| {
                // SAFETY: the stack pointer of the same function is the same. So the first slot is
                // part of the stack, and each slot is so if the return addresses before it are
                // the same: code at one address has frames of one form. The iterator stops at the
                // first difference. Frames of varying size can at worst be another live frame's
                // data, because the slots are between the stack pointer and the stack's begin.
                unsafe { (slot.place as *const usize).read_volatile() == slot.address }
            })
    }
}

thread_local! {
    static RECENT: RefCell<Vec<Known>> = const { RefCell::new(Vec::new()) };
}

/// Captures the stack of the caller.
#[inline(never)]
pub(crate) fn capture() -> Stack {
    let here = stack_pointer();
    let known = RECENT.try_with(|recent| {
        let recent = recent.try_borrow().ok()?;
        recent.iter().find(|known| known.is_here(here)).map(|known| known.stack)
    });
    match known {
        Ok(Some(stack)) => stack,
        _ => unwind(here),
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn stack_pointer() -> usize {
    let here: usize;
    // SAFETY: a register is copied.
    unsafe {
        std::arch::asm!("mov {}, rsp", out(reg) here, options(nomem, nostack, preserves_flags))
    };
    here
}

/// Without a stack pointer nothing is remembered.
#[cfg(not(target_arch = "x86_64"))]
fn stack_pointer() -> usize {
    0
}

/// Unwinds the stack, and remembers it if all return addresses above `here` were found in place.
#[cold]
#[inline(never)]
fn unwind(here: usize) -> Stack {
    let mut addresses = Vec::with_capacity(FRAMES);
    let mut slots = Vec::with_capacity(FRAMES);
    let mut is_plain = here != 0;
    // SAFETY: the unwinder of libgcc can be used by several threads at a time.
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            let (address, above) = (frame.ip() as usize, frame.sp() as usize);
            let place = above.wrapping_sub(size_of::<usize>());
            if address < FIRST_PAGE {
                // The code that starts a program or a thread has no caller.
                return false;
            }
            if place < here && is_plain {
                // A function of this module.
                return true;
            }
            addresses.push(address);
            // SAFETY: the frame is live, and its return address is below its caller's part.
            if is_plain && place % align_of::<usize>() == 0 {
                let found = (place as *const usize).read_volatile();
                is_plain = found == address;
                slots.push(Slot { place, address });
            }
            addresses.len() < FRAMES
        });
    }
    let own = own_base();
    let skipped = addresses.iter().take_while(|address| base(**address) == own).count();
    let kept = if skipped < addresses.len() { addresses.get(skipped..) } else { None };
    let stack = number(kept.unwrap_or(&addresses));
    if is_plain && !slots.is_empty() {
        let _unless_the_thread_ends = RECENT.try_with(|recent| {
            let Ok(mut recent) = recent.try_borrow_mut() else { return };
            if recent.len() >= REMEMBERED {
                recent.remove(0);
            }
            recent.push(Known { stack_pointer: here, slots, stack });
        });
    }
    stack
}

/// Returns the stack with these return addresses.
pub(crate) fn of(addresses: &[usize]) -> Stack {
    number(addresses)
}

/// Writes the return addresses of the stack that a signal has interrupted at an instruction. This
/// uses no memory of the allocator. Returns their number.
pub(crate) fn of_signal(into: &mut [usize; FRAMES], instruction: usize) -> usize {
    let (mut count, mut is_found) = (0, instruction == 0);
    // SAFETY: the unwinder of libgcc can be used by several threads at a time.
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            let address = frame.ip() as usize;
            if address < FIRST_PAGE {
                return false;
            }
            let is_first = !is_found && address == instruction;
            is_found |= is_first;
            if is_found && let Some(place) = into.get_mut(count) {
                // A return address is after its call, unlike that of the instruction.
                *place = address + usize::from(is_first);
                count += 1;
            }
            count < FRAMES
        });
    }
    if count == 0 {
        into[0] = instruction + 1;
    }
    count
}

/// Returns the number of a stack.
fn number(addresses: &[usize]) -> Stack {
    let mut seen = STACKS_SEEN.lock();
    if let Some(number) = seen.numbers.get(addresses) {
        return Stack(*number);
    }
    let number = u32::try_from(seen.all.len()).unwrap_or(u32::MAX);
    if seen.all.len() >= STACKS {
        return Stack::default();
    }
    seen.all.push(addresses.into());
    seen.numbers.insert(addresses.into(), number);
    Stack(number)
}

/// Keeps the stacks as they are until [`let_go`], while the process forks.
pub(crate) fn hold() {
    std::mem::forget(STACKS_SEEN.lock());
}

/// Ends [`hold`], in this process or in the forked one.
pub(crate) fn let_go() {
    // SAFETY: the calling thread holds the lock, or is the copy of the thread that does.
    unsafe { STACKS_SEEN.force_unlock() };
}

impl Stack {
    /// Returns whether the innermost caller is in a library whose name begins so.
    pub(crate) fn is_called_by(self, library: &str) -> bool {
        self.frames().first().is_some_and(|frame| frame.library.starts_with(library))
    }

    /// Returns the frames, the innermost first.
    pub(crate) fn frames(self) -> Vec<Frame> {
        let addresses = {
            let seen = STACKS_SEEN.lock();
            let number = usize::try_from(self.0).unwrap_or(usize::MAX);
            seen.all.get(number).cloned().unwrap_or_default()
        };
        let mut frames: Vec<_> = addresses.iter().flat_map(|address| frames(*address)).collect();
        // The frames of the code that starts a program or a thread do not help a reader.
        let has = |frame: &Frame, name| frame.function.as_deref() == Some(name);
        if let Some(main) = frames.iter().position(|frame| has(frame, "main")) {
            frames.truncate(main + 1);
        }
        if let Some(start) = frames.iter().position(|frame| has(frame, START)) {
            frames.truncate(start);
        }
        frames
    }
}

/// Returns the functions at a return address: one, and those that are inlined there before it.
fn frames(address: usize) -> Vec<Frame> {
    // The call is before the address to which it returns.
    let address = address.saturating_sub(1);
    let Some((library, base)) = library(address) else { return Vec::new() };
    let offset = address.wrapping_sub(base);
    let mut frames = Vec::new();
    backtrace::resolve(address as *mut c_void, |symbol| {
        let path = symbol.filename();
        let file = path.and_then(|path| path.file_name());
        let file = file.map(|file| file.to_string_lossy().into_owned());
        frames.push(Frame {
            function: symbol.name().map(|name| format!("{name:#}")),
            line: file.zip(symbol.lineno()).map(|(file, line)| format!("{file}:{line}")),
            path: path.map(|path| path.to_string_lossy().into_owned()),
            library: library.clone(),
            offset,
        });
    });
    if frames.is_empty() {
        frames.push(Frame { function: None, line: None, path: None, library, offset });
    }
    frames
}

/// Returns the name of the file that has an address, and where it begins in memory.
fn library(address: usize) -> Option<(String, usize)> {
    let info = info(address)?;
    let path = if info.dli_fname.is_null() {
        String::new()
    } else {
        // SAFETY: dladdr has filled in a string that ends with zero.
        unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy().into_owned()
    };
    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
    Some((name, info.dli_fbase as usize))
}

fn info(address: usize) -> Option<libc::Dl_info> {
    // SAFETY: a struct of pointers may be zero.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for, and the struct can be written.
    let found = unsafe { libc::dladdr(address as *const c_void, &raw mut info) };
    (found != 0).then_some(info)
}

/// Returns where the file that has an address begins in memory.
fn base(address: usize) -> usize {
    info(address).map_or(0, |info| info.dli_fbase as usize)
}

/// Returns where this library begins in memory.
fn own_base() -> usize {
    // In tests of this crate, all functions are in one file.
    if cfg!(test) {
        return usize::MAX;
    }
    static BASE: LazyLock<usize> = LazyLock::new(|| base(capture as fn() -> Stack as usize));
    *BASE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn first() -> Stack {
        std::hint::black_box(capture())
    }

    #[inline(never)]
    fn second() -> Stack {
        std::hint::black_box(capture())
    }

    #[test]
    fn one_place_has_one_stack() {
        let mut stacks: Vec<_> = (0..3).map(|_| first()).collect();
        stacks.dedup();
        assert_eq!(stacks.len(), 1);
        assert_ne!(stacks.first(), Some(&second()));
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_place_is_remembered() {
        let stacks: Vec<_> = (0..3).map(|_| first()).collect();
        let known = RECENT.with(|recent| {
            recent.borrow().iter().filter(|known| stacks.contains(&known.stack)).count()
        });
        assert_eq!(known, 1);
    }

    #[test]
    fn callers_at_one_depth_are_told_apart() {
        // Two calls of one function, with the same stack pointer.
        let calls: Vec<_> =
            [true, false, true, false].map(|one| if one { first() } else { second() }).into();
        assert_eq!((calls[0], calls[1]), (calls[2], calls[3]));
        assert_ne!(calls[0], calls[1]);
    }

    #[test]
    fn frames_have_functions_and_lines() {
        let frames = first().frames();
        let text = format!("{frames:?}");
        assert!(text.contains("stack::tests::first") && text.contains("stack.rs:"), "{text}");
    }
}
