//! The switch, with all ports in one epoll set. It never waits for a single port. Its own thread
//! runs it, or a worker while adapters send packets.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`members`] | ports as they come, connect, disconnect, and go |
//! | [`polled`] | lines whose frames are in shared memory |
//! | [`upkeep`] | what is done from time to time |

use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use vrnic_adapter::ethernet;

use super::account::Account;
use super::frame::Frame;
use super::handle::Shared;
use super::line::Change;
use super::path_mtu::PathMtu;
use super::port::Port;
use super::table::{MacTable, PortId, Route, Verdict};
use upkeep::{AGE_PERIOD, TICK};

mod members;
mod polled;
mod upkeep;

/// Maximum time for which no frames are read from uplinks because an adapter has no room.
pub const HOLD: Duration = Duration::from_millis(300);
/// Number of frames of an adapter after which the queues of ports are flushed.
const CHUNK: usize = 64;
/// Maximum number of events that are taken at once.
pub(super) const EVENTS: usize = 64;
/// Maximum number of events that a worker handles in one turn, which must be short.
const WORKER_EVENTS: usize = 4;
/// Number of turns of workers in a row without a look at epoll, while frames come without it.
const BLIND_TURNS: u32 = 7;
/// Token of the event that wakes the thread.
const BELL: u64 = u64::MAX;

/// Is called with the longest path MTU that all uplinks carry.
pub type MtuListener = Box<dyn Fn(PathMtu) + Send>;

/// The object of an epoll event.
#[derive(Clone, Copy)]
enum Token {
    Door(PortId),
    Wire(PortId),
}

impl Token {
    fn data(self) -> EventData {
        let (id, kind) = match self {
            Self::Door(id) => (id, 0),
            Self::Wire(id) => (id, 1),
        };
        EventData::new_u64((id as u64) << 1 | kind)
    }

    /// Returns the object of an event, or none for the event that wakes the thread.
    fn of(event: &Event) -> Option<Self> {
        let raw = event.data.u64();
        let id = usize::try_from(raw >> 1).ok().filter(|_| raw != BELL)?;
        Some(if raw & 1 == 0 { Self::Door(id) } else { Self::Wire(id) })
    }
}

/// The origin of a frame.
#[derive(Clone, Copy)]
struct Entry<'a> {
    port: PortId,
    /// The account of the adapter that has sent the frame.
    account: Option<&'a Arc<Account>>,
}

/// The state of the switch.
pub(super) struct Switch {
    epoll: Arc<OwnedFd>,
    shared: Arc<Shared>,
    limit: MtuListener,
    ports: BTreeMap<PortId, Port>,
    /// Number of the next port. No number is used twice, so a late event never affects another
    /// port.
    next: PortId,
    /// The ports whose lines are polled.
    polled: Vec<PortId>,
    /// Number of turns of workers since the last look at epoll.
    blind: u32,
    /// False if the functions follow uplinks, and none of these has a link.
    carrier: bool,
    table: MacTable,
    aged: Instant,
    ticked: Instant,
    /// Ports whose queues have grown since they were last flushed.
    grown: Vec<PortId>,
    /// Frames that have arrived by a port and must be forwarded.
    arrived: Vec<Frame>,
    /// The time since which no frames are read from uplinks because an adapter has no room.
    held: Option<Instant>,
    /// The line whose events are being handled.
    serving: Option<PortId>,
    /// True if a line was lost since the thread last looked.
    lost: bool,
}

/// The result of a worker's turn in the switch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    /// True if a frame was forwarded.
    pub(super) any: bool,
    /// True if adapters have sent frames.
    pub(super) sent: bool,
    /// True if an event needs the switch's thread.
    pub(super) for_thread: bool,
}

impl Switch {
    /// Creates a switch without ports.
    ///
    /// # Errors
    /// Returns an error if descriptors run out.
    pub(super) fn new(shared: Arc<Shared>, limit: MtuListener) -> io::Result<Self> {
        let epoll = Arc::new(epoll::create(CreateFlags::CLOEXEC)?);
        epoll::add(&epoll, &*shared.bell, EventData::new_u64(BELL), EventFlags::IN)?;
        let now = Instant::now();
        Ok(Self {
            epoll,
            shared,
            limit,
            ports: BTreeMap::new(),
            next: 0,
            polled: Vec::new(),
            blind: 0,
            carrier: true,
            table: MacTable::default(),
            aged: now,
            ticked: now,
            grown: Vec::new(),
            arrived: Vec::new(),
            held: None,
            serving: None,
            lost: false,
        })
    }

