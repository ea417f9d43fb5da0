//! The interface by which a daemon observes the traffic of its adapters.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use vrnic_abi::Qpn;
use vrnic_packet::MacAddr;
use vrnic_roce::requester::WorkRequest;
use vrnic_roce::responder::Verdict;
use vrnic_roce::wire::opcode::Transport;
use vrnic_roce::wire::syndrome::RnrTimer;
use vrnic_roce::wire::{Mtu, Path};
use vrnic_roce::{Psn, wire};

use crate::ethernet::Frame;
use crate::objects::faults::injection::{Here, Injection};
use crate::objects::faults::trace::Noted;

/// The sender of frames.
#[derive(Clone, Copy, Debug)]
pub struct Sender<'a> {
    /// The name of its adapter.
    pub function: &'a str,
    /// The MAC of its adapter.
    pub mac: MacAddr,
    /// The QP.
    pub qpn: Qpn,
    /// True if a rule for faults of packets may select the function.
    pub has_rules: bool,
    /// The trace of the QP, if its adapter has one.
    pub(crate) trace: Option<(&'a Injection, Here<'a>)>,
}

impl Sender<'_> {
    /// Returns the comment of captures on one of its frames, if it is traced.
    #[must_use]
    pub fn note(&self, bytes: &[u8]) -> Option<String> {
        let (injection, here) = self.trace?;
        injection.note(here, self.qpn, &Noted::Frame { bytes, leaves: true })
    }
}

/// A message that one QP of the daemon has sent to another, by copying or by trying to.
#[derive(Clone, Debug)]
pub struct Exchanged {
    /// A number of the connection, which is unique in the daemon and changes when the QP is reset.
    pub connection: u32,
    /// RC, UC or XRC.
    pub transport: Transport,
    /// Path MTU.
    pub mtu: Mtu,
    /// The QP that sends the request, and the QP that receives it.
    pub ends: [wire::Qpn; 2],
    /// The sequence number of the connection's first message.
    pub first_psn: Psn,
    /// The headers of the packets that would carry the request.
    pub path: Path,
    /// The time for which a responder without a receive asks the requester to wait.
    pub min_rnr_timer: RnrTimer,
    /// The operation.
    pub request: WorkRequest,
    /// The answer of the responder.
    pub verdict: Verdict,
    /// The bytes of the message. They were read again after the copy, so they differ from the
    /// copied ones if a program has changed them in between.
    pub payload: Vec<u8>,
    /// The comment of captures on it, if one of the QPs is traced.
    pub note: Option<String>,
}

/// An observer of traffic. Workers call it in their turns, so its methods must not wait.
pub trait Watcher: fmt::Debug + Send + Sync {
    /// Receives the frames of a QP before they leave, and may remove, add and change frames.
    fn leaving(&self, from: &Sender<'_>, frames: &mut Vec<Frame>);

    /// Receives a frame that the function of this name gets from another function of the daemon,
    /// and the comment of captures on it, if its QP is traced.
    fn arriving(&self, function: &str, frame: &Frame, note: Option<String>);

    /// Returns whether the watcher wants a message of this length in bytes between two functions of
    /// the daemon.
    fn wants(&self, functions: [&str; 2], length: u64) -> bool;

    /// Receives a message for which [`Self::wants`] has returned true.
    fn exchanged(&self, functions: [&str; 2], message: Exchanged);

    /// Receives the frame that would have carried a copied datagram, and the names of the sending
    /// and the receiving function. A datagram for a group has no receiving function.
    fn datagram(&self, from: &str, to: Option<&str>, frame: Frame);
}

/// The watcher of a daemon's adapters, and the traffic that it wants now.
#[derive(Debug, Default)]
pub struct Watch {
    watcher: OnceLock<Arc<dyn Watcher>>,
    wanted: AtomicU8,
}

/// Bits of the wanted traffic: frames that leave functions that rules may select, and all traffic.
const LEAVING: u8 = 1;
const ALL: u8 = 2;

impl Watch {
    /// Sets the watcher. Further calls have no effect.
    pub fn attach(&self, watcher: Arc<dyn Watcher>) {
        let _set_before = self.watcher.set(watcher);
    }

    /// Sets whether the watcher wants frames that leave, of functions that rules may select. A
    /// turn of a worker that has already begun may still use the old value.
    pub fn want_frames(&self, wanted: bool) {
        self.want(LEAVING, wanted);
    }

    /// Sets whether the watcher wants all frames, and the messages that are copied within the
    /// daemon.
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

    /// Returns the watcher if it wants the frames that leave a function. `has_rules` says whether a
    /// rule for faults of packets may select the function.
    #[inline]
    pub(crate) fn of_leaving(&self, has_rules: impl FnOnce() -> bool) -> Option<&dyn Watcher> {
        let wanted = self.wanted.load(Ordering::Relaxed);
        if wanted != 0 && (wanted & ALL != 0 || has_rules()) { self.get() } else { None }
    }

    /// Returns the watcher if it wants all frames and messages.
    #[inline]
    pub(crate) fn of_all(&self) -> Option<&dyn Watcher> {
        if self.wanted.load(Ordering::Relaxed) & ALL == 0 { None } else { self.get() }
    }

    #[cold]
    fn get(&self) -> Option<&dyn Watcher> {
        self.watcher.get().map(|watcher| &**watcher)
    }
}
