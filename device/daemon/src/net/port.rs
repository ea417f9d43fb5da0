//! A switch port: its line, the adapter behind it, and what waits to be sent.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`setup`] | its configuration |
//! | `link` | its link |
//! | `source` | the source addresses that it allows |
//! | `waiting` | frames that wait in its lanes, PFC frames |

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::epoll::EventFlags;
use vrnic_adapter::ethernet::Offered;
use vrnic_adapter::log_ratelimit::Limiter;
use vrnic_adapter::vlans::NotMember;
use vrnic_packet::{MacAddr, Mtu};

use self::setup::PortSetup;
use self::waiting::Waiting;
use super::account::Account;
use super::frame::{FRAME_MIN, Frame};
use super::hold::Hold;
use super::lanes::PortLanes;
use super::line::{Change, Log};
use super::queue::{OVERHEAD, SendQueue};
use super::status::{PortStatus, Reason};
use super::storm::Storm;
use super::turn::Turn;
use super::uplinks::segments::cut::each_of;
use super::vlan;
use vrnic_control::capture::Captures;

#[cfg(test)]
pub(crate) mod fake_sink;
mod link;
pub mod setup;
mod source;
#[cfg(test)]
mod tests;
mod waiting;

/// Maximum number of bytes that wait for a netdev. Further frames are dropped, as a switch does
/// with a full queue.
const STATION_QUEUE: usize = 2 << 20;
/// Maximum number of bytes that wait for an uplink, which all functions share.
const UPLINK_QUEUE: usize = 8 << 20;
/// Length of a VLAN tag, which does not count as part of an IP packet.
const VLAN_TAG: usize = 4;

/// A port of the switch.
pub struct Port {
    setup: PortSetup,
    status: Arc<PortStatus>,
    captures: Arc<Captures>,
    queue: SendQueue,
    /// The lanes of the port, if an operator has set some.
    waiting: Option<Waiting>,
    /// Frames that have arrived by the line, and that the switch had no time to forward.
    rest: VecDeque<Frame>,
    storm: Storm,
    limiter: Limiter,
    /// True if frames can pass by the line, or the port has no line.
    up: bool,
    /// False if the functions follow uplinks, and none of these uplinks has a link.
    carrier: bool,
    /// The state of the link that was last reported to the adapter.
    reported_up: bool,
    /// The pauses of uplinks that the adapter has caused.
    pub hold: Hold,
    /// The time of the last frame from an uplink to an address of this port.
    pub heard: Option<Instant>,
    /// The events that epoll has reported since the line waits for its turn, if it does.
    pub due: Option<EventFlags>,
    /// True if epoll tells when there is room to send.
    pub watched_out: bool,
    /// True if epoll does not report clients until the next tick.
    pub door_shut: bool,
}

/// Has the captures record a frame, or each of those that were joined to it. `note` returns a
/// comment on all of them.
pub fn record(
    captures: &Captures,
    port: &str,
    frame: &Frame,
    note: impl FnOnce() -> Option<String>,
) {
    if captures.any() {
        let note = note();
        // A frame that cannot be cut is dropped and counted where it is sent.
        let _dropped = each_of(frame.clone(), |frame| {
            captures.frame(port, frame.bytes(), || note.clone());
        });
    }
}

impl Port {
    /// Creates a port without a link. Its frames are shown to `captures`.
    #[must_use]
    pub fn new(setup: PortSetup, captures: Arc<Captures>) -> Self {
        let room = if setup.kind.is_uplink() { UPLINK_QUEUE } else { STATION_QUEUE };
        let status = PortStatus::new(&setup.name, setup.kind);
        let now = Instant::now();
        let storm = Storm::new(setup.storm, now);
        // Without a line there is only the adapter, which can always receive frames.
        let up = setup.line.is_none();
        status.set_up(up);
        Self {
            status: Arc::new(status),
            captures,
            setup,
            queue: SendQueue::new(room),
            waiting: None,
            rest: VecDeque::new(),
            storm,
            limiter: Limiter::default(),
            up,
            carrier: false,
            reported_up: false,
            hold: Hold::new(now),
            heard: None,
            due: None,
            watched_out: false,
            door_shut: false,
        }
    }

