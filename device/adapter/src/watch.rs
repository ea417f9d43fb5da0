//! What a daemon sees of its adapters' traffic, while it asks for it.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use vrnic_abi::Qpn;
use vrnic_roce::requester::WorkRequest;
use vrnic_roce::responder::Verdict;
use vrnic_roce::wire::opcode::Transport;
use vrnic_roce::wire::syndrome::RnrTimer;
use vrnic_roce::wire::{Mtu, Path};
use vrnic_roce::{Psn, wire};

use crate::ethernet::Frame;

/// The sender of frames.
#[derive(Clone, Copy, Debug)]
pub struct Sender<'a> {
    /// The name of its adapter.
    pub function: &'a str,
    /// The MAC of its adapter.
    pub mac: [u8; 6],
    /// The QP.
    pub qpn: Qpn,
}

/// A message that one QP of the daemon has sent to another, by copying or by trying to.
#[derive(Clone, Debug)]
pub struct Exchanged {
    /// Tells apart all connections of the daemon, from their reset on.
    pub connection: u32,
    /// RC, UC or XRC.
    pub transport: Transport,
    /// Path MTU.
    pub mtu: Mtu,
    /// The QPs that send the request and that it is for.
    pub ends: [wire::Qpn; 2],
    /// The sequence number of the connection's first message.
    pub first_psn: Psn,
    /// The headers of packets that the request would be.
    pub path: Path,
    /// The wait that a responder without a receive demands.
    pub min_rnr_timer: RnrTimer,
    /// The operation.
    pub request: WorkRequest,
    /// The answer of the responder.
    pub verdict: Verdict,
    /// The bytes of the message. They have been read again, so they are not those that were copied
    /// if a program has changed them meanwhile.
    pub payload: Vec<u8>,
}

/// Hears of traffic. Workers call it in their turns, so it never waits.
pub trait Watcher: fmt::Debug + Send + Sync {
    /// Is given the frames of a QP before they leave. It may take some away, add some, and change
    /// them.
    fn leaving(&self, from: &Sender<'_>, frames: &mut Vec<Frame>);

    /// Is shown a frame that the function of this name receives from another one of the daemon.
    fn arriving(&self, function: &str, frame: &Frame);

    /// Returns whether it wants a message of this many bytes between two functions of the daemon.
    fn wants(&self, functions: [&str; 2], length: u64) -> bool;

    /// Is given a message that it has said it wants.
    fn exchanged(&self, functions: [&str; 2], message: Exchanged);

    /// Is given the frame that a datagram would be which was copied, and the function that it is
    /// for. It has none if the datagram is for a group.
    fn datagram(&self, functions: (&str, Option<&str>), frame: Frame);
}

/// The watcher of a daemon's adapters, and what it wants to hear of now.
#[derive(Debug, Default)]
pub struct Watch {
    watcher: OnceLock<Arc<dyn Watcher>>,
    wanted: AtomicU8,
}

/// Bits of what is wanted: frames that leave, and all that there is.
const LEAVING: u8 = 1;
const ALL: u8 = 2;

impl Watch {
    /// Sets the watcher, once.
    pub fn attach(&self, watcher: Arc<dyn Watcher>) {
        let _set_before = self.watcher.set(watcher);
    }

    /// From now on the watcher hears of frames, or does not. A turn that is under way may not heed
    /// this yet.
    pub fn want_frames(&self, wanted: bool) {
        self.want(LEAVING, wanted);
    }

    /// The same for frames and for messages that are exchanged within the daemon.
    pub fn want_all(&self, wanted: bool) {
        self.want(ALL, wanted);
    }

    fn want(&self, bit: u8, wanted: bool) {
        if wanted {
            self.wanted.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.wanted.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Returns the watcher if it wants to hear of frames.
    #[inline]
    pub(crate) fn of_frames(&self) -> Option<&dyn Watcher> {
        if self.wanted.load(Ordering::Relaxed) == 0 { None } else { self.get() }
    }

    /// Returns the watcher if it wants to hear of messages.
    #[inline]
    pub(crate) fn of_messages(&self) -> Option<&dyn Watcher> {
        if self.wanted.load(Ordering::Relaxed) & ALL == 0 { None } else { self.get() }
    }

    #[cold]
    fn get(&self) -> Option<&dyn Watcher> {
        self.watcher.get().map(|watcher| &**watcher)
    }
}
