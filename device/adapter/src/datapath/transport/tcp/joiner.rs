//! Builds the frames of the segments that a QP sends in a turn. Consecutive segments become one
//! frame if the network takes such frames: the host's kernel then handles them as one.

use vrnic_packet::pool::Buffer;
use vrnic_tcp::connection::Transmit;
use vrnic_tcp::wire::frame::{HEADROOM, Path, build, build_joined};
use vrnic_tcp::wire::{Flags, Header};

use crate::ethernet::{Frame, Joint, SEGMENT_MIN};

/// Maximum number of data bytes of a joined frame: an IP packet of 65,535 bytes, less the longest
/// headers.
const DATA_MAX: usize = 65_535 - 40 - 60;

/// Segments that are not in a frame yet.
#[derive(Debug, Default)]
pub(super) struct Joiner {
    /// Room for the headers, and then the data.
    buffer: Buffer,
    joins: bool,
    /// The header of the first segment.
    first: Option<Header>,
    /// The flags of the last segment.
    flags: Flags,
    /// Length of the data of the first segment, and of all of them.
    step: usize,
    len: usize,
    count: u16,
}

impl Joiner {
    /// Creates a joiner. It joins no segments unless `joins` is true.
    pub(super) fn new(joins: bool) -> Self {
        Self { joins, ..Self::default() }
    }

    /// Returns whether a segment of at most `most` bytes may become part of the frame.
    pub(super) fn has_room(&self, most: usize) -> bool {
        // A shorter segment is the last one, as is one with PSH or FIN.
        let full = self.step.max(SEGMENT_MIN) * usize::from(self.count);
        let open = self.joins && self.len == full && self.flags == Flags::ACK;
        self.count == 0 || open && self.len + most <= DATA_MAX
    }

    /// Returns the memory for the data of the next segment, which has at most `most` bytes.
    pub(super) fn space(&mut self, most: usize) -> &mut [u8] {
        let at = HEADROOM + self.len;
        // More may follow the second one.
        let all = if self.count == 1 { HEADROOM + DATA_MAX } else { 0 };
        let needed = all.max(at + most);
        if self.buffer.len() < needed {
            let mut longer = Buffer::of(needed);
            let kept = self.buffer.bytes().get(..at).unwrap_or_default();
            if let Some(to) = longer.bytes_mut().get_mut(..kept.len()) {
                to.copy_from_slice(kept);
            }
            self.buffer = longer;
        }
        self.buffer.bytes_mut().get_mut(at..at + most).unwrap_or_default()
    }

    /// Adds a segment whose data is in [`Self::space`]. If it does not continue those before it,
    /// the frame of those is returned.
    pub(super) fn add(&mut self, next: &Transmit, path: &Path, id: &mut u16) -> Option<Frame> {
        if self.continues(next) {
            self.flags = next.header.flags;
            self.len += next.len;
            self.count += 1;
            return None;
        }
        let mut done = None;
        if self.first.is_some() {
            let from = HEADROOM + self.len;
            let mut own = Buffer::of(HEADROOM + next.len);
            let data = self.buffer.bytes().get(from..from + next.len).unwrap_or_default();
            if let Some(to) = own.bytes_mut().get_mut(HEADROOM..HEADROOM + data.len()) {
                to.copy_from_slice(data);
            }
            done = self.finish(path, id);
            self.buffer = own;
        }
        self.first = Some(next.header.clone());
        (self.flags, self.count) = (next.header.flags, 1);
        (self.step, self.len) = (next.len, next.len);
        done
    }

    fn continues(&self, next: &Transmit) -> bool {
        let Some(first) = &self.first else { return false };
        let Transmit { header, len } = next;
        // CAST: a frame is shorter than 2¹⁶ bytes.
        header.seq == first.seq.plus(self.len as u32)
            && (1..=self.step).contains(len)
            && header.flags - Flags::PSH == first.flags
            && (header.ack, header.window) == (first.ack, first.window)
            && header.options == first.options
    }

