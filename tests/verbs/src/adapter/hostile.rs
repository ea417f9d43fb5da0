//! Actions of a hostile program that bypasses the provider: it finds the memory that the process
//! shares with the device, and writes garbage into it.

use std::fs;
use std::io;
use std::ptr;

use vrnic_abi::{regs, sq, uar};

use crate::prng::Rng;

/// A mapping that the device reads.
#[derive(Clone, Debug)]
pub struct Mapping {
    start: usize,
    len: usize,
    /// True for device memory (a doorbell page, a queue in the device), false for a ring.
    pub device: bool,
}

impl Mapping {
    /// Returns its length in bytes.
    pub fn length(&self) -> usize {
        self.len
    }

    /// Stores a word with one instruction, as a doorbell does.
    pub fn store(&self, offset: usize, value: u64) {
        let at = offset.next_multiple_of(8) % self.len;
        // SAFETY: `at` is 8-byte aligned and inside a writable mapping of this process, which
        // contains only what the provider shares with the device, and no Rust value. Garbage that
        // the provider reads can only harm this process, which exists for that purpose.
        unsafe { ptr::write_volatile((self.start + at) as *mut u64, value) };
    }

    /// Stores 32 bits at the start, as a kick does.
    fn kick(&self) {
        // SAFETY: as in `store`; a page's start is aligned.
        unsafe { ptr::write_volatile(self.start as *mut u32, 0) };
    }

    /// Overwrites `words` words at random places.
    pub fn scribble(&self, rng: &mut Rng, words: usize) {
        for _ in 0..words {
            let at = rng.below(self.len as u64) as usize;
            let value = rng.word();
            self.store(at, value);
        }
    }
}

/// Memory that entries may name, so that not all of them fail at the first check.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    pub addr: u64,
    pub key: u32,
}

/// Fills all rings with entries that are wrong in few places, and rings every doorbell with small
/// indices, so that the device executes the entries.
pub fn plausible(all: &[Mapping], named: &[Named], rng: &mut Rng) -> u64 {
    let mut stores = 0;
    let doorbells = |m: &&Mapping| m.device && m.len == uar::UAR_LEN as usize;
    let kicks = |m: &&Mapping| m.device && m.len == regs::KICK_LEN as usize;
    for ring in all.iter().filter(|m| !doorbells(m) && !kicks(m)) {
        let receives = !ring.device && rng.below(2) == 0;
        for (slot, at) in (0..ring.len).step_by(sq::STRIDE_MIN as usize).enumerate() {
            let entry = if receives { receive(named, rng) } else { send(named, slot, rng) };
            for (i, word) in entry.into_iter().enumerate() {
                ring.store(at + 8 * i, word);
            }
            stores += entry.len() as u64;
        }
    }
    for page in all.iter().filter(doorbells) {
        for slot in uar::SLOT_FIRST..uar::SLOT_END {
            let indices = rng.below(16) << 32 | rng.below(16);
            page.store((slot * uar::SLOT_LEN) as usize, indices);
        }
        page.store(uar::SUMMARY_OFFSET as usize, u64::MAX);
        stores += u64::from(uar::SLOTS) + 1;
    }
    all.iter().filter(kicks).for_each(Mapping::kick);
    stores
}

/// Returns one of several values.
fn pick<T: Copy>(rng: &mut Rng, among: &[T]) -> T {
    among[rng.below(among.len() as u64) as usize]
}

/// Returns a segment in two words: the address, and the length with the key.
fn segment(named: &[Named], rng: &mut Rng) -> [u64; 2] {
    let wild = Named { addr: rng.word(), key: rng.word() as u32 };
    let Named { addr, key } = if rng.below(4) == 0 { wild } else { pick(rng, named) };
    let length = pick(rng, &[0, 1, 8, 64, 4096, 4097, 1 << 20, 1 << 31, u32::MAX]);
    [addr.wrapping_add(rng.below(64)), u64::from(length) | u64::from(key) << 32]
}

/// Returns a send queue entry of 64 bytes.
fn send(named: &[Named], slot: usize, rng: &mut Rng) -> [u64; 8] {
    let opcode = rng.below(9);
    let flags = pick(rng, &[0, 1, 1, 1, 3, 5, 9, 0xff]);
    let count = pick(rng, &[0, 1, 1, 1, 1, 2, 3, 16, 17, 32, 480, 0xffff]);
    let [raddr, key] = segment(named, rng);
    let stamp = u64::from(vrnic_abi::stamp(slot as u32));
    let [first, second] = [segment(named, rng), segment(named, rng)];
    [
        rng.word(),
        opcode | flags << 8 | count << 16 | rng.word() << 32,
        raddr,
        key >> 32 | stamp << 32,
        first[0],
        first[1],
        second[0],
        second[1],
    ]
}

/// Returns two receive queue entries of 32 bytes.
fn receive(named: &[Named], rng: &mut Rng) -> [u64; 8] {
    let mut entry = [0; 8];
    for half in entry.chunks_mut(4) {
        let [addr, rest] = segment(named, rng);
        let count = pick(rng, &[0, 1, 1, 1, 2, 17, 0xffff]);
        half.copy_from_slice(&[rng.word(), count, addr, rest]);
    }
    entry
}

/// Returns the writable mappings of the verbs device, and the anonymous mappings that the provider
/// has excluded from fork, as it must do with every ring.
pub fn mappings() -> io::Result<Vec<Mapping>> {
    let text = fs::read_to_string("/proc/self/smaps")?;
    let mut found = Vec::new();
    let mut current: Option<(Mapping, bool)> = None;
    for line in text.lines() {
        if let Some(mapping) = parse_header(line) {
            current = mapping;
        } else if let Some(flags) = line.strip_prefix("VmFlags:")
            && let Some((mapping, anonymous)) = current.take()
        {
            let ring = anonymous && flags.split(' ').any(|f| f == "dc");
            if mapping.device || ring {
                found.push(mapping);
            }
        }
    }
    Ok(found)
}

/// If `line` is the first line of a mapping, returns the mapping if it is writable, and whether it
/// is anonymous.
fn parse_header(line: &str) -> Option<Option<(Mapping, bool)>> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let len = usize::from_str_radix(end, 16).ok()?.checked_sub(start)?;
    let rights = fields.next()?;
    let path = fields.nth(3).unwrap_or_default();
    let device = path.starts_with("/dev/infiniband/");
    let mapping = Mapping { start, len, device };
    Some((rights.as_bytes().get(1) == Some(&b'w')).then_some((mapping, path.is_empty())))
}