    /// Returns the state for watchers.
    #[must_use]
    pub const fn status(&self) -> &Arc<PortStatus> {
        &self.status
    }

    /// Returns the address of the adapter behind the port.
    #[must_use]
    pub const fn mac(&self) -> Option<MacAddr> {
        self.setup.mac
    }

    /// Returns the addresses that are bound to the port.
    pub fn addresses(&self) -> impl Iterator<Item = MacAddr> {
        self.setup.mac.into_iter().chain(self.setup.addresses.iter().copied())
    }

    /// Returns whether frames that came by `self` may leave by `to`. They pass from one uplink to
    /// another one only if both have `transit`. So uplinks make a loop only if they are configured
    /// to.
    #[must_use]
    pub const fn may_pass_to(&self, to: &Self) -> bool {
        let both = self.setup.kind.is_uplink() && to.setup.kind.is_uplink();
        !both || self.setup.transit && to.setup.transit
    }

    /// Returns the longest path MTU of RDMA that can pass, if there is a limit.
    #[must_use]
    pub fn path_mtu(&self) -> Option<Mtu> {
        let mtu = self.setup.line.as_ref().and_then(|line| line.mtu());
        mtu.map(Mtu::of_ip)
    }

    /// Returns whether joined frames can pass by the line.
    #[must_use]
    pub fn joins(&self) -> bool {
        self.setup.line.as_ref().is_some_and(|line| line.joins())
    }