    /// Returns the epoll set of the ports.
    pub(super) const fn epoll(&self) -> &Arc<OwnedFd> {
        &self.epoll
    }

    /// Handles events, commands and periodic work. Returns the time after which to call this again
    /// if no event comes. Only the switch's thread calls this, because it may take long.
    pub(super) fn serve(&mut self, events: &[Event]) -> Duration {
        self.lost = false;
        self.run_commands();
        self.forward_outbox();
        let reads = self.may_read_uplinks();
        // Connections come before listening sockets: a netdev that has disconnected makes room for
        // the next one.
        let tokens = || events.iter().filter_map(|event| Some((Token::of(event)?, event.flags)));
        for (token, flags) in tokens() {
            if let Token::Wire(id) = token {
                self.serve_wire(id, flags, reads);
            }
        }
        self.serve_polled(reads);
        for (token, _) in tokens() {
            if let Token::Door(id) = token {
                self.serve_door(id);
            }
        }
        self.tick();
        self.follow_uplinks();
        self.age();
        if self.ports.values().any(Port::wants_ticks) { TICK } else { AGE_PERIOD }
    }

    /// Forwards the frames that adapters have sent and those that have arrived, without waiting.
    pub(super) fn serve_wires(&mut self) -> Served {
        let sent = self.forward_outbox();
        let reads = self.may_read_uplinks();
        let mut any = sent | self.serve_polled(reads);
        // A look costs as much as several frames.
        if any && !self.polled.is_empty() && self.blind < BLIND_TURNS {
            self.blind += 1;
            return Served { any, sent, for_thread: self.lost };
        }
        self.blind = 0;
        // Lines with events take turns, because epoll moves those that it has returned behind the
        // others.
        let mut space = [const { MaybeUninit::<Event>::uninit() }; WORKER_EVENTS];
        let waited = epoll::wait(&*self.epoll, &mut space[..], Some(&Timespec::default()));
        // The switch's thread reports the error.
        let mut for_thread = waited.is_err();
        for event in waited.map(|(events, _)| events).unwrap_or_default() {
            match Token::of(event) {
                Some(Token::Wire(id)) if self.ports.get(&id).is_some_and(Port::needs_thread) => {
                    for_thread = true;
                }
                Some(Token::Wire(id)) => any |= self.serve_wire(id, event.flags, reads),
                Some(Token::Door(_)) => for_thread = true,
                // The switch's thread handles this event.
                None => {}
            }
        }
        Served { any, sent, for_thread: for_thread || self.lost }
    }

    /// Forwards the frames of adapters. Returns whether any frames waited.
    fn forward_outbox(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        shared.outbox.take(|port, account, frames| {
            self.forward_all(Entry { port, account: Some(account) }, frames);
        })
    }

    /// Forwards the frames of an adapter.
    fn forward_all(&mut self, from: Entry<'_>, frames: Vec<ethernet::Frame>) {
        // The port may have been removed since the frames were sent.
        if !self.ports.contains_key(&from.port) {
            return;
        }
        let now = Instant::now();
        for (count, frame) in (1..).zip(frames) {
            // The frames of an adapter are never too short. If one were, it would be dropped.
            if let Ok(frame) = Frame::try_from(frame) {
                self.forward(from, frame, now);
            }
            if count % CHUNK == 0 {
                self.flush_grown();
            }
        }
        self.flush_grown();
    }

