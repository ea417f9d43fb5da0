//! The switch, with all ports in one epoll set. It never waits for a single port. Its own thread
//! runs it, or a worker while adapters send packets.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`forward`] | frames from their origin to the queues of ports |
//! | `laned` | ports with lanes |
//! | [`hold`] | frames of uplinks that wait because an adapter has no room |
//! | [`members`] | ports as they come, connect, disconnect, and go |
//! | [`polled`] | lines whose frames are in shared memory |
//! | [`upkeep`] | what is done from time to time |
//! | [`waiting`] | lines that wait for a turn |

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use vrnic_adapter::ethernet;
use vrnic_control_api::LanesConfig;
use vrnic_packet::Mtu;

use self::upkeep::{AGE_PERIOD, TICK_INTERVAL};
use self::waiting::Waiting;
use super::frame::Frame;
use super::handle::Shared;
use super::line::Change;
use super::port::Port;
use super::table::{MacTable, PortId};
use super::turn::Turn;

mod forward;
mod hold;
mod laned;
mod members;
mod polled;
#[cfg(test)]
mod tests;
mod upkeep;
mod waiting;

/// Maximum number of events that are taken at once.
pub(super) const EVENTS: usize = 64;
/// Maximum number of events that a worker handles in one turn, which must be short.
const WORKER_EVENTS: usize = 4;
/// Number of turns of workers in a row without a look at epoll, while frames come without it.
const BLIND_TURNS: u32 = 7;
/// Token of the event that wakes the thread.
const BELL: u64 = u64::MAX;

/// Is called with the longest path MTU that all uplinks carry.
pub type MtuListener = Box<dyn Fn(Mtu) + Send>;

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

/// The state of the switch.
pub(super) struct Switch {
    epoll: Arc<OwnedFd>,
    shared: Arc<Shared>,
    limit: MtuListener,
    ports: BTreeMap<PortId, Port>,
    /// Number of the next port. No number is used twice, so a late event never affects another
    /// port.
    next: PortId,
    /// The settings of lanes, by the name of the port, which may not be there.
    lanes: BTreeMap<String, LanesConfig>,
    /// The ports that have lanes.
    laned: Vec<PortId>,
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
    /// Space for the frames that a port has just received.
    arrived: Vec<Frame>,
    /// Space for frames of an adapter that are taken out of the outbox.
    sent: VecDeque<ethernet::Frame>,
    /// Number of frames that were queued at ports since the queues were last flushed.
    queued: usize,
    waiting: Waiting,
    /// Counts turns of polled lines, so that they take turns in being the first.
    polls: usize,
    /// True if no frames are read from uplinks because an adapter has no room.
    held: bool,
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
        let table = MacTable::new(shared.outbox.places());
        Ok(Self {
            epoll,
            shared,
            limit,
            ports: BTreeMap::new(),
            next: 0,
            lanes: BTreeMap::new(),
            laned: Vec::new(),
            polled: Vec::new(),
            blind: 0,
            carrier: true,
            table,
            aged: now,
            ticked: now,
            grown: Vec::new(),
            arrived: Vec::new(),
            sent: VecDeque::new(),
            queued: 0,
            waiting: Waiting::default(),
            polls: 0,
            held: false,
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
        self.forward_outbox(Turn::begin());
        let reads = self.may_read_uplinks();
        // Connections come before listening sockets: a netdev that has disconnected makes room for
        // the next one.
        let tokens = || events.iter().filter_map(|event| Some((Token::of(event)?, event.flags)));
        for (token, flags) in tokens() {
            if let Token::Wire(id) = token {
                self.enqueue(id, flags);
            }
        }
        self.serve_waiting(reads);
        self.serve_polled(reads, &mut Turn::begin());
        for (token, _) in tokens() {
            if let Token::Door(id) = token {
                self.serve_door(id);
            }
        }
        self.tick();
        self.follow_uplinks();
        let ages = self.age(Instant::now());
        self.keep_lent();
        let ticks = ages || self.table.lends() || self.ports.values().any(Port::wants_ticks);
        let period = if ticks { TICK_INTERVAL } else { AGE_PERIOD };
        self.serve_lanes().map_or(period, |until| until.min(period))
    }

    /// Forwards frames that adapters have sent and frames that have arrived, without waiting. Does
    /// at most three turns of work, of this `time` each: for the outbox, for polled lines,
    /// and for the other lines.
    pub(super) fn serve_wires(&mut self, time: Duration) -> Served {
        let sent = self.forward_outbox(Turn::lasting(time));
        let _until = self.serve_lanes();
        let reads = self.may_read_uplinks();
        let mut any = sent | self.serve_polled(reads, &mut Turn::lasting(time));
        // A look costs as much as several frames.
        if any && !self.polled.is_empty() && self.blind < BLIND_TURNS {
            self.blind += 1;
            return Served { any, sent, for_thread: self.lost };
        }
        self.blind = 0;
        // Epoll moves lines that it has returned behind the others.
        let mut space = [const { MaybeUninit::<Event>::uninit() }; WORKER_EVENTS];
        let waited = epoll::wait(&*self.epoll, &mut space[..], Some(&Timespec::default()));
        // The switch's thread reports the error.
        let mut for_thread = waited.is_err();
        for event in waited.map(|(events, _)| events).unwrap_or_default() {
            match Token::of(event) {
                Some(Token::Wire(id)) if self.ports.get(&id).is_some_and(Port::needs_thread) => {
                    for_thread = true;
                }
                Some(Token::Wire(id)) => self.enqueue(id, event.flags),
                Some(Token::Door(_)) => for_thread = true,
                // The switch's thread handles this event.
                None => {}
            }
        }
        any |= self.attend_waiting(reads, &mut Turn::lasting(time));
        Served { any, sent, for_thread: for_thread || self.lost }
    }

    /// Forwards frames that have arrived, and sends waiting frames if the line has room. Without
    /// flags, the line is polled. Frames that the turn has no time for stay at the port. Returns
    /// whether a frame was forwarded.
    fn serve_wire(
        &mut self,
        id: PortId,
        flags: EventFlags,
        reads_uplinks: bool,
        turn: &mut Turn,
    ) -> bool {
        let Some(port) = self.ports.get_mut(&id) else { return false };
        self.serving = Some(id);
        let reads = reads_uplinks || !port.is_uplink();
        if flags.contains(EventFlags::OUT) {
            self.grown.push(id);
        }
        let mut change = Change::None;
        let notified = flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR);
        if reads && !port.has_rest() && (notified || flags.is_empty()) {
            change = port.receive(notified, &mut self.arrived);
            turn.read_clock();
        }
        let any = reads && self.forward_rest(id, change == Change::Gone, turn);
        self.follow(id, change);
        if flags.contains(EventFlags::OUT) || self.ports.get(&id).is_some_and(Port::is_ready) {
            self.flush(id);
        }
        self.flush_grown();
        self.note_rest(id);
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
}
