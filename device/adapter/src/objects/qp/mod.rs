//! Queue pairs: their parts, locks and states.
//!
//! A QP has two halves with a lock each. A requester in its turn holds its own [`Requester`] and,
//! while it accesses the peer, the peer's [`Responder`]. No thread locks a requester while it holds
//! a responder, so there is no cycle. Work that needs the other half of a QP (an error that flushes
//! both queues) is done in the QP's own turn in [`crate::adapter::Adapter::poll`].
//!
//! | module | what it holds |
//! | --- | --- |
//! | `halves` | the state of the requester and of the responder |
//! | [`transitions`] | the legal transitions between states, and their attributes |
//! | `path` | the path to the peer, with the state of its transport |
//! | `route` | the addresses of the packets of a connection |
//! | `peer` | references to QPs of this daemon |
//! | [`open_reads`] | READs that take more than a turn, and the work requests after them |
//! | [`outstanding`] | work requests that were taken off a send queue and are not completed |
//! | [`posted_reads`] | READs that were posted together |
//! | `send_ring` | the memory of a send queue |
//! | [`remote`] | the halves of a QP whose peer is reached by packets |
//! | `waiting_frame`, `window` | frames that wait for earlier ones; bytes that become visible in another order |
//! | `deferred_read`, `reading` | answers that wait until their bytes are written; bytes of READs that become visible in another order |
//! | [`tcp`] | the state of a QP with a TCP connection |
//! | [`takeover`] | the bytes of a message in progress that the host has taken over |
//! | `ahead` | receives that were taken before their messages are next in order |

mod ahead;
pub(crate) mod deferred_read;
mod halves;
pub mod open_reads;
pub mod outstanding;
mod path;
mod peer;
pub mod posted_reads;
pub(crate) mod reading;
pub mod remote;
mod route;
mod send_ring;
pub mod takeover;
pub mod tcp;
pub mod transitions;
pub(crate) mod waiting_frame;
pub(crate) mod window;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use vrnic_abi::admin::{QpFlags, QpOptions};
use vrnic_abi::doorbell::Doorbell;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::{Attr, Service, State, Type};
use vrnic_abi::{ContextId, Pdn, Qpn, Xrcdn};
use vrnic_abi::{Key, Srqn};

pub use self::halves::{
    Ended, KeyWait, Keys, Place, Progress, Readers, Requester, RequesterConfig, Responder, Rights,
};
pub use self::path::Path;
pub(crate) use self::path::break_promise;
pub use self::peer::{Peer, WeakPeer};
pub use self::route::Route;
pub use self::send_ring::SendRing;
use crate::domain::{Domain, User};
use crate::host::Host;
use crate::memory::pages::Ring;
use crate::memory::tpt::Tpt;
use crate::objects::core::Core;
use crate::objects::cq::Cq;
use crate::objects::direct::mark_wait::MarkWait;
use crate::objects::doorbell::worker_of;
use crate::objects::id_table::IdTable;
use crate::objects::network::frame_key::Target;
use crate::objects::srq::Srq;
use crate::requests::command_tag::Tags;

