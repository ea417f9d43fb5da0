//! The two halves of a QP: the state of the requester and of the responder.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use vrnic_abi::Key;
use vrnic_abi::Qpn;
use vrnic_abi::qp::Access;
use vrnic_abi::rq;
use vrnic_packet::{MacAddr, Nanos};
use vrnic_roce::Psn;

use super::ahead::ReceivesAhead;
use super::open_reads::OpenReads;
use super::path::Path;
use super::peer::Peer;
use super::posted_reads::PostedReads;
use super::remote::Receiver;
use super::route::Route;
use super::tcp::rdma::RdmaReceiver;
use crate::ethernet::Heading;
use crate::host::Host;
use crate::objects::pace::{RateLimit, Reserved};
use crate::objects::srq::Srq;
use crate::requests::wqe::{RecvWqe, SendWqe};

/// Counter of all halves. A reset of a QP counts as new halves.
static LIVES: AtomicU32 = AtomicU32::new(0);

/// Time before an access to absent pages is tried again: at first, and at most.
const MIN_PAGES_PAUSE: Duration = Duration::from_micros(20);
const MAX_PAGES_PAUSE: Duration = Duration::from_millis(1);

/// The state of the requester.
#[derive(Debug)]
pub struct Requester<H: Host> {
    /// Index of the next entry to start.
    pub ci: u32,
    /// The entry in progress.
    pub current: Option<SendWqe>,
    /// The READs before the current entry that are not complete, and the entries after them that
    /// are.
    pub open_reads: OpenReads,
    /// The bytes of the current entry. Has no memory before the first entry that takes more than a
    /// turn.
    pub raw: Vec<u8>,
    /// Number of bytes of its message that have been moved.
    pub done: u64,
    /// Remaining transport retries.
    pub retries: u8,
    /// Remaining RNR retries; 7 means no limit.
    pub rnr_retries: u8,
    /// The time at which the peer's RNR timer expires.
    pub rnr_until: Option<Nanos>,
    /// Time between two checks for a receive of the peer, or for absent pages.
    pub rnr_pause: Duration,
    /// The time of the next try, while waiting for it.
    pub not_before: Option<Nanos>,
    /// The QP's own rate limit.
    pub rate_limit: RateLimit,
    /// The reservation of the next entry, if it waits for this limit or for a ceiling of the
    /// function.
    pub reserved: Option<Reserved>,
    /// The attributes that it uses.
    pub config: RequesterConfig,
    /// The path to the peer.
    pub path: Path<H>,
    /// The QP to whose memory messages are copied, if it has been looked up. A turn takes it out.
    pub peer: Option<Peer<H>>,
    /// True if the guest wants an event when the queue has drained.
    pub notify_drained: bool,
    /// Key operations of the entry in progress.
    pub keys: Option<Keys>,
    /// The progress of the current datagram, if it is to a group.
    pub progress: Option<Progress>,
    /// The READs that were posted together.
    pub posted_reads: PostedReads,
    /// The heading of the raw packet in progress, if there was no room for it.
    pub no_room_to: Option<Heading>,
    /// The half's number among all halves. A reset assigns a new one.
    life: u32,
}

impl<H: Host> Requester<H> {
    /// Sets its rate limit in kbit/s; 0 is no limit. If that changes it, the next entry makes
    /// another reservation.
    pub fn limit(&mut self, kilobits: u32) {
        if self.rate_limit.set(kilobits)
            && let Some(reserved) = &mut self.reserved
        {
            reserved.renew();
        }
    }

    /// Returns a number that identifies the message of entry `index`. It differs from the numbers
    /// of messages of other QPs that have had the same QP number, and of messages before a reset.
    #[must_use]
    pub fn message(&self, index: u32) -> u64 {
        u64::from(self.life) << 32 | u64::from(index)
    }

    /// Returns its number for [`crate::host::HeldMemory::attend`]. A reset assigns a new one.
    #[inline]
    #[must_use]
    pub fn asker(&self) -> u64 {
        u64::from(self.life) + 1
    }

