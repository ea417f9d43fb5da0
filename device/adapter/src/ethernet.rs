//! Ethernet frames between an adapter and the network outside of its daemon.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use vrnic_abi::Qpn;
use vrnic_abi::sq::MAX_FRAME;
pub use vrnic_packet::frame::{Frame, Joint, SEGMENT_MIN};
use vrnic_packet::{Ethernet, Headers, MacAddr, ServiceFields, VlanMac};

/// Maximum number of frames that wait for a worker. Further frames are lost.
const INBOX: usize = 4096;
/// Number of these that are reserved for senders that do not ask for room.
const RESERVE: usize = INBOX / 2;

/// Number of frames above which copies for sniffers are lost, so that there is always room for the
/// frames of senders that ask.
const MAX_COPIES: usize = (INBOX - RESERVE) / 2;

/// A frame takes the room of another one for each so many bytes of its memory, so that the memory
/// of an inbox is bounded by that of as many jumbo frames.
const FRAME_MEMORY: usize = MAX_FRAME as usize;

/// Returns the number of frames whose room a frame takes. A joined frame takes the room of all its
/// segments.
fn room_of(frame: &Frame) -> usize {
    frame.count().max(frame.footprint().div_ceil(FRAME_MEMORY))
}

/// The result of offering a frame to an adapter.
#[derive(Debug, PartialEq, Eq)]
pub enum Offered {
    /// The frame was for the adapter, which has queued it, or has discarded it because no object of
    /// the adapter can receive it.
    Taken,
    /// The frame was only for QPs of raw packets, even if its destination is a group.
    Trapped,
    /// The frame was for the adapter, and was lost because its workers do not keep up.
    Full,
    /// The frame is not for the adapter.
    Other(Frame),
}

impl Offered {
    /// Returns the frame if it is not for the adapter.
    #[must_use]
    pub fn other(self) -> Option<Frame> {
        match self {
            Self::Taken | Self::Trapped | Self::Full => None,
            Self::Other(frame) => Some(frame),
        }
    }
}

/// The network outside of the daemon, for its adapters. Workers call it in their turns, so it never
/// waits: a frame for which there is no room is lost, as on any Ethernet.
pub trait Uplink: fmt::Debug + Send + Sync {
    /// Takes frames that the adapter with the MAC `source` sends, in order.
    fn send(&self, source: MacAddr, frames: &mut Vec<Frame>);

    /// Returns approximately how many frames of this class of service the adapter with the MAC
    /// `source` can send before some are dropped.
    fn room(&self, source: MacAddr, service: ServiceFields) -> usize;

    /// Returns whether the adapter with the MAC `source` is asked to send no frames of this class
    /// of service at present.
    fn pauses(&self, _source: MacAddr, _service: ServiceFields) -> bool {
        false
    }

    /// Returns whether a MAC in a VLAN belongs to another station than the adapter with the MAC
    /// `own`, or may not be used by that adapter.
    fn is_foreign(&self, _own: MacAddr, _at: VlanMac) -> bool {
        false
    }

    /// Returns whether joined frames are welcome. If not, each is cut before it is sent, which
    /// costs more than frames that were never joined.
    fn joins(&self) -> bool {
        false
    }
}

/// Where frames go, and what their class of service follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heading {
    /// The station that receives them.
    pub to: VlanMac,
    /// The fields that their class follows.
    pub service: ServiceFields,
}

impl Heading {
    /// Returns the heading of frames with these headers.
    #[must_use]
    pub fn of(ethernet: &Ethernet, traffic_class: u8) -> Self {
        let service = ServiceFields { traffic_class: Some(traffic_class), tag: ethernet.vlan };
        Self { to: ethernet.receiver(), service }
    }
}

/// A frame for a QP.
#[derive(Debug)]
pub(crate) struct Classified {
    pub(crate) frame: Frame,
    /// The kind of its contents.
    pub(crate) class: Class,
}

