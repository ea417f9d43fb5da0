//! Memory for tests: sparse pages of atomic words, so that tests need no unsafe code.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: u64 = 4096;
const WORDS: usize = PAGE as usize / 8;

type Page = Box<[AtomicU64]>;

/// Zeroed memory; pages exist from their first use on.
pub(crate) struct Memory {
    pages: Box<[OnceLock<Page>]>,
}

impl Memory {
    pub(crate) fn new(len: u64) -> Self {
        Self { pages: (0..len.div_ceil(PAGE)).map(|_| OnceLock::new()).collect() }
    }

    pub(crate) fn len(&self) -> u64 {
        self.pages.len() as u64 * PAGE
    }

    /// The word that holds the byte at `offset`.
    pub(crate) fn word(&self, offset: u64) -> Option<&AtomicU64> {
        let page = self.pages.get(usize::try_from(offset / PAGE).ok()?)?;
        let page = page.get_or_init(|| (0..WORDS).map(|_| AtomicU64::new(0)).collect());
        page.get(usize::try_from(offset % PAGE / 8).ok()?)
    }

    /// Returns whether the page at `offset` was ever used.
    pub(crate) fn exists(&self, offset: u64) -> bool {
        let page = usize::try_from(offset / PAGE).ok().and_then(|page| self.pages.get(page));
        page.is_some_and(|page| page.get().is_some())
    }

    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Option<()> {
        let mut at = offset;
        let mut rest = into;
        while !rest.is_empty() {
            let skip = (at % 8) as usize;
            let count = rest.len().min(8 - skip);
            let bytes = self.word(at)?.load(Ordering::Acquire).to_le_bytes();
            let (now, later) = rest.split_at_mut(count);
            now.copy_from_slice(&bytes[skip..skip + count]);
            rest = later;
            at += count as u64;
        }
        Some(())
    }

    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> Option<()> {
        let mut at = offset;
        let mut rest = from;
        while !rest.is_empty() {
            let skip = (at % 8) as usize;
            let count = rest.len().min(8 - skip);
            let (now, later) = rest.split_at(count);
            let replace = |word: u64| {
                let mut bytes = word.to_le_bytes();
                bytes[skip..skip + count].copy_from_slice(now);
                Some(u64::from_le_bytes(bytes))
            };
            self.word(at)?.fetch_update(Ordering::AcqRel, Ordering::Acquire, replace).ok()?;
            rest = later;
            at += count as u64;
        }
        Some(())
    }
}
