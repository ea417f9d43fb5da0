//! A heap that runs out of memory on demand. The functions below replace the functions of the C
//! library in the whole process, and so in libibverbs and its plugins. The Rust code of this
//! program uses the C library's heap directly, and never runs out of memory.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use rustix::io::Errno;

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(memory: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_memalign(align: usize, size: usize) -> *mut c_void;
    fn __libc_free(memory: *mut c_void);
}

/// The number of allocations that succeed before all further ones fail.
static LEFT: AtomicU64 = AtomicU64::new(u64::MAX);
/// The number of allocations of libraries that have not been freed.
static LIVE: AtomicI64 = AtomicI64::new(0);

/// Makes a call whose first `count` allocations succeed, and all others fail. No other thread may
/// run.
pub(crate) fn with_allocations<T>(count: u64, call: impl FnOnce() -> T) -> T {
    LEFT.store(count, Relaxed);
    let result = call();
    LEFT.store(u64::MAX, Relaxed);
    result
}

/// Returns the number of allocations of libraries that have not been freed.
pub(crate) fn live() -> i64 {
    LIVE.load(Relaxed)
}

/// Allocates with `from`, unless the allocation must fail.
fn allocate(from: impl FnOnce() -> *mut c_void) -> *mut c_void {
    let left = LEFT.load(Relaxed);
    if left == 0 {
        // SAFETY: the location of this thread's errno is always valid.
        unsafe { *libc::__errno_location() = libc::ENOMEM };
        return ptr::null_mut();
    }
    if left != u64::MAX {
        LEFT.store(left - 1, Relaxed);
    }
    let memory = from();
    if !memory.is_null() {
        LIVE.fetch_add(1, Relaxed);
    }
    memory
}

#[unsafe(no_mangle)]
unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    // SAFETY: the C library's function of the same kind, as in all functions below.
    allocate(|| unsafe { __libc_malloc(size) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    // SAFETY: as for `malloc`.
    allocate(|| unsafe { __libc_calloc(count, size) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(memory: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: as for `malloc`; the memory is the caller's.
    let larger = allocate(|| unsafe { __libc_realloc(memory, size) });
    // The old memory is freed if the call succeeds, or if the size is zero.
    if !memory.is_null() && (!larger.is_null() || size == 0) {
        LIVE.fetch_sub(1, Relaxed);
    }
    larger
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: usize, size: usize) -> c_int {
    // SAFETY: as for `malloc`.
    let memory = allocate(|| unsafe { __libc_memalign(align, size) });
    if memory.is_null() {
        return Errno::NOMEM.raw_os_error();
    }
    // SAFETY: `to` is the caller's place for the result.
    unsafe { *to = memory };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free(memory: *mut c_void) {
    if !memory.is_null() {
        LIVE.fetch_sub(1, Relaxed);
    }
    // SAFETY: as for `malloc`; the memory is the caller's.
    unsafe { __libc_free(memory) };
}

/// The C library's heap, for the Rust code of this program.
struct Own;

#[global_allocator]
static OWN: Own = Own;

// SAFETY: the C library's functions, which keep to the size and the alignment asked for.
unsafe impl GlobalAlloc for Own {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size and any power of two are allowed.
        unsafe { __libc_memalign(layout.align(), layout.size()) }.cast()
    }

    unsafe fn dealloc(&self, memory: *mut u8, _: Layout) {
        // SAFETY: allocated above, and given up by the caller.
        unsafe { __libc_free(memory.cast()) }
    }
}