    /// Returns the listening socket, which becomes readable when a client wants to connect.
    #[must_use]
    pub fn door(&self) -> Option<BorrowedFd<'_>> {
        self.setup.line.as_ref().and_then(|line| line.door())
    }

    /// Returns the descriptor that frames pass through, if there is one now.
    #[must_use]
    pub fn wire(&self) -> Option<BorrowedFd<'_>> {
        self.setup.line.as_ref().and_then(|line| line.wire())
    }

    /// Returns whether frames wait to leave.
    #[must_use]
    pub fn is_backed_up(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Returns whether the adapter behind the port, if there is one, has room for more frames.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.setup.sink.as_ref().is_none_or(|sink| sink.has_room())
    }

    /// Returns whether only the switch's own thread may read from the line.
    #[must_use]
    pub fn needs_thread(&self) -> bool {
        self.setup.line.as_ref().is_some_and(|line| line.needs_thread())
    }

    /// Returns whether other hosts or daemons are behind the port.
    #[must_use]
    pub const fn is_uplink(&self) -> bool {
        self.setup.kind.is_uplink()
    }

    /// Accepts a client that waits at the listening socket.
    ///
    /// # Errors
    /// Returns the error of `accept`.
    pub fn admit(&mut self) -> io::Result<Change> {
        let Self { setup: PortSetup { line: Some(line), .. }, status, limiter, .. } = self else {
            return Ok(Change::None);
        };
        let change = line.admit(&Log::new(status, limiter))?;
        self.follow_link();
        Ok(change)
    }

    /// Returns whether something is due about once a second.
    #[must_use]
    pub fn wants_ticks(&self) -> bool {
        self.door_shut || self.setup.line.as_ref().is_some_and(|line| line.wants_ticks())
    }

    /// Does what is due about once a second.
    pub fn tick(&mut self) -> Change {
        let Self { setup: PortSetup { line: Some(line), .. }, status, limiter, .. } = self else {
            return Change::None;
        };
        let change = line.tick(&Log::new(status, limiter));
        self.follow_link();
        change
    }

    /// Returns whether the line is polled.
    #[must_use]
    pub fn is_polled(&self) -> bool {
        self.setup.line.as_ref().is_some_and(|line| line.is_polled())
    }

    /// Returns whether a poll of the line finds frames, or room for those that wait.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let backed_up = self.is_backed_up();
        self.has_rest() || self.setup.line.as_ref().is_some_and(|line| line.is_ready(backed_up))
    }

    /// Prepares for waiting until epoll reports the line. Returns false if it is ready already.
    #[must_use]
    pub fn wait(&self) -> bool {
        let backed_up = self.is_backed_up();
        let waits = self.setup.line.as_ref().is_none_or(|line| line.wait(backed_up));
        waits && !self.has_rest()
    }

    /// Returns whether frames have arrived that must be forwarded before the next ones are read.
    #[must_use]
    pub fn has_rest(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Returns the first of these frames.
    pub fn take_rest(&mut self) -> Option<Frame> {
        self.rest.pop_front()
    }

    /// Reads the frames that have arrived, until a turn is over. `notified` is true if epoll has
    /// reported an event of the line.
    pub fn receive(&mut self, notified: bool, frames: &mut Vec<Frame>) -> Change {
        let Self {
            setup: PortSetup { line: Some(line), vlans, sink, .. }, status, limiter, ..
        } = self
        else {
            return Change::None;
        };
        let (log, mut turn) = (Log::new(status, limiter), Turn::begin());
        let change = if notified {
            line.receive(frames, &mut turn, &log)
        } else {
            line.poll(frames, &mut turn, &log)
        };
        for frame in frames.drain(..) {
            status.received.count(frame.count(), frame.total());
            record(&self.captures, status.name(), &frame, || None);
            let count = frame.count();
            match vlan::enter(vlans, frame) {
                Ok(frame) => {
                    if let Some(sink) = sink {
                        sink.sniff(frame.as_ethernet());
                    }
                    self.rest.push_back(frame);
                }
                Err(NotMember) => log.dropped(Reason::Vlan, count, |port| {
                    tracing::warn!(port, "a frame was dropped: the port is not in its VLAN");
                }),
            }
        }
        self.follow_link();
        change
    }

    /// Gives a frame to the adapter if it is for the adapter, or queues it for the line. While the
    /// frame waits at an uplink, its sender's `account` is charged. If the port has lanes, the
    /// frame waits in one first. `origin` are the lanes of the port that it came by. Returns
    /// whether a queue has grown.
    pub fn send(
        &mut self,
        frame: Frame,
        account: Option<&Arc<Account>>,
        origin: Option<&PortLanes>,
    ) -> bool {
        if !vlan::admits(&self.setup.vlans, &frame) {
            return false;
        }
        match self.lanes().cloned() {
            None => self.pass_on(frame, account),
            Some(lanes) => self.enqueue(&lanes, frame, account, origin),
        }
    }

    /// Gives a frame to the adapter, or queues it for the line. Returns whether the queue has
    /// grown.
    fn pass_on(&mut self, frame: Frame, account: Option<&Arc<Account>>) -> bool {
        let sink = self.setup.sink.as_ref();
        record(&self.captures, self.status.name(), &frame, || {
            sink.and_then(|sink| sink.note(frame.as_ethernet()))
        });
        let Some(frame) = self.offer(frame) else { return false };
        let Ok(frame) = vlan::leave(&self.setup.vlans, frame) else { return false };
        let len = frame.longest();
        if self.setup.line.is_none() {
            return false;
        }
        if !self.up {
            self.status.count_dropped(Reason::NoLink, frame.count());
            return false;
        }
        let mtu = self.setup.line.as_ref().and_then(|line| line.mtu());
        if let Some(mtu) = mtu.and_then(|mtu| usize::try_from(mtu).ok())
            && len > mtu + FRAME_MIN + if frame.is_tagged() { VLAN_TAG } else { 0 }
        {
            self.log().dropped(Reason::TooLong, frame.count(), |port| {
                tracing::warn!(port, "a frame of {len} bytes was dropped: the MTU is {mtu}");
            });
            return false;
        }
        if frame.joint().is_none() || self.joins() && !frame.is_tagged() {
            return self.put(frame, account);
        }
        let (mut grown, mut lost) = (false, frame.count());
        let cut = each_of(frame, |frame| {
            grown |= self.put(frame, account);
            lost = lost.saturating_sub(1);
        });
        if let Err(error) = cut {
            self.log().dropped(Reason::Offload, lost, |port| {
                tracing::warn!(port, "a frame was dropped: {error}");
            });
        }
        grown
    }

    /// Queues a frame for the line. Returns whether there was room.
    fn put(&mut self, frame: Frame, account: Option<&Arc<Account>>) -> bool {
        let account = account.filter(|_| self.setup.kind.is_uplink());
        let (len, count, total) = (frame.bytes().len(), frame.count(), frame.total());
        if !self.queue.push(frame, account.map(|account| account.charge(len + OVERHEAD))) {
            let peer = if self.setup.kind.is_uplink() { "uplink" } else { "netdev" };
            self.log().dropped(Reason::QueueFull, count, |port| {
                tracing::warn!(
                    port,
                    "the {peer} reads too slowly; some frames for it were dropped"
                );
            });
            return false;
        }
        self.status.sent.count(count, total);
        true
    }

    /// Offers a frame to the adapter behind the port, if the frame's destination is the adapter or
    /// a group. Returns it if it is also, or only, for the line: behind the guest's network card
    /// may be stations with addresses of their own.
    fn offer(&self, frame: Frame) -> Option<Frame> {
        let Some(sink) = &self.setup.sink else { return Some(frame) };
        let (count, total, destination) = (frame.count(), frame.total(), frame.destination());
        let is_group = destination.is_group();
        let is_own = self.setup.mac == Some(destination) || is_group;
        if !is_own && !sink.has_address(frame.receiver()) {
            if self.up && self.setup.line.is_some() {
                sink.sniff(frame.as_ethernet());
            }
            return Some(frame);
        }
        let also_for_line = is_group.then(|| frame.clone());
        match sink.offer(frame.into()) {
            Offered::Trapped => {
                self.status.sent.count(count, total);
                return None;
            }
            Offered::Taken if !is_group => self.status.sent.count(count, total),
            Offered::Taken => {}
            Offered::Full => self.status.count_dropped(Reason::AdapterFull, count),
            // The frame has the same length as before.
            Offered::Other(frame) if !is_group => return Frame::try_from(frame).ok(),
            Offered::Other(_) => {}
        }
        also_for_line
    }

    /// Passes on frames of the lanes whose turn it is, and writes as much of the queue as the line
    /// takes, until a turn is over.
    pub fn flush(&mut self) -> Change {
        loop {
            let more = self.release();
            let change = self.write();
            if change == Change::Gone || !more || !self.queue.is_empty() || self.waits() {
                return change;
            }
        }
    }

    /// Writes as much of the queue as the line takes, until a turn is over.
    fn write(&mut self) -> Change {
        let Self { setup: PortSetup { line: Some(line), .. }, status, queue, limiter, .. } = self
        else {
            return Change::None;
        };
        let log = Log::new(status, limiter);
        match line.flush(queue, &mut Turn::begin(), &log) {
            Ok(()) => Change::None,
            Err(error) => {
                log.line(|port| tracing::warn!(port, %error, "the link is lost: writing failed"));
                Change::Gone
            }
        }
    }

    /// Returns whether a frame that came by the line must be dropped, because the adapter behind
    /// the port sends and receives the frames of this TCP connection. Counts the frame in this
    /// case.
    #[must_use]
    pub fn has_taken_over(&self, frame: &Frame) -> bool {
        let taken = self.setup.sink.as_ref();
        let taken = taken.is_some_and(|sink| sink.has_taken_over(frame.bytes()));
        if taken {
            self.status.count_dropped(Reason::TakenOver, frame.count());
        }
        taken
    }

    /// Returns whether the adapter behind the port may send a frame to its VLAN.
    #[must_use]
    pub fn admits(&self, frame: &Frame) -> bool {
        vlan::admits(&self.setup.vlans, frame)
    }

    /// Returns whether a frame may go to all ports. Counts and logs it otherwise.
    pub fn may_flood(&mut self, frame: &Frame, now: Instant) -> bool {
        let admitted = self.storm.admits(frame.count(), now);
        if !admitted {
            self.log().dropped(Reason::Storm, frame.count(), |port| {
                tracing::warn!(
                    port,
                    "a frame was dropped: the port sends too many frames to groups and unknown addresses"
                );
            });
        }
        admitted
    }

    /// Returns the receiver of log lines about the port.
    #[must_use]
    pub fn log(&self) -> Log<'_> {
        Log::new(&self.status, &self.limiter)
    }
}