/// A queue pair.
#[derive(Debug)]
pub struct Qp<H: Host> {
    /// The number of the QP.
    pub qpn: Qpn,
    /// The type of the QP.
    pub kind: Type,
    /// The PD of the QP; zero for an XRC target.
    pub pdn: Pdn,
    /// The XRC domain of an XRC target; otherwise zero.
    pub xrcdn: Xrcdn,
    /// The SRQs of its adapter, among which messages to an XRC target choose.
    pub srqs: Arc<IdTable<Srqn, Srq>>,
    /// The function to which it belongs.
    pub domain: Domain,
    /// The context that the QP belongs to.
    pub context: ContextId,
    /// The regions of its adapter.
    pub tpt: Arc<Tpt>,
    /// The worker of its adapter that executes it.
    worker: u16,
    /// The address of its doorbell.
    pub doorbell: Doorbell,
    /// CQ of the send queue.
    pub send_cq: Arc<Cq>,
    /// CQ of the receive queue.
    pub recv_cq: Arc<Cq>,
    /// True if one of its CQs may hold entries back.
    pub holding: bool,
    /// The flags it was created with.
    pub flags: QpFlags,
    /// The options it was created with.
    pub options: QpOptions,
    /// True if a set of counters counts its work ([`Core::counted`]). Each turn reads this.
    pub is_counted: AtomicBool,
    /// Position of command keys in its messages.
    pub tags: Tags,
    /// Keys of its commands that wait for a response.
    pub commands: Mutex<BTreeSet<Key>>,
    /// The send queue.
    pub sq: SendRing,
    /// The receive queue.
    pub rq: Option<Ring>,
    /// The shared receive queue, if it uses one instead.
    pub srq: Option<Arc<Srq>>,
    state: AtomicU8,
    /// Set when the QP is destroyed or reset. No more work is done on it.
    pub dead: AtomicBool,
    /// True if a refused request of its own has moved it to the error state.
    gave_up: AtomicBool,
    /// True if a worker may poll its doorbell as a recent one.
    pub recent: AtomicBool,
    /// True if it is in the run queue of its adapter.
    pub queued: AtomicBool,
    /// The time at which its timer expires, on the host's clock; zero without a timer. Only changed
    /// under the lock of the adapter's schedule.
    pub timer: AtomicU64,
    /// Index of the next send entry, for reads without a lock.
    pub next_send: AtomicU32,
    /// True while a TRANSFER or AWAIT, or a message for whose completion the peer has no room,
    /// waits for what then schedules the QP.
    pub held: AtomicBool,
    /// The QP at the other end whose message waits until this QP's CQ has room.
    sender: Mutex<Option<Box<WeakPeer<H>>>>,
    /// The AWAIT of the QP that waits for a mark.
    pub mark_wait: MarkWait,
    /// All attributes, as QUERY_QP returns them.
    pub attr: Mutex<Attr>,
    /// The sending half.
    pub requester: Mutex<Requester<H>>,
    /// The receiving half.
    pub responder: Mutex<Responder>,
}

/// Parameters of a QP.
#[derive(Debug)]
pub struct Parts {
    /// The type of the QP.
    pub kind: Type,
    /// The PD.
    pub pdn: Pdn,
    /// The function.
    pub domain: Domain,
    /// The context that the QP belongs to.
    pub context: ContextId,
    /// The regions of its adapter.
    pub tpt: Arc<Tpt>,
    /// The address of its doorbell.
    pub doorbell: Doorbell,
    /// The CQ of the send queue.
    pub send_cq: Arc<Cq>,
    /// The CQ of the receive queue.
    pub recv_cq: Arc<Cq>,
    /// The flags it was created with.
    pub flags: QpFlags,
    /// The options it was created with.
    pub options: QpOptions,
    /// Position of command keys in its messages.
    pub tags: Tags,
    /// The send queue.
    pub sq: SendRing,
    /// The receive queue.
    pub rq: Option<Ring>,
    /// The shared receive queue.
    pub srq: Option<Arc<Srq>>,
    /// The XRC domain of an XRC target.
    pub xrcdn: Xrcdn,
    /// The SRQs of its adapter.
    pub srqs: Arc<IdTable<Srqn, Srq>>,
}

impl<H: Host> Qp<H> {
    /// Creates a QP in the reset state, of an adapter with this many workers.
    #[must_use]
    pub fn new(qpn: Qpn, workers: usize, parts: Parts) -> Self {
        Self {
            qpn,
            kind: parts.kind,
            xrcdn: parts.xrcdn,
            srqs: parts.srqs,
            pdn: parts.pdn,
            domain: parts.domain,
            context: parts.context,
            tpt: parts.tpt,
            // There are fewer workers than that.
            worker: u16::try_from(worker_of(parts.doorbell.slot(), workers)).unwrap_or(0),
            doorbell: parts.doorbell,
            // The messages of a target name an SRQ, whose CQ gets the entries.
            holding: parts.kind == Type::XrcTgt
                || parts.send_cq.is_holding()
                || parts.recv_cq.is_holding(),
            send_cq: parts.send_cq,
            recv_cq: parts.recv_cq,
            flags: parts.flags,
            options: parts.options,
            is_counted: AtomicBool::new(false),
            tags: parts.tags,
            commands: Mutex::default(),
            sq: parts.sq,
            rq: parts.rq,
            srq: parts.srq,
            state: AtomicU8::new(State::Reset as u8),
            dead: AtomicBool::new(false),
            gave_up: AtomicBool::new(false),
            recent: AtomicBool::new(false),
            queued: AtomicBool::new(false),
            timer: AtomicU64::new(0),
            next_send: AtomicU32::new(0),
            held: AtomicBool::new(false),
            sender: Mutex::default(),
            mark_wait: MarkWait::default(),
            attr: Mutex::default(),
            requester: Mutex::default(),
            responder: Mutex::default(),
        }
    }