    /// Forwards frames that have arrived, and sends waiting frames if the line has room. Without
    /// flags, the line is polled. Returns whether a frame arrived.
    fn serve_wire(&mut self, id: PortId, flags: EventFlags, reads_uplinks: bool) -> bool {
        let now = Instant::now();
        let Some(port) = self.ports.get_mut(&id) else { return false };
        self.serving = Some(id);
        let reads = reads_uplinks || !port.is_uplink();
        if flags.contains(EventFlags::OUT) {
            self.grown.push(id);
        }
        let mut change = Change::None;
        let mut frames = std::mem::take(&mut self.arrived);
        let told = flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR);
        if reads && (told || flags.is_empty()) {
            change = port.receive(told, &mut frames);
        }
        let any = !frames.is_empty();
        for frame in frames.drain(..) {
            self.forward(Entry { port: id, account: None }, frame, now);
        }
        self.arrived = frames;
        self.follow(id, change);
        if flags.contains(EventFlags::OUT) || self.ports.get(&id).is_some_and(Port::is_ready) {
            self.flush(id);
        }
        self.flush_grown();
        self.serving = None;
        any
    }

    /// Closes the line whose events were being handled when the switch panicked.
    #[cold]
    pub(super) fn recover(&mut self) {
        self.arrived.clear();
        self.grown.clear();
        let Some(id) = self.serving.take() else { return };
        if let Some(port) = self.ports.get(&id) {
            tracing::error!(
                port = port.status().name(),
                "the link was closed because vrnicd panicked while it handled the link, which is a bug of vrnicd"
            );
        }
        self.disconnect(id);
    }

    /// Returns whether frames may be read from uplinks, because the workers of all adapters keep up
    /// with them. Otherwise frames wait in the sockets and at their senders instead of being
    /// dropped. After [`HOLD`] frames are read in any case, so that one adapter cannot delay the
    /// others for long.
    fn may_read_uplinks(&mut self) -> bool {
        let now = Instant::now();
        if self.ports.values().all(Port::has_room) {
            self.held = None;
            return true;
        }
        let since = *self.held.get_or_insert(now);
        now.saturating_duration_since(since) > HOLD
    }

    /// Returns whether frames wait to be read until an adapter has room.
    pub(super) const fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Learns the source address of a frame, and queues the frame at its destination ports.
    fn forward(&mut self, from: Entry<'_>, frame: Frame, now: Instant) {
        if self.table.learn(frame.source(), from.port, now) == Verdict::Forged {
            if let Some(port) = self.ports.get(&from.port) {
                port.forged(&frame);
            }
            return;
        }
        let by_line = from.account.is_none();
        if by_line && self.ports.get(&from.port).is_some_and(|port| port.has_taken_over(&frame)) {
            return;
        }
        match self.table.route(frame.destination(), from.port) {
            Route::Filter => {}
            Route::Port(to) => self.pass(from, to, frame),
            Route::Flood => {
                let others: Vec<PortId> =
                    self.ports.keys().copied().filter(|to| *to != from.port).collect();
                for to in others {
                    self.pass(from, to, frame.clone());
                }
            }
        }
    }

    /// Queues a frame at a port, if it may go there.
    fn pass(&mut self, from: Entry<'_>, to: PortId, frame: Frame) {
        let pair = self.ports.get(&from.port).zip(self.ports.get(&to));
        if !pair.is_some_and(|(from, to)| from.may_pass_to(to)) {
            return;
        }
        if let Some(port) = self.ports.get_mut(&to)
            && port.send(frame, from.account)
            && self.grown.last() != Some(&to)
        {
            self.grown.push(to);
        }
    }

    /// Sends the frames that have been queued since the last call.
    fn flush_grown(&mut self) {
        let mut grown = std::mem::take(&mut self.grown);
        for id in grown.drain(..) {
            let Some(port) = self.ports.get(&id) else { continue };
            // If epoll watches a port for room, it has none now.
            if port.is_backed_up() && !port.watched_out {
                self.flush(id);
            }
        }
        self.grown = grown;
    }

    /// Sends the queued frames of a port. If some remain, watches the port for room.
    fn flush(&mut self, id: PortId) {
        let Some(port) = self.ports.get_mut(&id) else { return };
        if port.flush() == Change::Gone {
            self.disconnect(id);
            return;
        }
        let backed_up = port.is_backed_up();
        let Some(wire) = port.wire() else { return };
        if port.watched_out == backed_up || port.is_polled() {
            return;
        }
        let mut flags = EventFlags::IN;
        flags.set(EventFlags::OUT, backed_up);
        if let Err(error) = epoll::modify(&self.epoll, wire, Token::Wire(id).data(), flags) {
            tracing::error!(%error, "frames may be delayed: epoll cannot change the events of a port");
        }
        port.watched_out = backed_up;
    }
}
