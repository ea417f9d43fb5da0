//! What a hostile program can do without the provider's consent: find the pages that the process
//! shares with the device, and write whatever it likes into them.

use std::fs;
use std::io;
use std::ptr;

use crate::pattern::Rng;

/// A mapping that the device reads.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    start: usize,
    len: usize,
    /// Whether it is device memory (a doorbell page, a device-resident queue) and not a ring.
    pub(crate) device: bool,
}

impl Mapping {
    /// Bytes of it.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Stores a word with one instruction, as a doorbell is rung.
    pub(crate) fn store(&self, offset: usize, value: u64) {
        let at = offset.next_multiple_of(8) % self.len;
        // SAFETY: `at` is 8-byte aligned and inside a writable mapping of this process, which holds
        // only what the provider shares with the device: no Rust value lives there. What the provider
        // makes of the garbage can only harm this process, which exists to be harmed.
        unsafe { ptr::write_volatile((self.start + at) as *mut u64, value) };
    }

    /// Overwrites `words` words at random places.
    pub(crate) fn scribble(&self, rng: &mut Rng, words: usize) {
        for _ in 0..words {
            let at = rng.below(self.len as u64) as usize;
            let value = rng.next();
            self.store(at, value);
        }
    }
}

/// The writable mappings of the verbs device, and the anonymous ones that the provider excluded from
/// fork, which is what it must do with every ring.
pub(crate) fn mappings() -> io::Result<Vec<Mapping>> {
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

/// If `line` starts a mapping: the mapping if it is writable, and whether it is anonymous.
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
