//! Memory that the device reads and writes while this process does: mapped pages with canaries
//! around the usable part. It is accessed only through raw copies and atomics, never through
//! references, because the device changes it at any time.

use std::ffi::c_void;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};

use super::dmabuf;
use crate::prng::generate;

/// Page size of the machines on which this runs.
const PAGE: usize = 4096;
/// Bytes of canary on either side.
const CANARY: usize = 256;
/// Stream of the canary bytes.
const CANARY_SEED: u64 = 0xca9a_27ca_9a27_0001;
/// Bytes copied at a time.
const BLOCK: usize = 4096;

/// `len` usable bytes at a chosen offset in a page, with canaries before and after them.
pub struct Buffer {
    map: NonNull<u8>,
    map_len: usize,
    start: usize,
    len: usize,
    dmabuf: Option<OwnedFd>,
}

/// The first byte with a wrong value.
#[derive(Debug)]
pub struct Mismatch {
    /// The byte's offset in the buffer. In a canary, it is negative or beyond the end.
    pub offset: i64,
    /// The expected byte.
    pub want: u8,
    /// The byte found.
    pub got: u8,
}

impl Buffer {
    /// Maps zeroed memory. Its first usable byte is `misalign` bytes after the start of a page.
    pub fn new(len: usize, misalign: usize) -> io::Result<Self> {
        let start = PAGE + misalign % PAGE;
        let map_len = (start + len + CANARY).next_multiple_of(PAGE);
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing
        // that exists.
        let map = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                map_len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        Self::framed((map, map_len), start, len, None)
    }

    /// Creates a buffer that is a DMA buffer.
    pub fn of_dmabuf(len: usize, misalign: usize) -> io::Result<Self> {
        let start = PAGE + misalign % PAGE;
        let map_len = (start + len + CANARY).next_multiple_of(PAGE);
        let (memory, dmabuf) = dmabuf::create(map_len)?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let map = unsafe { mmap(ptr::null_mut(), map_len, prot, MapFlags::SHARED, &memory, 0)? };
        Self::framed((map, map_len), start, len, Some(dmabuf))
    }

    fn framed(
        (map, map_len): (*mut c_void, usize),
        start: usize,
        len: usize,
        dmabuf: Option<OwnedFd>,
    ) -> io::Result<Self> {
        let map = NonNull::new(map.cast()).ok_or_else(|| io::Error::other("mmap gave null"))?;
        let buffer = Self { map, map_len, start, len, dmabuf };
        for (at, bytes) in buffer.canaries() {
            buffer.store(at, &bytes);
        }
        Ok(buffer)
    }

    /// Makes the pages read-only, for regions that must not be registered.
    pub fn make_read_only(&self) -> io::Result<()> {
        // SAFETY: the range is this buffer's own mapping; the test must not write through it later,
        // which would end the process, but not corrupt it.
        unsafe { mprotect(self.map.as_ptr().cast(), self.map_len, MprotectFlags::READ)? };
        Ok(())
    }

    /// Returns the virtual address of the first usable byte.
    pub fn addr(&self) -> u64 {
        self.map.as_ptr() as u64 + self.start as u64
    }

    /// Returns the DMA buffer of this buffer, and the offset of its first usable byte there.
    pub fn dmabuf(&self) -> Option<(&OwnedFd, u64)> {
        self.dmabuf.as_ref().map(|fd| (fd, self.start as u64))
    }

    /// Returns the number of usable bytes.
    pub fn length(&self) -> usize {
        self.len
    }

    /// Returns the offset and the value of each canary in the mapping.
    fn canaries(&self) -> [(usize, [u8; CANARY]); 2] {
        let mut bytes = [0; CANARY];
        generate(CANARY_SEED, 0, &mut bytes);
        [(self.start - CANARY, bytes), (self.start + self.len, bytes)]
    }

