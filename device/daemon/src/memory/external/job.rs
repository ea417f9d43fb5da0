//! A transfer that the thread executes.

use std::sync::Arc;

use crate::memory::messages::{End, Messages, Unanswered};
use crate::memory::transfer::Span;

/// A transfer that the thread executes.
#[derive(Debug)]
pub struct Job {
    pub(super) asker: u64,
    pub(super) number: u64,
    pub(super) span: Span,
    /// The bytes of a write.
    pub(super) bytes: Option<Bytes>,
    pub(super) messages: Arc<dyn Messages>,
    pub(super) end: Arc<End>,
}

/// The bytes of a write.
#[derive(Debug)]
pub(super) enum Bytes {
    Shared(Arc<[u8]>),
    Own(Vec<u8>),
}

impl Job {
    /// Executes the transfer, which may take long. Returns the bytes of a read.
    ///
    /// # Errors
    /// See [`Unanswered`].
    pub fn run(&self) -> Result<Option<Vec<u8>>, Unanswered> {
        let Span { addr, len } = self.span;
        match &self.bytes {
            None => self.messages.read(addr, len, &self.end).map(Some),
            Some(Bytes::Shared(bytes)) => {
                self.messages.write(addr, bytes, &self.end).map(|()| None)
            }
            Some(Bytes::Own(bytes)) => self.messages.write(addr, bytes, &self.end).map(|()| None),
        }
    }
}
