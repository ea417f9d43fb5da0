//! The files of a VMM that are mapped into this process. All ranges in a file share one mapping, so
//! that the number of mappings depends on the files, and not on the ranges.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Weak};

use rustix::fs::SealFlags;

use super::fault::MapError;
use super::mapping::{self, HUGETLBFS, Mapping};
use super::range::DmaRange;
use super::rules::MapRules;

/// Type of the file system of memfds and of shared memory (statfs(2)).
pub(super) const TMPFS: libc::c_long = 0x01021994;

/// A mapping, as long as a range uses it.
#[derive(Debug)]
struct Known {
    file: FileId,
    /// Offset of its first byte in the file.
    offset: u64,
    mapping: Weak<Mapping>,
}

/// The identity of a file: its device and its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId(u64, u64);

/// A part of a file.
struct Part {
    file: FileId,
    bytes: Range<u64>,
    writable: bool,
}

/// The mappings of a VMM.
#[derive(Debug)]
pub(super) struct Files {
    /// The adapter's name, as the prefix of log lines.
    name: String,
    rules: MapRules,
    /// The connection of the VMM, which stays open while there are mappings.
    pub(super) connection: Option<OwnedFd>,
    known: Vec<Known>,
}

impl Files {
    /// Creates an empty list for adapter `name`.
    pub(super) fn new(name: &str, rules: MapRules) -> Self {
        Self { name: name.to_owned(), rules, connection: None, known: Vec::new() }
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
    ) -> Result<(Arc<Mapping>, usize), MapError> {
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
        let id = FileId(meta.dev(), meta.ino());
        if let Some(found) = self.find(&Part { file: id, bytes: offset..end, writable }) {
            return Ok(found);
        }
        self.check(range, file)?;
        let page = mapping::page_size(file).map_err(os)? as u64;
        let part = offset - offset % page..end;
        self.known.retain(|known| known.mapping.strong_count() > 0);
        let map = |part: Range<u64>| Ok((part.start, self.map(range, file, part)?));
        let (start, mapping) = map(0..len).or_else(|_: MapError| map(part))?;
        let weak = Arc::downgrade(&mapping);
        self.known.push(Known { file: id, offset: start, mapping: weak });
        Ok((mapping, (offset - start) as usize))
    }

    /// Returns whether memory has been lost, as far as this is known without an access.
    pub(super) fn has_lost(&self) -> bool {
        self.mappings().any(|mapping| mapping.is_lost())
    }

    /// Returns the mappings that still have a range.
    fn mappings(&self) -> impl Iterator<Item = Arc<Mapping>> {
        self.known.iter().filter_map(|known| known.mapping.upgrade())
    }

    /// Returns a mapping that contains a part, and the offset of the part in it. Memory that is
    /// mapped for writing serves ranges that are read-only, too.
    fn find(&self, part: &Part) -> Option<(Arc<Mapping>, usize)> {
        let contains = |known: &Known| {
            let start = part.bytes.start.checked_sub(known.offset)?;
            let end = part.bytes.end.checked_sub(known.offset)?;
            let mapping = known.mapping.upgrade().filter(|mapping| {
                !mapping.is_lost()
                    && end <= mapping.len() as u64
                    && (mapping.is_writable() || !part.writable)
            })?;
            Some((mapping, start as usize))
        };
        self.known.iter().filter(|known| known.file == part.file).find_map(contains)
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
    ) -> Result<Arc<Mapping>, MapError> {
        let DmaRange { iova, size, writable, .. } = *range;
        let bytes = part.end - part.start;
        if self.known.len() >= self.rules.mappings {
            return Err(MapError::TooManyFiles { limit: self.rules.mappings });
        }
        let limit = self.rules.bytes;
        let mapped: u64 = self.mappings().map(|mapping| mapping.len() as u64).sum();
        if mapped.checked_add(bytes).is_none_or(|sum| sum > limit) {
            return Err(MapError::TooMuch { iova, size, limit });
        }
        let len = usize::try_from(bytes).map_err(|_| MapError::BadRange { iova, size })?;
        let mapping = Mapping::new(file, part.start, len, writable)
            .map_err(|error| MapError::Os { iova, size, error })?;
        if let Some(connection) = &self.connection {
            mapping.bind(connection.as_fd());
        }
        Ok(Arc::new(mapping))
    }
}
