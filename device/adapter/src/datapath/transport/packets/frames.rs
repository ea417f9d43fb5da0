//! Builds frames around bytes of guest memory.

use vrnic_packet::pool::Buffer;
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
    let buffer = Buffer::of(HEADERS_MAX + parts.length + PADDING + icrc::LEN);
    within(buffer, outbox, parts, fill)
}

/// Does the same as [`add`] in a buffer of this length or more.
fn within<E>(
    mut buffer: Buffer,
    outbox: &mut Vec<Frame>,
    parts: &Parts<'_>,
    fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let bytes = buffer.bytes_mut();
    // The buffer has room, and the engine creates only operations that exist in its transport.
    let Ok(layout) = Layout::write(bytes, parts.path, parts.head, parts.body, parts.length) else {
        return Ok(());
    };
    fill(bytes.get_mut(layout.payload()).unwrap_or_default())?;
    if let Ok(length) = layout.seal(bytes) {
        outbox.push(Frame::within(buffer, 0..length, None));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use vrnic_packet::ip::{Addresses, Header};
    use vrnic_packet::{Ethernet, MacAddr};
    use vrnic_roce::Psn;
    use vrnic_roce::wire::opcode::Transport;
    use vrnic_roce::wire::{Part, Qpn, Request, SendEnd};

    use super::*;

    fn path() -> Path {
        let [source, destination] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(Into::into);
        let addresses = Addresses::V4 { source, destination };
        Path {
            ethernet: Ethernet {
                destination: MacAddr([2; 6]),
                source: MacAddr([4; 6]),
                vlan: None,
            },
            network: Header { addresses, traffic_class: 0, hop_limit: 64, flow_label: 0 },
            source_port: 0xc000,
        }
    }

    /// Buffers of the pool have bytes of earlier frames, here the bytes of `old`.
    fn build(old: u8, length: usize) -> Frame {
        let mut earlier = Buffer::of(HEADERS_MAX + length + PADDING + icrc::LEN);
        earlier.bytes_mut().fill(old);
        let head = Head::new(Transport::Rc, Qpn::new(7), Psn::new(9));
        let body = Body::Request(Request::Send(Part::Only((), SendEnd::Plain)));
        let parts = Parts { path: &path(), head: &head, body: &body, length };
        let mut outbox = Vec::new();
        let payload = |into: &mut [u8]| {
            into.fill(1);
            Ok::<_, Infallible>(())
        };
        let Ok(()) = within(earlier, &mut outbox, &parts, payload);
        outbox.remove(0)
    }

    #[test]
    fn no_byte_of_an_earlier_frame_is_sent() {
        for length in [0, 1, 2, 3, 4, 255, 1021, 4096] {
            assert_eq!(build(0xa5, length), build(0x5a, length), "{length}");
        }
    }
}