    /// Returns whether it was created with a flag.
    #[inline]
    #[must_use]
    pub const fn has(&self, flag: QpFlags) -> bool {
        self.flags.contains(flag)
    }

    /// Returns the worker of its adapter that executes it.
    #[inline]
    #[must_use]
    pub fn worker(&self) -> usize {
        self.worker.into()
    }

    /// Returns the state.
    #[inline]
    #[must_use]
    pub fn state(&self) -> State {
        State::from_raw(self.state.load(Ordering::Acquire)).unwrap_or(State::Err)
    }

    /// Sets the state.
    pub fn set_state(&self, state: State) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// Changes the state. Returns false if the present state is not `from`.
    #[must_use]
    pub fn change_state(&self, from: State, to: State) -> bool {
        let (from, to) = (from as u8, to as u8);
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Returns whether the send queue has an entry that has not been started.
    #[inline]
    #[must_use]
    pub fn has_posted(&self, host: &H) -> bool {
        let next = self.next_send.load(Ordering::Relaxed);
        match &self.sq {
            SendRing::Guest(_) => host.bar_load32(self.doorbell.sq_pi()) != next,
            SendRing::Device(ring) => host.bar_load32(ring.stamp(next)) == vrnic_abi::stamp(next),
            SendRing::None => false,
        }
    }

    /// Returns the index of the first entry of the send queue that is not posted, or of a later one
    /// than `limit` entries after `index`, the index of a posted entry.
    #[must_use]
    pub fn posted_end(&self, host: &H, index: u32, limit: u32) -> u32 {
        let end = |posted| index.wrapping_add(posted);
        match &self.sq {
            SendRing::Guest(_) => {
                end(host.bar_load32(self.doorbell.sq_pi()).wrapping_sub(index).min(limit))
            }
            SendRing::Device(ring) => {
                let posted = |at: &u32| host.bar_load32(ring.stamp(*at)) == vrnic_abi::stamp(*at);
                end((0..limit).take_while(|nth| posted(&end(*nth))).fold(0, |count, _| count + 1))
            }
            SendRing::None => index,
        }
    }

    /// Returns whether its AWAIT waits for a mark that is there.
    #[inline]
    #[must_use]
    pub fn is_marked(&self, host: &H) -> bool {
        self.mark_wait.is_met(|word| host.bar_load32(self.doorbell.mark(word)))
            && matches!(self.state(), State::Rts | State::Sqd)
    }

    /// Moves it to the error state. Returns true if it was in a state that can fail.
    pub fn fail(&self) -> bool {
        let fails = |state| {
            let fails = !matches!(State::from_raw(state), None | Some(State::Reset | State::Err));
            fails.then_some(State::Err as u8)
        };
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, fails).is_ok()
    }

    /// Handles an error of the QP itself: error state, event, flush.
    pub fn failed(&self, core: &Core<H>, kind: Kind) {
        if self.fail() {
            core.report(kind, self.qpn);
        }
        self.schedule(core);
    }

