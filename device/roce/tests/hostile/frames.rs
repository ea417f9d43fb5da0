//! Random bytes for the parsers. A frame that is accepted is written and read again, and must have
//! the same contents.

use vrnic_packet::ip;
use vrnic_roce::icrc;
use vrnic_roce::psn::Psn;
use vrnic_roce::wire::build::FRAME_MAX;
use vrnic_roce::wire::opcode::{Opcode, Transport};
use vrnic_roce::wire::{Frame, Layout, Packet, Path, Syndrome};

use crate::choices::{Choices, Shape};

/// Writes a frame into a buffer. Returns its length, or `None` if the transport does not have the
/// operation.
pub(crate) fn write(buffer: &mut [u8], path: &Path, shape: &Shape) -> Option<usize> {
    let layout = Layout::write(buffer, path, &shape.head, &shape.body, shape.length).ok()?;
    buffer.get_mut(layout.payload())?.fill(7);
    layout.seal(buffer).ok()
}

/// Gives bytes to each parser. Returns whether they are a valid frame.
pub(crate) fn any_bytes(bytes: &[u8]) -> bool {
    let _fields = (Packet::parse(bytes), icrc::compute(bytes), icrc::is_right(bytes));
    for parsed in [ip::Packet::v4(bytes), ip::Packet::v6(bytes)].into_iter().flatten() {
        assert!(parsed.header_bytes.len() + parsed.payload.len() <= bytes.len());
        let _checksum = parsed.checksum();
    }
    if let Some(first) = bytes.first() {
        let byte = Syndrome::from_byte(*first).map(Syndrome::byte);
        assert!(byte.is_err() || byte == Ok(*first));
        let number = Opcode::from_number(*first).map(Opcode::number);
        assert!(number.is_none() || number == Some(*first));
    }
    let Ok(Some(frame)) = Frame::parse(bytes) else { return false };
    let Ok(packet) = frame.packet() else { return false };
    let Frame { ethernet, network, source_port, .. } = frame;
    let path = Path { ethernet, network, source_port };
    let mut buffer = [0; FRAME_MAX];
    let (head, body) = (&packet.head, &packet.body);
    let Ok(layout) = Layout::write(&mut buffer, &path, head, body, packet.payload.len()) else {
        // No sender builds longer frames.
        assert!(bytes.len() > FRAME_MAX - 64, "{packet:?}");
        return true;
    };
    buffer[layout.payload()].copy_from_slice(packet.payload);
    let end = layout.seal(&mut buffer).expect("room");
    let again = Frame::parse(&buffer[..end]).expect("headers").expect("RoCE");
    assert_eq!(again.packet(), Ok(packet));
    assert_eq!((again.ethernet, again.network), (ethernet, network));
    true
}

/// Changes a valid frame as the choices say, with a right CRC or a wrong one, and parses it.
pub(crate) fn changed_frame(choices: &mut Choices<'_>) {
    let (path, psn) = (choices.path(), Psn::new(choices.word()));
    let shape = choices.shape(Transport::Rc, psn);
    let mut buffer = [0; FRAME_MAX];
    let Some(end) = write(&mut buffer, &path, &shape) else { return };
    let changes = choices.below(4);
    let mut frame = &mut buffer[..end];
    for _ in 0..changes {
        // Most changes are to the headers.
        let at = usize::from(choices.byte()) % frame.len().min(if changes == 3 { 256 } else { 90 });
        frame[at] = choices.byte();
    }
    if choices.once_in(8) {
        let length = usize::from(choices.byte()).min(frame.len());
        frame = &mut frame[..length];
    }
    let network = path.ethernet.header_len();
    if changes > 0
        && choices.once_in(2)
        && let Some(packet) = frame.get_mut(network..)
    {
        repair(packet);
    }
    let good = any_bytes(frame);
    assert!(good || changes > 0 || frame.len() < end, "{shape:?} is refused");
}

/// If these bytes begin with an IP header, writes the right CRC at their end.
pub(crate) fn repair(packet: &mut [u8]) {
    if let Some((covered, crc)) = packet.split_last_chunk_mut::<{ icrc::LEN }>()
        && let Some(right) = icrc::compute(covered)
    {
        *crc = right.to_le_bytes();
    }
}
