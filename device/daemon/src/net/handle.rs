//! Access to the switch for other threads: its start and end, its ports, its outbox.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use parking_lot::{Mutex, RwLock};
use vrnic_control_api::port_view::LaneView;
use vrnic_control_api::{LanesConfig, PortView};
use vrnic_packet::Mtu;

use super::outbox::Outbox;
use super::port::setup::PortSetup;
use super::status::PortStatus;
use super::table::PortId;
use crate::worker::attendance::Attendance;
use crate::worker::event::Event;
use crate::worker::pulse::{Pinged, Pulse};
use vrnic_control::capture::Captures;

/// A change that the switch's thread makes, and the channel for its result.
pub(super) enum Command {
    Add(Box<PortSetup>, SyncSender<io::Result<()>>),
    Remove(String, SyncSender<bool>),
    /// Sets the lanes of the port of this name, or removes them.
    SetLanes(String, Option<Box<LanesConfig>>, SyncSender<()>),
}

/// The state that the switch's thread and the others share.
pub(super) struct Shared {
    /// The event that wakes the switch's thread.
    pub(super) bell: Arc<Event>,
    /// True while a worker runs the switch.
    pub(super) attendance: Arc<Attendance>,
    pub(super) outbox: Arc<Outbox>,
    pub(super) captures: Arc<Captures>,
    /// The status of each port, for the monitor.
    pub(super) ports: RwLock<BTreeMap<PortId, Arc<PortStatus>>>,
    /// The code of the longest path MTU that all uplinks carry.
    path_mtu: AtomicU8,
    /// The commands that wait. None after the end of the thread, when no more are accepted.
    commands: Mutex<Option<Vec<Command>>>,
    /// Pings of the switch's thread.
    pub(super) pulse: Pulse,
    stop: AtomicBool,
}

impl Shared {
    /// Takes the commands that wait.
    pub(super) fn commands(&self) -> Vec<Command> {
        self.commands.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Drops the commands that wait, and accepts no more.
    pub(super) fn end(&self) {
        self.commands.lock().take();
    }

    /// Records the longest path MTU that all uplinks carry. Returns whether it differs from before.
    pub(super) fn set_path_mtu(&self, mtu: Mtu) -> bool {
        self.path_mtu.swap(mtu.code(), Ordering::SeqCst) != mtu.code()
    }

    /// Returns whether the switch has been asked to end.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// Access to a switch. Clones refer to the same switch.
#[derive(Clone)]
pub struct SwitchHandle(Arc<Shared>);

impl fmt::Debug for SwitchHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwitchHandle").finish_non_exhaustive()
    }
}

impl Pinged for Shared {
    fn pulse(&self) -> &Pulse {
        &self.pulse
    }

    fn wake(&self) {
        self.bell.step();
    }
}

impl SwitchHandle {
    /// Creates a handle for a switch that is not started yet.
    pub(super) fn new() -> io::Result<(Self, Arc<Shared>)> {
        let bell = Arc::new(Event::new()?);
        let attendance = Arc::new(Attendance::default());
        let shared = Arc::new(Shared {
            outbox: Arc::new(Outbox::new(Arc::clone(&bell), Arc::clone(&attendance))),
            bell,
            captures: Arc::default(),
            attendance,
            ports: RwLock::default(),
            path_mtu: AtomicU8::new(Mtu::MAX.code()),
            commands: Mutex::new(Some(Vec::new())),
            pulse: Pulse::default(),
            stop: AtomicBool::new(false),
        });
        Ok((Self(Arc::clone(&shared)), shared))
    }

    /// Adds a port. The caller has checked that its name and its address are free.
    ///
    /// # Errors
    /// Returns an error if descriptors run out, or if the switch has ended.
    pub fn add(&self, setup: PortSetup) -> io::Result<()> {
        let (reply, answer) = sync_channel(1);
        self.ask(Command::Add(Box::new(setup), reply), &answer)?
    }

    /// Removes a port. Returns false if there is none of this name.
    ///
    /// # Errors
    /// Returns an error if the switch has ended.
    pub fn remove(&self, name: &str) -> io::Result<bool> {
        let (reply, answer) = sync_channel(1);
        self.ask(Command::Remove(name.to_owned(), reply), &answer)
    }

    fn ask<T>(&self, command: Command, answer: &Receiver<T>) -> io::Result<T> {
        // Without the thread, this drops the command, and with it the sender of the result.
        let _accepted = self.0.commands.lock().as_mut().map(|commands| commands.push(command));
        self.0.bell.step();
        answer.recv().map_err(|_| io::Error::other("the Ethernet switch has ended"))
    }

    /// Sets the lanes of the port of a name, or removes them. They also hold if a port of this name
    /// is added later.
    ///
    /// # Errors
    /// Returns an error if the switch has ended.
    pub fn set_lanes(&self, name: &str, settings: Option<LanesConfig>) -> io::Result<()> {
        let (reply, answer) = sync_channel(1);
        self.ask(Command::SetLanes(name.to_owned(), settings.map(Box::new), reply), &answer)
    }

    /// Returns the outbox, through which adapters send frames into the switch.
    #[must_use]
    pub fn outbox(&self) -> &Arc<Outbox> {
        &self.0.outbox
    }

    /// Returns the captures, which record the frames of all ports.
    #[must_use]
    pub fn captures(&self) -> &Arc<Captures> {
        &self.0.captures
    }

    /// Returns the ports as they are now.
    #[must_use]
    pub fn ports(&self) -> Vec<PortView> {
        self.0.ports.read().values().map(|status| status.view()).collect()
    }

    /// Returns what the lanes of the port of this name have counted, if it has some.
    #[must_use]
    pub fn lanes(&self, name: &str) -> Vec<LaneView> {
        let ports = self.0.ports.read();
        let named = ports.values().find(|status| status.name() == name);
        named.map_or_else(Vec::new, |status| status.lanes())
    }

    /// Returns the longest path MTU of RDMA that all uplinks carry.
    #[must_use]
    pub fn path_mtu(&self) -> Mtu {
        Mtu::from_code(self.0.path_mtu.load(Ordering::SeqCst)).unwrap_or(Mtu::MAX)
    }

    /// Returns the handle for pings of the switch's thread.
    #[must_use]
    pub fn pinged(&self) -> Arc<dyn Pinged> {
        Arc::clone(&self.0) as Arc<dyn Pinged>
    }

    pub(super) const fn shared(&self) -> &Arc<Shared> {
        &self.0
    }

    /// Tells the switch to end.
    pub(super) fn stop(&self) {
        self.0.stop.store(true, Ordering::Release);
        self.0.bell.step();
    }
}
