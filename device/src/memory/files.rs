//! The files of a VMM that are mapped into this process. All ranges in a file share one mapping, so
//! that the number of mappings depends on the files, and not on the ranges.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Weak};

use rustix::fs::SealFlags;

use super::backing::{Backing, Usage};
use super::fault::MapError;
use super::mapping::{self, HUGETLBFS, Mapping};
use super::range::DmaRange;
use super::rules::MapRules;

/// Type of the file system of memfds and of shared memory (statfs(2)).
pub(super) const TMPFS: libc::c_long = 0x01021994;
/// Number of mappings that may have ended before the list of them is cleaned.
const ENDED_MAX: usize = 64;

/// What identifies a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    device: u64,
    inode: u64,
    writable: bool,
    /// Offset of its first byte in the file.
    offset: u64,
}

/// The mappings of a VMM.
#[derive(Debug)]
pub(super) struct Files {
    /// The adapter's name, as the prefix of log lines.
    name: String,
    rules: MapRules,
    /// The connection of the VMM, which stays open while there are mappings.
    pub(super) connection: Option<OwnedFd>,
    known: BTreeMap<Key, Weak<Backing>>,
    usage: Arc<Usage>,
}

impl Files {
    /// Creates an empty list for adapter `name`.
    pub(super) fn new(name: &str, rules: MapRules) -> Self {
        let (name, known) = (name.to_owned(), BTreeMap::new());
        Self { name, rules, connection: None, known, usage: Arc::default() }
    }

    /// Returns the memory of a range, and the offset of the range in it. If no mapping of the file
    /// contains the range, it maps the whole file, or, if the limits or the kernel refuse that,
    /// only the part for the range.
    ///
    /// # Errors
    /// See [`MapError`].
    pub(super) fn memory(
        &mut self,
        range: &DmaRange,
        file: &File,
    ) -> Result<(Arc<Backing>, usize), MapError> {
        let DmaRange { iova, size, offset, writable, .. } = *range;
        let os = |error| MapError::Os { iova, size, error };
        let meta = file.metadata().map_err(os)?;
        if !meta.is_file() {
            return Err(MapError::NotShared { iova });
        }
        // A range beyond the end of the file would raise SIGBUS at its first use.
        let len = meta.size();
        let end = offset.checked_add(size).filter(|end| *end <= len);
        let end = end.ok_or(MapError::BeyondFile { iova, size, len })?;
        let key = Key { device: meta.dev(), inode: meta.ino(), writable, offset };
        if let Some(known) = self.find(key, size) {
            return Ok(known);
        }
        self.check(range, file)?;
        let page = mapping::page_size(file).map_err(os)? as u64;
        let part = offset - offset % page..end;
        let map = |part| self.map(range, file, part);
        let backing = map(0..len).or_else(|_| map(part))?;
        if self.known.len() > self.usage.mappings() + ENDED_MAX {
            self.known.retain(|_, known| known.strong_count() > 0);
        }
        let key = Key { offset: backing.offset, ..key };
        self.known.insert(key, Arc::downgrade(&backing));
        let base = (offset - backing.offset) as usize;
        Ok((backing, base))
    }

    /// Returns whether memory has been lost, as far as this is known without an access.
    pub(super) fn has_lost(&self) -> bool {
        let lost = |known: &Weak<Backing>| known.upgrade().is_some_and(|b| b.mapping.is_lost());
        self.known.values().any(lost)
    }

    /// Returns a mapping that contains the `size` bytes at `wanted`, and their offset in it. Memory
    /// that is mapped for writing serves ranges that are read-only, too.
    fn find(&self, wanted: Key, size: u64) -> Option<(Arc<Backing>, usize)> {
        let contains = |known: &Weak<Backing>| {
            let backing = known.upgrade().filter(|backing| !backing.mapping.is_lost())?;
            let base = wanted.offset.checked_sub(backing.offset)?;
            let fits = base.checked_add(size)? <= backing.mapping.len() as u64;
            fits.then_some((backing, base as usize))
        };
        [true, wanted.writable].into_iter().find_map(|writable| {
            let [start, end] = [0, wanted.offset].map(|offset| Key { offset, writable, ..wanted });
            // The nearest mapping that begins before the range, and that of the whole file.
            let nearest = self.known.range(start..=end).next_back().map(|(_, known)| known);
            nearest.and_then(contains).or_else(|| self.known.get(&start).and_then(contains))
        })
    }

    /// Checks that the file is memory.
    fn check(&self, range: &DmaRange, file: &File) -> Result<(), MapError> {
        let DmaRange { iova, size, .. } = *range;
        let system = rustix::fs::fstatfs(file)
            .map_err(|error| MapError::Os { iova, size, error: error.into() })?
            .f_type;
        if !self.rules.any_file && ![TMPFS, HUGETLBFS].contains(&system) {
            return Err(MapError::NotMemory { iova });
        }
        let sealed =
            rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        if !sealed {
            tracing::debug!(
                function = self.name,
                "the memory file of guest address {iova:#x} is not sealed against shrinking"
            );
        }
        Ok(())
    }

    /// Maps part of a file for a range, within the limits.
    fn map(
        &self,
        range: &DmaRange,
        file: &File,
        part: Range<u64>,
    ) -> Result<Arc<Backing>, MapError> {
        let DmaRange { iova, size, writable, .. } = *range;
        let bytes = part.end - part.start;
        if self.usage.mappings() >= self.rules.mappings {
            return Err(MapError::TooManyFiles { limit: self.rules.mappings });
        }
        let limit = self.rules.bytes;
        if self.usage.bytes().checked_add(bytes).is_none_or(|sum| sum > limit) {
            return Err(MapError::TooMuch { iova, size, limit });
        }
        let len = usize::try_from(bytes).map_err(|_| MapError::BadRange { iova, size })?;
        let mapping = Mapping::new(file, part.start, len, writable)
            .map_err(|error| MapError::Os { iova, size, error })?;
        if let Some(connection) = &self.connection {
            mapping.bind(connection.as_fd());
        }
        Ok(Arc::new(Backing::new(mapping, part.start, &self.usage)))
    }
}
