//! The switch: one thread, one epoll set, all ports. It never waits for a port.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

use super::framing::Frame;
use super::mac::MacAddr;
use super::port::{LinkListener, PeerState, Port};
use super::table::{MacTable, PortId, Route, Verdict};
use crate::socket::SocketFile;

/// Time between two runs of ageing.
const AGE_PERIOD: Duration = Duration::from_secs(30);
/// Token of the stop event.
const STOP: u64 = u64::MAX;

/// Configuration of a port.
pub struct PortSetup {
    /// Name in logs.
    pub name: String,
    /// The adapter's address; no other port may use it.
    pub mac: MacAddr,
    /// The socket that the netdev connects to.
    pub socket: SocketFile,
    /// Hears of the link.
    pub link: LinkListener,
}

/// A running switch; it stops on drop.
#[derive(Debug)]
pub struct SwitchThread {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl SwitchThread {
    /// Starts a switch with these ports.
    ///
    /// # Errors
    /// When descriptors or threads run out.
    pub fn start(ports: Vec<PortSetup>) -> io::Result<Self> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, stop.as_fd(), EventData::new_u64(STOP), EventFlags::IN)?;
        let mut table = MacTable::default();
        let mut all = Vec::new();
        for (id, setup) in ports.into_iter().enumerate() {
            table.pin(setup.mac, id);
            let port = Port::new(&setup.name, setup.socket, setup.link);
            let listener = port.socket().listener();
            epoll::add(&epoll, listener, Token::Listener(id).data(), EventFlags::IN)?;
            all.push(port);
        }
        let watched_out = vec![false; all.len()];
        let switch = Switch { epoll, ports: all, table, aged: Instant::now(), watched_out };
        let thread =
            std::thread::Builder::new().name("switch".into()).spawn(move || switch.run())?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for SwitchThread {
    fn drop(&mut self) {
        let told = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take()
            && (told.is_err() || thread.join().is_err())
        {
            tracing::error!("the switch thread failed, or could not be told to end");
        }
    }
}

/// The object of an epoll event.
#[derive(Clone, Copy)]
enum Token {
    Listener(PortId),
    Peer(PortId),
}

impl Token {
    fn data(self) -> EventData {
        let (id, kind) = match self {
            Self::Listener(id) => (id, 0),
            Self::Peer(id) => (id, 1),
        };
        EventData::new_u64((id as u64) << 1 | kind)
    }

    fn from_raw(raw: u64) -> Option<Self> {
        let id = usize::try_from(raw >> 1).ok()?;
        Some(if raw & 1 == 0 { Self::Listener(id) } else { Self::Peer(id) })
    }
}

/// The state of the thread.
struct Switch {
    epoll: OwnedFd,
    ports: Vec<Port>,
    table: MacTable,
    aged: Instant,
    /// Per port: whether epoll watches for room to send.
    watched_out: Vec<bool>,
}

impl Switch {
    fn run(mut self) {
        let timeout = Timespec::try_from(AGE_PERIOD).ok();
        let mut events: Vec<Event> = Vec::with_capacity(64);
        loop {
            events.clear();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                timeout.as_ref(),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "the Ethernet switch stops: epoll failed");
                    return;
                }
            }
            // Peers before listeners: a netdev that has left makes room for the next one.
            for event in &events {
                let raw = event.data.u64();
                if raw == STOP {
                    return;
                }
                if let Some(Token::Peer(id)) = Token::from_raw(raw) {
                    self.serve_peer(id, event.flags);
                }
            }
            for event in &events {
                if let Some(Token::Listener(id)) = Token::from_raw(event.data.u64()) {
                    self.serve_listener(id);
                }
            }
            self.age();
        }
    }

    fn serve_listener(&mut self, id: PortId) {
        let Some(port) = self.ports.get_mut(id) else { return };
        match port.accept() {
            Ok(true) => {
                let stream = port.stream();
                let watched = stream.map(|stream| {
                    epoll::add(&self.epoll, stream, Token::Peer(id).data(), EventFlags::IN)
                });
                if let Some(Err(error)) = watched {
                    tracing::error!(%error, "a netdev is disconnected: epoll cannot watch it");
                    self.disconnect(id);
                }
            }
            Ok(false) => {}
            Err(error) => {
                port.log(|port| tracing::warn!(port, %error, "a netdev cannot be accepted"));
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    fn serve_peer(&mut self, id: PortId, flags: EventFlags) {
        let Some(port) = self.ports.get_mut(id) else { return };
        let mut frames = Vec::new();
        let mut state = PeerState::Up;
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            state = port.receive(|frame| frames.push(frame));
        }
        for frame in frames {
            self.forward(id, frame);
        }
        if state == PeerState::Gone {
            self.disconnect(id);
        }
        for id in 0..self.ports.len() {
            self.flush(id);
        }
    }

    /// Learns the source of a frame and queues it where it goes.
    fn forward(&mut self, from: PortId, frame: Frame) {
        if self.table.learn(frame.source(), from, Instant::now()) == Verdict::Forged {
            if let Some(port) = self.ports.get_mut(from) {
                port.forged(&frame);
            }
            return;
        }
        match self.table.route(frame.destination(), from) {
            Route::Filter => {}
            Route::Port(to) => {
                if let Some(port) = self.ports.get_mut(to) {
                    port.send(frame);
                }
            }
            Route::Flood => {
                for (to, port) in self.ports.iter_mut().enumerate() {
                    if to != from {
                        port.send(frame.clone());
                    }
                }
            }
        }
    }

    /// Sends what a port has queued, and watches for room while something is left.
    fn flush(&mut self, id: PortId) {
        let Some(port) = self.ports.get_mut(id) else { return };
        if !port.is_backed_up() {
            return;
        }
        if port.flush() == PeerState::Gone {
            self.disconnect(id);
            return;
        }
        let backed_up = port.is_backed_up();
        let Some(stream) = port.stream() else { return };
        if self.watched_out.get(id) == Some(&backed_up) {
            return;
        }
        let mut flags = EventFlags::IN;
        flags.set(EventFlags::OUT, backed_up);
        if let Err(error) = epoll::modify(&self.epoll, stream, Token::Peer(id).data(), flags) {
            tracing::error!(%error, "frames may be delayed: epoll cannot change what it watches");
        }
        if let Some(watched) = self.watched_out.get_mut(id) {
            *watched = backed_up;
        }
    }

    fn disconnect(&mut self, id: PortId) {
        self.table.flush(id);
        if let Some(watched) = self.watched_out.get_mut(id) {
            *watched = false;
        }
        if let Some(port) = self.ports.get_mut(id) {
            // Closing the stream takes it out of the epoll set.
            port.disconnect();
        }
    }

    fn age(&mut self) {
        let now = Instant::now();
        if now.saturating_duration_since(self.aged) >= AGE_PERIOD {
            self.aged = now;
            self.table.age(now);
        }
    }
}