    /// Returns whether work requests have begun and have not ended.
    pub fn has_begun(&mut self) -> bool {
        self.current.is_some()
            || !self.open_reads.is_empty()
            || self.path.outstanding().is_some_and(|outstanding| !outstanding.is_empty())
    }

    /// Prepares for an entry that has just been taken.
    #[inline]
    pub fn begin(&mut self) {
        self.retries = self.config.retry_cnt;
        self.rnr_retries = self.config.rnr_retry;
        self.rnr_until = None;
        self.rnr_pause = Duration::ZERO;
        self.keys = None;
        self.progress = None;
    }

    /// Returns the time at which an access to absent pages is tried again. The pause doubles until
    /// there is progress.
    #[cold]
    pub fn pages_until(&mut self, now: Nanos) -> Nanos {
        let pause = self.rnr_pause * 2;
        self.rnr_pause = pause.clamp(MIN_PAGES_PAUSE, MAX_PAGES_PAUSE);
        now.plus(self.rnr_pause)
    }

    /// Stores the work request in progress, whose WQE is `raw`, for the next turn. `done` bytes of
    /// its message have been moved.
    pub fn keep(&mut self, send: &SendWqe, raw: &[u8], done: u64) {
        self.raw.clear();
        self.raw.extend_from_slice(raw);
        self.done = done;
        self.current = Some(*send);
    }
}

/// Key operations of an entry, at the requester or the peer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keys {
    /// The key that a SEND_CMD carries.
    pub command: Option<Key>,
    /// The peer's key that the message has invalidated.
    pub ended: Option<Ended>,
    /// The wait that is necessary because a key was invalidated.
    pub wait: KeyWait,
}

/// The wait until an invalidated key is no longer used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyWait {
    /// No key was invalidated.
    #[default]
    None,
    /// The users of this memory must be waited for.
    Due(Readers),
    /// The wait is over, and the work request continues behind it.
    Over,
}

/// A key that a message has invalidated at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The key of a region or window.
    Invalidated(Key),
    /// The key of a command.
    Command(Key),
}

/// The position of the next member of a group to which a datagram is delivered: on the adapter with
/// this MAC, not before this position in the order of joining; or else on an adapter with a higher
/// MAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The MAC of the adapter.
    pub mac: MacAddr,
    /// The position in the order of joining.
    pub joined: u64,
}

/// The progress of a datagram to a group.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The next member; none at the end.
    pub next: Option<Place>,
    /// Members whose position is not below this one have joined later and do not receive the
    /// datagram.
    pub end: u64,
    /// True if any member has received it.
    pub delivered: bool,
}

/// The threads that hold the memory of an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// The threads that hold the memory of the QP's adapter.
    Own,
    /// The threads that hold the memory of the peer's adapter.
    Peer,
}

/// Attributes of the sending half.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequesterConfig {
    /// The peer's QP.
    pub dest_qpn: Qpn,
    /// The route to the peer, if the addresses are usable.
    pub route: Option<Route>,
    /// Path MTU, as `enum ib_mtu`.
    pub mtu: u8,
    /// ACK timeout code.
    pub timeout: u8,
    /// Number of transport retries.
    pub retry_cnt: u8,
    /// Number of RNR retries.
    pub rnr_retry: u8,
    /// Maximum number of outstanding READs and atomics.
    pub max_rd_atomic: u8,
    /// The queue key of datagrams whose work request selects it.
    pub qkey: u32,
    /// The PSN of the connection's first message. Together with the numbers of both QPs it
    /// identifies the connection.
    pub first_psn: Psn,
}

