//! The two halves of a QP: what the one that sends knows, and the one that receives.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use vrnic_abi::Key;
use vrnic_abi::Qpn;
use vrnic_abi::qp::Access;
use vrnic_abi::rq;
use vrnic_abi::sq::STRIDE_MAX;
use vrnic_iwarp::wire::terminate::Cause;
use vrnic_roce::Psn;

use super::ahead::ReceivesAhead;
use super::ledger::{Ledger, store};
use super::path::{Path, Peer};
use super::remote::Receiver;
use crate::host::Host;
use crate::objects::srq::Srq;
use crate::requests::wqe::{RecvWqe, SendWqe};

/// Halves that have been, whole or after a reset.
static LIVES: AtomicU32 = AtomicU32::new(0);

/// State of the requester.
#[derive(Debug)]
pub struct Requester<H: Host> {
    /// Index of the next entry to start.
    pub ci: u32,
    /// The entry in progress.
    pub current: Option<SendWqe>,
    /// The entries before it whose completion is not written yet.
    pub ledger: Ledger,
    /// The bytes of the entry in progress.
    pub raw: [u8; STRIDE_MAX as usize],
    /// Bytes of it that have been moved.
    pub done: u64,
    /// Transport retries left.
    pub retries: u8,
    /// RNR retries left; 7 means without limit.
    pub rnr_retries: u8,
    /// When the peer's RNR timer ends.
    pub rnr_until: Option<u64>,
    /// Nanoseconds between two looks for a receive of the peer.
    pub rnr_pause: u64,
    /// Not before this time, when waiting to try again.
    pub not_before: Option<u64>,
    /// Attributes it works with.
    pub config: RequesterConfig,
    /// The way to the peer.
    pub path: Path<H>,
    /// The way of its messages, if it has a TCP connection.
    pub pairing: Pairing,
    /// The QP at the other end of the connection, if the two are paired and have met.
    pub partner: Option<Peer<H>>,
    /// True if the guest wants to know when the queue has drained.
    pub notify_drained: bool,
    /// Key operations of the entry in progress.
    pub keys: Option<Keys>,
    /// Progress of the current datagram, if it is for a group.
    pub progress: Option<Progress>,
    /// Its number among all halves that ever were; a reset makes a new one.
    life: u32,
}

impl<H: Host> Requester<H> {
    /// The number of the message that entry `index` asks for. A QP that has been reset counts its
    /// entries anew, and another may get its number: their messages are others.
    #[must_use]
    pub fn message(&self, index: u32) -> u64 {
        u64::from(self.life) << 32 | u64::from(index)
    }

    /// Keeps the work request in progress, whose WQE is `raw`, for the next turn; `done` bytes of
    /// it have been moved.
    pub fn keep(&mut self, send: &SendWqe, raw: &[u8], done: u64) {
        store(&mut self.raw, raw);
        self.done = done;
        self.current = Some(*send);
    }
}

/// Key operations of an entry, on its own side or the peer's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keys {
    /// The key that a SEND_CMD carries.
    pub command: Option<Key>,
    /// The peer's key that the message has ended.
    pub ended: Option<Ended>,
    /// The wait that the end of a key asks for.
    pub wait: KeyWait,
}

/// The wait until a key that has ended is not in use any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyWait {
    /// No key has ended.
    #[default]
    None,
    /// These are to be waited for.
    Due(Readers),
    /// They have been waited for, and the work request goes on behind that.
    Over,
}

/// A key that a message has ended where it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Of a region or window.
    Invalidated(Key),
    /// Of a command.
    Command(Key),
}

/// Position of the next member of a group that a datagram goes to: on the adapter with this MAC,
/// not before this place in the order of joining, or else on an adapter with a higher MAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The MAC.
    pub mac: [u8; 6],
    /// The place.
    pub joined: u64,
}

/// Progress of a datagram to a group.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The member that comes next; none at the end.
    pub next: Option<Place>,
    /// Members that join from here on do not receive it.
    pub end: u64,
    /// True if any member has received it.
    pub delivered: bool,
}

/// Those who hold the memory of an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// The QP's own.
    Own,
    /// The peer's.
    Peer,
}

/// The way of the messages that a QP sends, if it has a TCP connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pairing {
    /// It is decided when the connection has opened.
    #[default]
    Undecided,
    /// They travel in the connection.
    Apart,
    /// The other end is a QP of this daemon: they are copied to its memory, and the connection
    /// carries its own end alone.
    Paired,
    /// The same, but the other end has refused one, and is about to say so in the connection.
    Refused,
}