    /// Returns the frame of all segments, if there are any. The first one gets the identification
    /// after `id`, which is counted up.
    pub(super) fn finish(&mut self, path: &Path, id: &mut u16) -> Option<Frame> {
        let first = self.first.take()?;
        let (count, len) = (std::mem::take(&mut self.count), std::mem::take(&mut self.len));
        let header = Header { flags: self.flags, ..first };
        let nth = id.wrapping_add(1);
        *id = id.wrapping_add(count);
        let build = if count > 1 { build_joined } else { build };
        let range = build(path, nth, &header, self.buffer.bytes_mut(), len).ok()?;
        let headers = u16::try_from(range.len() - len).ok()?;
        let segment = u16::try_from(self.step).ok()?;
        let joint = (count > 1).then_some(Joint { headers, segment });
        // A short frame keeps no long memory while it waits.
        if range.len() < self.buffer.len() / 2 {
            return Some(Frame::copy_joined(self.buffer.bytes().get(range)?, joint));
        }
        Some(Frame::within(std::mem::take(&mut self.buffer), range, joint))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use vrnic_packet::{Headers, MacAddr};
    use vrnic_tcp::SeqNum;
    use vrnic_tcp::wire::frame::Frame as TcpFrame;

    use super::*;

    /// Sends segments of these lengths and flags behind each other. Returns the number of segments
    /// in each frame.
    fn frames(joins: bool, segments: &[(usize, Flags)]) -> Vec<usize> {
        let source: SocketAddr = "10.0.0.1:4000".parse().expect("an address");
        let destination: SocketAddr = "10.0.0.2:5000".parse().expect("an address");
        let (to, from) = (MacAddr([2; 6]), MacAddr([4; 6]));
        let ends =
            Path { to, from, vlan: None, source, destination, traffic_class: 0, hop_limit: 9 };
        let (mut joiner, mut id, mut done) = (Joiner::new(joins), 6, Vec::new());
        let (mut seq, mut sent) = (SeqNum(u32::MAX - 100), Vec::new());
        for (nth, &(len, flags)) in (1u8..).zip(segments) {
            if !joiner.has_room(1000) {
                done.extend(joiner.finish(&ends, &mut id));
            }
            joiner.space(1000)[..len].fill(nth);
            sent.extend(std::iter::repeat_n(nth, len));
            let header = Header { seq, flags, window: 7, ..Header::default() };
            done.extend(joiner.add(&Transmit { header, len }, &ends, &mut id));
            seq = seq.plus(u32::try_from(len).expect("short"));
        }
        done.extend(joiner.finish(&ends, &mut id));
        assert_eq!(usize::from(id), 6 + segments.len(), "an identification for each segment");
        assert_eq!(read(&done, segments), sent);
        done.iter().map(Frame::count).collect()
    }

    /// Cuts frames, compares the segments, and returns their bytes.
    fn read(frames: &[Frame], segments: &[(usize, Flags)]) -> Vec<u8> {
        let (mut expected, mut all) = (segments.iter(), Vec::new());
        let mut seq = SeqNum(u32::MAX - 100);
        for frame in frames {
            let step = frame.joint().map(|joint| usize::from(joint.segment));
            let headers = Headers::of(frame.bytes()).expect("IP");
            let parsed = match step {
                Some(_) => TcpFrame::of_joined(frame.bytes(), &headers),
                None => TcpFrame::of(frame.bytes(), &headers),
            };
            let segment = parsed.expect("right").expect("TCP").segment;
            let whole = [segment.clone()];
            let pieces: Vec<_> = step.map_or(whole.to_vec(), |step| segment.cut(step).collect());
            for piece in pieces {
                let &(len, flags) = expected.next().expect("as many as were sent");
                assert_eq!((piece.payload.len(), piece.header.flags), (len, flags));
                assert_eq!(piece.header.seq, seq);
                seq = seq.plus(u32::try_from(len).expect("short"));
                all.extend_from_slice(piece.payload);
            }
        }
        assert!(expected.next().is_none());
        all
    }

    #[test]
    fn segments_that_follow_each_other_become_one_frame() {
        const ACK: Flags = Flags::ACK;
        let push = Flags::ACK | Flags::PSH;
        let full = (1000, ACK);
        assert_eq!(frames(true, &[full; 5]), [5]);
        assert_eq!(frames(false, &[full; 3]), [1, 1, 1]);
        // The longest IP packet.
        assert_eq!(frames(true, &[full; 70]), [65, 5]);
        // A shorter one is the last, and a longer one is the first.
        assert_eq!(frames(true, &[full, full, (10, ACK), full, (1000, push), full]), [3, 2, 1]);
        assert_eq!(frames(true, &[(500, ACK), full, full]), [1, 2]);
        // Too many short ones would fit.
        assert_eq!(frames(true, &[(255, ACK); 2]), [1, 1]);
        assert_eq!(frames(true, &[(256, ACK); 253]), [252, 1]);
        // Without data, and at the end.
        assert_eq!(frames(true, &[full, (0, ACK), full]), [1, 1, 1]);
        assert_eq!(frames(true, &[full, full, (0, ACK | Flags::FIN)]), [2, 1]);
    }
}