/// The state of the responder.
#[derive(Debug)]
pub struct Responder {
    /// Index of the next receive to use.
    pub ci: u32,
    /// Index after the last receive that is known to be posted.
    pub seen: u32,
    /// The receive that a message is filling.
    pub current: Option<RecvWqe>,
    /// The number of the message that fills `current`.
    pub current_for: u64,
    /// The SRQ of the message in progress, or of the last one, if the QP is an XRC target.
    pub xrc: Option<Arc<Srq>>,
    /// The bytes of the entry of the current receive.
    pub raw: [u8; rq::STRIDE_MAX as usize],
    /// The access rights of the peer.
    pub access: Rights,
    /// The RNR timer code for the peer.
    pub min_rnr_timer: u8,
    /// Maximum number of READs and atomics of the peer.
    pub max_dest_rd_atomic: u8,
    /// The queue key that received datagrams must have.
    pub qkey: u32,
    /// The only QP from which messages are accepted.
    pub source_qpn: Qpn,
    /// The only route from which messages are accepted, if the addresses are usable.
    pub route: Option<Route>,
    /// The only PSN that is accepted in the first message.
    pub first_psn: Psn,
    /// Path MTU, as `enum ib_mtu`.
    pub mtu: u8,
    /// True if the first message has been reported.
    pub established: bool,
    /// True if the receive CQ has an event due. It is reported after the sender's completion has
    /// been written, because raising an interrupt is slow and may wake a thread that waits for
    /// both.
    pub event_due: bool,
    /// The half's number among all halves. A reset assigns a new one.
    life: u32,
    /// The protocol engine, if the peer's messages arrive as packets.
    pub packets: Option<Box<Receiver>>,
    /// The receives that were taken early, if there were any.
    pub ahead: Option<Box<ReceivesAhead>>,
    /// The state of the QP's connection in this half, if it has one.
    pub rdma: RdmaReceiver,
    /// True if the guest has been notified that the QP takes no more receives from its SRQ.
    pub last_wqe_reported: bool,
    /// Milliseconds until the next check for receives to flush, in the error state.
    pub flush_pause: u8,
}

impl Responder {
    /// Returns whether there are receives that were taken early.
    #[inline]
    #[must_use]
    pub fn has_ahead(&self) -> bool {
        self.ahead.as_ref().is_some_and(|ahead| !ahead.is_empty())
    }

    /// Returns its number for [`crate::host::HeldMemory::attend`]. A reset assigns a new one.
    #[inline]
    #[must_use]
    pub fn asker(&self) -> u64 {
        u64::from(self.life) + 1
    }

    /// Returns a number that identifies the `nth` message of the QP's engine. It differs from the
    /// numbers of messages of other QPs that have had the same QP number, and of messages before a
    /// reset.
    #[must_use]
    pub fn message(&self, nth: u64) -> u64 {
        u64::from(self.life) << 32 | nth & u64::from(u32::MAX)
    }
}

/// The access rights of the peer.
#[derive(Clone, Copy, Debug)]
pub struct Rights(pub Access);

impl Default for Rights {
    fn default() -> Self {
        Self(Access::empty())
    }
}

impl Default for Responder {
    fn default() -> Self {
        Self {
            ci: 0,
            seen: 0,
            current: None,
            current_for: 0,
            xrc: None,
            raw: [0; rq::STRIDE_MAX as usize],
            access: Rights::default(),
            min_rnr_timer: 0,
            max_dest_rd_atomic: 0,
            qkey: 0,
            source_qpn: Qpn::default(),
            route: None,
            first_psn: Psn::default(),
            mtu: 0,
            established: false,
            event_due: false,
            packets: None,
            ahead: None,
            rdma: RdmaReceiver::default(),
            life: LIVES.fetch_add(1, Ordering::Relaxed),
            last_wqe_reported: false,
            flush_pause: 0,
        }
    }
}

impl<H: Host> Default for Requester<H> {
    fn default() -> Self {
        Self {
            ci: 0,
            current: None,
            open_reads: OpenReads::default(),
            raw: Vec::new(),
            done: 0,
            retries: 0,
            rnr_retries: 0,
            rnr_until: None,
            rnr_pause: Duration::ZERO,
            not_before: None,
            rate_limit: RateLimit::default(),
            reserved: None,
            config: RequesterConfig::default(),
            path: Path::Memory,
            peer: None,
            notify_drained: false,
            keys: None,
            progress: None,
            posted_reads: PostedReads::default(),
            no_room_to: None,
            life: LIVES.fetch_add(1, Ordering::Relaxed),
        }
    }
}