/// Attributes of the sending half.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequesterConfig {
    /// MAC of the peer's port.
    pub dmac: [u8; 6],
    /// The peer's QP.
    pub dest_qpn: Qpn,
    /// Path MTU, as `enum ib_mtu`.
    pub mtu: u8,
    /// ACK timeout code.
    pub timeout: u8,
    /// Transport retries.
    pub retry_cnt: u8,
    /// RNR retries.
    pub rnr_retry: u8,
    /// READs and atomics outstanding.
    pub max_rd_atomic: u8,
    /// The queue key that datagrams carry when their work request says so.
    pub qkey: u32,
    /// The PSN that the connection's first message has; with the numbers of both QPs it names the
    /// connection.
    pub first_psn: Psn,
}

/// State of the responder.
#[derive(Debug)]
pub struct Responder {
    /// Index of the next receive to use.
    pub ci: u32,
    /// The receive that a message is filling.
    pub current: Option<RecvWqe>,
    /// Of an XRC target: the SRQ that the message in progress is for, or the last was.
    pub xrc: Option<Arc<Srq>>,
    /// The bytes of that receive's entry.
    pub raw: [u8; rq::STRIDE_MAX as usize],
    /// Rights of peers.
    pub access: Rights,
    /// RNR timer code told to peers.
    pub min_rnr_timer: u8,
    /// READs and atomics accepted.
    pub max_dest_rd_atomic: u8,
    /// The queue key that datagrams must carry.
    pub qkey: u32,
    /// The only QP that may send here.
    pub source_qpn: Qpn,
    /// The only station that may send here.
    pub source_mac: [u8; 6],
    /// The only PSN that its first message may have.
    pub first_psn: Psn,
    /// True if the first message has been reported.
    pub established: bool,
    /// True if the receive CQ has an event due: reported after the sender's completion is written,
    /// because raising an interrupt is slow and may wake a thread that waits for both.
    pub event_due: bool,
    /// Its number among all halves that ever were; a reset makes a new one.
    life: u32,
    /// The protocol by which packets of the peer come in, if they do.
    pub packets: Option<Box<Receiver>>,
    /// Receives that were taken ahead of the messages before theirs, if that has happened.
    pub ahead: Option<Box<ReceivesAhead>>,
    /// The reason for which a message of a paired QP was refused, until the connection tells it.
    pub refused: Option<Cause>,
    /// True if the guest has been told that no more receives are taken from the SRQ.
    pub last_told: bool,
    /// In the error state: nanoseconds until the next look for receives to flush.
    pub flush_pause: u64,
}

impl Responder {
    /// Returns whether receives were taken ahead.
    #[inline]
    #[must_use]
    pub fn has_ahead(&self) -> bool {
        self.ahead.as_ref().is_some_and(|ahead| !ahead.is_empty())
    }

    /// The number of a message of which the QP's engine says that it is the `nth`. A QP that has
    /// been reset counts anew, and another may get its number: their messages are others.
    #[must_use]
    pub fn message(&self, nth: u64) -> u64 {
        u64::from(self.life) << 32 | nth & u64::from(u32::MAX)
    }
}

/// Rights of peers.
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
            current: None,
            xrc: None,
            raw: [0; rq::STRIDE_MAX as usize],
            access: Rights::default(),
            min_rnr_timer: 0,
            max_dest_rd_atomic: 0,
            qkey: 0,
            source_qpn: Qpn::default(),
            source_mac: [0; 6],
            first_psn: Psn::default(),
            established: false,
            event_due: false,
            packets: None,
            ahead: None,
            refused: None,
            life: LIVES.fetch_add(1, Ordering::Relaxed),
            last_told: false,
            flush_pause: 0,
        }
    }
}

impl<H: Host> Default for Requester<H> {
    fn default() -> Self {
        Self {
            ci: 0,
            current: None,
            ledger: Ledger::default(),
            raw: [0; STRIDE_MAX as usize],
            done: 0,
            retries: 0,
            rnr_retries: 0,
            rnr_until: None,
            rnr_pause: 0,
            not_before: None,
            config: RequesterConfig::default(),
            path: Path::Unknown,
            pairing: Pairing::Undecided,
            partner: None,
            notify_drained: false,
            keys: None,
            progress: None,
            life: LIVES.fetch_add(1, Ordering::Relaxed),
        }
    }
}