/// The kind of a frame for a QP, with its headers down to IP if they were looked at. A QP that is
/// named here may have been destroyed, and its number may have been given to another QP, before the
/// frame is handled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Class {
    /// A RoCE packet, which names its QP.
    Roce(Headers),
    /// A segment of the TCP connection of this QP.
    Segment(Qpn, Headers),
    /// A notice that a segment of this QP was too long for its path.
    TooLong(Qpn, Headers),
    /// A frame that a flow rule of this QP takes.
    Raw(Qpn),
}

/// A frame whose headers down to IP are known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parsed<'f> {
    pub(crate) frame: &'f Frame,
    pub(crate) headers: Headers,
}

/// Frames that wait for a worker.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    frames: Mutex<VecDeque<Classified>>,
    /// The room that the frames take.
    len: AtomicUsize,
}

impl Inbox {
    /// Appends a frame. Returns whether there was room.
    pub(crate) fn put(&self, classified: Classified) -> bool {
        self.put_below(INBOX, classified)
    }

    /// Appends a copy for a sniffer. Returns whether there was room.
    pub(crate) fn put_copy(&self, classified: Classified) -> bool {
        self.put_below(MAX_COPIES, classified)
    }

    fn put_below(&self, limit: usize, classified: Classified) -> bool {
        let mut frames = self.frames.lock();
        let len = self.len.load(Ordering::Relaxed);
        let room = len < limit;
        if room {
            self.len.store(len + room_of(&classified.frame), Ordering::Release);
            frames.push_back(classified);
        }
        room
    }

    /// Returns whether a frame waits.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.len.load(Ordering::Acquire) > 0
    }

    /// Returns the number of frames for which a sender that asks has room.
    pub(crate) fn room(&self) -> usize {
        (INBOX - RESERVE).saturating_sub(self.len.load(Ordering::Acquire))
    }

    /// Moves at most `limit` frames to the end of `to`.
    pub(crate) fn take(&self, to: &mut VecDeque<Classified>, limit: usize) {
        let mut frames = self.frames.lock();
        let count = limit.min(frames.len());
        let taken: usize = frames.iter().take(count).map(|one| room_of(&one.frame)).sum();
        to.extend(frames.drain(..count));
        // Only with the lock is it written.
        self.len.store(self.len.load(Ordering::Relaxed).saturating_sub(taken), Ordering::Release);
    }

    /// Removes all frames.
    pub(crate) fn clear(&self) {
        let mut frames = self.frames.lock();
        frames.clear();
        self.len.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_the_inbox_are_small() {
        assert_eq!(size_of::<Classified>(), 56);
    }

    #[test]
    fn a_joined_frame_takes_the_room_of_those_that_it_stands_for() {
        // The type of the frame and the version of IP are all that its headers need.
        let mut bytes = vec![0; 54 + 350];
        (bytes[12], bytes[14]) = (8, 0x45);
        let class = Class::Roce(Headers::of(&bytes).expect("IP"));
        let classified = |frame| Classified { frame, class };
        let joined = Frame::joined(bytes.clone(), Joint { headers: 54, segment: 100 });
        let inbox = Inbox::default();
        assert!(inbox.put(classified(joined)) && inbox.put(classified(Frame::new(bytes))));
        assert_eq!(inbox.room(), INBOX - RESERVE - 5);
        let mut taken = VecDeque::new();
        inbox.take(&mut taken, 1);
        assert_eq!((taken.len(), inbox.room()), (1, INBOX - RESERVE - 1));
        inbox.take(&mut taken, 9);
        assert!(!inbox.any() && taken.len() == 2);
        assert!(inbox.put(classified(Frame::new(vec![0; 65_553]))));
        assert_eq!(inbox.room(), INBOX - RESERVE - 8, "a long frame takes the room of several");
        let part = Frame::within(vec![0; 65_553].into(), 0..60, None);
        assert!(inbox.put(classified(part)));
        assert_eq!(inbox.room(), INBOX - RESERVE - 16, "so does a short one in long memory");
    }
}