    /// Schedules it for a turn. Can be called from any thread.
    pub fn schedule(&self, core: &Core<H>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            core.post(self.worker(), self.qpn);
        }
    }

    /// Handles a failed send: a QP of a reliable connection moves to the error state, and for all
    /// others only the send queue fails (IBTA volume 1, 10.3.1).
    pub fn fail_send(&self) {
        if matches!(self.kind.info().service, Service::Reliable | Service::Bytes) {
            self.fail();
        } else {
            self.stop_sends();
        }
    }

    /// Handles a refused request that concerns a key: the send queue fails, and so does the QP
    /// unless it has [`QpFlags::REACTIVE`].
    pub fn fail_key(&self) {
        if self.has(QpFlags::REACTIVE) {
            self.stop_sends();
        } else {
            self.gave_up.store(true, Ordering::Release);
            self.fail();
        }
    }

    /// Moves it to the state in which sends are flushed and receives continue.
    fn stop_sends(&self) {
        let stops = |state| {
            let sends = matches!(State::from_raw(state), Some(State::Rts | State::Sqd));
            sends.then_some(State::Sqe as u8)
        };
        // An earlier error has already moved it to a state without sends.
        let _earlier = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, stops).is_err();
    }

    /// Returns whether the attributes of its peer are set.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.kind.info().is_connected() && !matches!(self.state(), State::Reset | State::Init)
    }

    /// Returns the QP as a user of keys.
    #[inline]
    #[must_use]
    pub fn user(&self) -> User {
        User { pdn: self.pdn, qpn: self.qpn, domain: self.domain }
    }

    /// Returns the QP as the receiver of frames.
    #[must_use]
    pub fn target(&self) -> Target {
        Target { qpn: self.qpn, worker: self.worker() }
    }

    /// Returns whether its send queue is flushed.
    #[inline]
    #[must_use]
    pub fn flushes_sends(&self) -> bool {
        matches!(self.state(), State::Err | State::Sqe)
    }

    /// Returns whether a turn of its send queue may have work.
    #[inline]
    #[must_use]
    pub fn may_send(&self) -> bool {
        self.state() == State::Rts
            && self.timer.load(Ordering::Relaxed) == 0
            && !self.held.load(Ordering::Relaxed)
            && !(self.holding && self.send_cq.holds())
    }

    /// Lets the message in progress of `sender`, the QP at the other end, wait until there is room
    /// in `cq`, a CQ of this QP. Returns false if there is room, or the QP has failed. The caller
    /// has this QP's responder locked.
    #[cold]
    pub(crate) fn hold_off(&self, cq: &Cq, sender: &Peer<H>) -> bool {
        // Before the sender can be scheduled, which resets it.
        sender.qp.held.store(true, Ordering::Relaxed);
        *self.sender.lock() = Some(Box::new(sender.downgrade()));
        let waits = self.waits_for(cq) && self.receives();
        if !waits {
            sender.qp.held.store(false, Ordering::Relaxed);
        }
        waits
    }

    /// Schedules the QP at the other end if its message has waited for room in a CQ of this one.
    pub(crate) fn let_sender_go_on(&self) {
        let sender = self.sender.lock().take();
        if let Some(Peer { core, qp }) = sender.and_then(|sender| sender.upgrade()) {
            qp.held.store(false, Ordering::Relaxed);
            qp.schedule(&core);
        }
    }

    /// Returns whether work that needs an entry of `cq` must wait, because the CQ holds entries
    /// back. The QP is scheduled when there is room.
    #[inline]
    #[must_use]
    pub fn waits_for(&self, cq: &Cq) -> bool {
        self.holding && cq.wait(self.qpn)
    }

    /// Returns whether it can receive from peers.
    #[inline]
    #[must_use]
    pub fn receives(&self) -> bool {
        matches!(self.state(), State::Rtr | State::Rts | State::Sqd | State::Sqe)
            && !self.dead.load(Ordering::Acquire)
    }

    /// Returns whether it has ended its connection by a refused request of its own, and refuses
    /// what its peer still sends.
    #[must_use]
    pub fn has_given_up(&self) -> bool {
        self.state() == State::Err && self.gave_up.load(Ordering::Acquire)
    }

    /// Returns the numbers of both halves for [`crate::host::HeldMemory::attend`].
    pub fn askers(&self) -> [u64; 2] {
        [self.requester.lock().asker(), self.responder.lock().asker()]
    }

    /// Discards all work, as in a new QP, and zeroes the doorbell words.
    pub fn clear(&self, host: &H) {
        let mut requester = self.requester.lock();
        *requester = Requester::default();
        self.next_send.store(0, Ordering::Relaxed);
        self.held.store(false, Ordering::Relaxed);
        self.gave_up.store(false, Ordering::Relaxed);
        self.mark_wait.clear();
        *self.responder.lock() = Responder::default();
        self.let_sender_go_on();
        host.bar_zero(self.doorbell.words());
        if let Some(ring) = self.sq.device() {
            host.bar_zero(ring.range());
        }
    }
}
