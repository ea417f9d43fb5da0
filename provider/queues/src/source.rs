// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Where the memory of rings comes from: new pages of the kernel, the command file, or a program's
//! allocator.

use rustix::io::Errno;

use crate::allocator::{Allocator, Piece, Resource};
use crate::heap::Shared;
use crate::mapping::{Mapping, RingFile};

/// The source of the memory of an object's rings.
#[derive(Clone, Debug)]
pub struct Source {
    allocator: Option<Shared<Allocator>>,
    resource: Resource,
    file: Option<RingFile>,
}

impl Source {
    /// Creates a source that takes memory from the allocator, or new pages if there is none.
    #[must_use]
    pub fn new(allocator: Option<Shared<Allocator>>, resource: Resource) -> Self {
        Self { allocator, resource, file: None }
    }

    /// Creates a source of new pages.
    #[must_use]
    pub fn pages(resource: Resource) -> Self {
        Self::new(None, resource)
    }

    /// Returns the source with pages of a file instead of new ones, if there is a file.
    #[must_use]
    pub fn of_file(self, file: Option<RingFile>) -> Self {
        Self { file, ..self }
    }

    /// Returns zeroed memory of at least `len` bytes that a forked child does not inherit.
    ///
    /// # Errors
    /// `ENOMEM`; `EINVAL` if `len` is zero or the program's allocator disregards the alignment.
    pub fn map(&self, len: usize) -> Result<Mapping, Errno> {
        if let Some(allocator) = &self.allocator
            && let Some(piece) = Piece::allocate(allocator, len, self.resource)?
        {
            return Ok(Mapping::of(piece));
        }
        // Without a place in the file, the ring is slower, but works.
        let shared = self.file.as_ref().and_then(|file| file.map(len).ok());
        shared.map_or_else(|| Mapping::anonymous(len), Ok)
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::{self, Layout};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use std::ffi::c_void;
    use std::ptr;

    use super::*;
    use crate::allocator::{Functions, PAGE, USE_DEFAULT};

    /// Counts the calls of the functions below.
    #[derive(Default)]
    struct Calls {
        allocated: AtomicUsize,
        freed: AtomicUsize,
        /// A number of bytes that is added to the address that the program returns.
        skew: usize,
    }

    unsafe extern "C" fn allocate(
        context: *mut c_void,
        calls: *mut c_void,
        len: usize,
        align: usize,
        resource: u64,
    ) -> *mut c_void {
        assert_eq!((context.addr(), resource), (7, 2));
        let layout = Layout::from_size_align(2 * len, align).expect("layout");
        // SAFETY: the size is not zero, and the test passes its own counters.
        unsafe {
            (*calls.cast::<Calls>()).allocated.fetch_add(len, Ordering::Relaxed);
            let memory = alloc::alloc(layout);
            ptr::write_bytes(memory, 0xff, 2 * len);
            memory.add((*calls.cast::<Calls>()).skew).cast()
        }
    }

    unsafe extern "C" fn release(
        _domain: *mut c_void,
        calls: *mut c_void,
        memory: *mut c_void,
        resource: u64,
    ) {
        assert_eq!(resource, 2);
        // SAFETY: the test passes its own counters; two pages from `allocate`.
        unsafe {
            let calls = &*calls.cast::<Calls>();
            calls.freed.fetch_add(1, Ordering::Relaxed);
            let memory = memory.cast::<u8>().sub(calls.skew);
            alloc::dealloc(memory, Layout::from_size_align(2 * PAGE, PAGE).expect("layout"));
        }
    }

    unsafe extern "C" fn decline(
        _domain: *mut c_void,
        answer: *mut c_void,
        _len: usize,
        _align: usize,
        _resource: u64,
    ) -> *mut c_void {
        answer
    }

    fn source(alloc: Option<*mut c_void>, calls: &mut Calls) -> Source {
        let context = alloc.unwrap_or(ptr::from_mut(calls).cast());
        let functions = Functions {
            alloc: if alloc.is_some() { decline } else { allocate },
            free: release,
            domain: ptr::without_provenance_mut(7),
            context,
        };
        // SAFETY: the functions above return memory that nothing else uses.
        let allocator = unsafe { Allocator::new(functions) };
        Source::new(Some(Shared::new(allocator).expect("memory")), Resource::Cq)
    }

    /// Shows: queues
    #[test]
    fn rings_are_whole_zeroed_pages_of_the_programs_allocator() {
        let mut calls = Calls::default();
        let source = source(None, &mut calls);
        let memory = source.map(100).expect("memory");
        assert_eq!(memory.len(), PAGE);
        assert!(memory.words().iter().all(|word| word.load(Ordering::Relaxed) == 0));
        assert_eq!(calls.allocated.load(Ordering::Relaxed), PAGE);
        drop(source);
        assert_eq!(calls.freed.load(Ordering::Relaxed), 0);
        drop(memory);
        assert_eq!(calls.freed.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn memory_without_alignment_is_given_back() {
        let mut calls = Calls { skew: 64, ..Calls::default() };
        assert_eq!(source(None, &mut calls).map(100).expect_err("unaligned"), Errno::INVAL);
        assert_eq!(calls.freed.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn an_allocator_may_decline_or_fail() {
        let mut calls = Calls::default();
        let decline = source(Some(ptr::without_provenance_mut(USE_DEFAULT)), &mut calls);
        drop(decline.map(100).expect("the plugin's own memory"));
        let fail = source(Some(ptr::null_mut()), &mut calls);
        assert_eq!(fail.map(100).expect_err("no memory"), Errno::NOMEM);
        assert_eq!(calls.freed.load(Ordering::Relaxed), 0);
    }
}
