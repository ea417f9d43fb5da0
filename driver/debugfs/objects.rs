// SPDX-License-Identifier: GPL-2.0
//! The debugfs files that list the adapter's objects: a line of names and values for each, in the
//! order of their numbers.
//!
//! The position in such a file is the number of the next object. A read asks the adapter for some
//! objects and returns the lines that fit. So no memory grows with the number of objects, and
//! objects may be created and destroyed in the meantime.

use abi::admin::{NONE, fields::Record};
use kernel::{
    debugfs::BinaryWriter, fs::file, prelude::*, str::Formatter, sync::Arc,
    uaccess::UserSliceWriter,
};

use core::marker::PhantomData;

use super::{format::Line, query::Inspector};

/// Longest line.
const LINE: usize = 1024;
/// The maximum number of bytes that one read gives.
const CHUNK: usize = 16 << 10;

/// The content of a file that lists objects of one kind.
pub(crate) struct Listing<R> {
    inspector: Arc<Inspector>,
    records: PhantomData<R>,
}

impl<R: Record> Listing<R> {
    /// Returns all that the adapter has.
    pub(crate) fn new(inspector: Arc<Inspector>) -> Self {
        Self { inspector, records: PhantomData }
    }
}

impl<R: Record> BinaryWriter for Listing<R> {
    fn write_to_slice(
        &self,
        writer: &mut UserSliceWriter,
        offset: &mut file::Offset,
    ) -> Result<usize> {
        let mut text = KVec::with_capacity(writer.len().min(CHUNK), GFP_KERNEL)?;
        let mut from = u32::try_from(*offset).map_err(|_| EINVAL)?;
        let mut full = false;
        // Parts of the numbers may be empty.
        while from != NONE && text.is_empty() && !full {
            if current!().signal_pending() {
                return Err(EINTR);
            }
            let next = self.inspector.list(from, |record: R| {
                // The adapter's answer is not trusted: the position only grows.
                if record.number() < from {
                    return Err(EIO);
                }
                full |= !self.append(&record, &mut text)?;
                // The first record that does not fit is the next one to return.
                if !full {
                    from = record.number().saturating_add(1);
                }
                Ok(())
            })?;
            if !full {
                from = next;
            }
        }
        if full && text.is_empty() {
            return Err(EINVAL);
        }
        writer.write_slice(&text)?;
        *offset = from.into();
        Ok(text.len())
    }
}

impl<R: Record> Listing<R> {
    /// Appends a record's line, if there is room. Returns whether there was.
    fn append(&self, record: &R, text: &mut KVec<u8>) -> Result<bool> {
        let mut line = [0; LINE];
        let mut formatter = Formatter::new(&mut line);
        let mut words = Line::new(&mut formatter);
        record.show(&mut words).and_then(|()| words.end()).map_err(|_| EOVERFLOW)?;
        let length = formatter.bytes_written();
        if text.capacity() - text.len() < length {
            return Ok(false);
        }
        text.extend_from_slice(line.get(..length).ok_or(EOVERFLOW)?, GFP_KERNEL)?;
        Ok(true)
    }
}
