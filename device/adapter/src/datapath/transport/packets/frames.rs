//! Builds frames around bytes of guest memory.

use vrnic_roce::icrc;
use vrnic_roce::wire::build::HEADERS_MAX;
use vrnic_roce::wire::{Body, Head, Layout, Path};

use crate::ethernet::Frame;

/// Maximum number of bytes of padding.
const PADDING: usize = 3;

/// A frame to build.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts<'p> {
    /// The path to the peer.
    pub(super) path: &'p Path,
    /// The base transport header.
    pub(super) head: &'p Head,
    /// The operation.
    pub(super) body: &'p Body,
    /// Number of bytes of payload.
    pub(super) length: usize,
}

/// Appends a frame to `outbox`. `fill` copies the payload into it.
///
/// # Errors
/// The error of `fill`. Nothing is appended then.
pub(super) fn add<E>(
    outbox: &mut Vec<Frame>,
    parts: &Parts<'_>,
    fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut bytes = vec![0; HEADERS_MAX + parts.length + PADDING + icrc::LEN];
    let operation = (parts.head, parts.body);
    // The buffer has room, and the engine creates only operations that exist in its transport.
    let Ok(layout) = Layout::write(&mut bytes, parts.path, operation, parts.length) else {
        return Ok(());
    };
    fill(bytes.get_mut(layout.payload()).unwrap_or_default())?;
    if let Ok(length) = layout.seal(&mut bytes) {
        bytes.truncate(length);
        outbox.push(Frame::new(bytes));
    }
    Ok(())
}