    /// Returns the pointer to `len` bytes at `at` of the mapping.
    fn at(&self, at: usize, len: usize) -> *mut u8 {
        let end = at.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.map_len), "{at}+{len} leaves the mapping");
        self.map.as_ptr().wrapping_add(at)
    }

    fn store(&self, at: usize, bytes: &[u8]) {
        let to = self.at(at, bytes.len());
        // SAFETY: `at` has checked that the range lies in the mapping, which lives as long as
        // `self`; `bytes` is ordinary memory of ours and cannot overlap it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    fn load(&self, at: usize, bytes: &mut [u8]) {
        let from = self.at(at, bytes.len());
        // SAFETY: as in `store`, with source and destination exchanged.
        unsafe { ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
    }

    /// Returns an error if the range is not inside the usable part.
    fn range(&self, offset: usize, len: usize) -> io::Result<usize> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(self.start + offset),
            _ => Err(io::Error::other(format!("{offset}+{len} leaves a buffer of {}", self.len))),
        }
    }

    /// Writes bytes.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        self.store(self.range(offset, bytes.len())?, bytes);
        Ok(())
    }

    /// Reads bytes.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> io::Result<()> {
        self.load(self.range(offset, bytes.len())?, bytes);
        Ok(())
    }

    /// Fills `len` bytes with stream `seed` from `position` on.
    pub fn fill(&self, offset: usize, len: usize, seed: u64, position: u64) -> io::Result<()> {
        let at = self.range(offset, len)?;
        let mut block = [0u8; BLOCK];
        for done in (0..len).step_by(BLOCK) {
            let part = &mut block[..BLOCK.min(len - done)];
            generate(seed, position + done as u64, part);
            self.store(at + done, part);
        }
        Ok(())
    }

    /// Compares `len` bytes with stream `seed` from `position` on.
    pub fn compare(
        &self,
        offset: usize,
        len: usize,
        seed: u64,
        position: u64,
    ) -> io::Result<Option<Mismatch>> {
        let at = self.range(offset, len)?;
        let (mut want, mut got) = ([0u8; BLOCK], [0u8; BLOCK]);
        for done in (0..len).step_by(BLOCK) {
            let part = BLOCK.min(len - done);
            generate(seed, position + done as u64, &mut want[..part]);
            self.load(at + done, &mut got[..part]);
            if let Some(found) = first_difference(&want[..part], &got[..part]) {
                return Ok(Some(found.moved((offset + done) as i64)));
            }
        }
        Ok(None)
    }

    /// Checks both canaries. Returns the first byte that has changed.
    pub fn check_canaries(&self) -> Option<Mismatch> {
        self.canaries().into_iter().find_map(|(at, want)| {
            let mut got = [0; CANARY];
            self.load(at, &mut got);
            first_difference(&want, &got).map(|m| m.moved(at as i64 - self.start as i64))
        })
    }

    /// Returns the 8 bytes at an aligned address as an atomic.
    fn word(&self, offset: usize) -> io::Result<&AtomicU64> {
        let at = self.range(offset, 8)?;
        let word = self.at(at, 8).cast::<u64>();
        if !word.is_aligned() {
            return Err(io::Error::other(format!("offset {offset} is not 8-byte aligned")));
        }
        // SAFETY: in range (checked), aligned (checked), alive as long as `self`; the device also
        // accesses words that it shares with this process atomically.
        Ok(unsafe { AtomicU64::from_ptr(word) })
    }

    /// Adds `count` times with the processor's own atomic instruction.
    pub fn fetch_add(&self, offset: usize, add: u64, count: u64) -> io::Result<()> {
        let word = self.word(offset)?;
        for _ in 0..count {
            word.fetch_add(add, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Polls one byte until it has the value. Returns false if `timeout` passes first.
    pub fn spin(&self, offset: usize, value: u8, timeout: Duration) -> io::Result<bool> {
        let at = self.range(offset, 1)?;
        // SAFETY: in range (checked) and alive as long as `self`; bytes have no alignment.
        let byte = unsafe { AtomicU8::from_ptr(self.at(at, 1)) };
        let deadline = Instant::now() + timeout;
        while byte.load(Ordering::Acquire) != value {
            if Instant::now() >= deadline {
                return Ok(false);
            }
            std::hint::spin_loop();
        }
        Ok(true)
    }

    /// Unmaps the buffer, as a program does that frees memory which it has registered.
    pub fn unmap(self) -> io::Result<()> {
        // SAFETY: the mapping is this buffer's own, and `self` is not used afterwards. Regions that
        // are still registered on it pin the pages, not the addresses.
        unsafe { munmap(self.map.as_ptr().cast(), self.map_len)? };
        Ok(())
    }
}

impl Mismatch {
    fn moved(self, by: i64) -> Self {
        Self { offset: self.offset + by, ..self }
    }
}

fn first_difference(want: &[u8], got: &[u8]) -> Option<Mismatch> {
    if want == got {
        return None;
    }
    let at = want.iter().zip(got).position(|(w, g)| w != g)?;
    Some(Mismatch { offset: at as i64, want: want[at], got: got[at] })
}
