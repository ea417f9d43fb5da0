//! All files and identifiers, and what connects them.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use vrnic_cm::manager::{ConnectionId, Manager};
use vrnic_packet::Nanos;

use super::files::{CmFile, Pending, Wait};
use super::ids::{CmId, Membership};
use super::network::Network;
use super::ports::Ports;
use super::resolving::{LOOK_INTERVAL, Resolving};
use super::wire::EventResp;
use crate::trap::task::FileId;
use crate::uverbs::device::Device;

/// Maximum number of files at a time.
const FILES_MAX: usize = 4096;
/// Maximum number of identifiers of a file.
const IDS_MAX: usize = 1 << 16;
/// Maximum number of identifiers of all files.
const ALL_IDS_MAX: usize = 1 << 18;

/// The time between two looks whether there is room for messages.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(1);

/// The connection manager for programs. `T` is what answers a thread that waits.
#[derive(Debug)]
pub struct CmService<T> {
    pub(super) network: Network,
    pub(super) files: HashMap<FileId, CmFile<T>>,
    pub(super) ids: HashMap<u32, CmId>,
    pub(super) groups: HashMap<u32, Membership>,
    /// The identifiers of connections, by adapter and connection.
    pub(super) connections: HashMap<(usize, ConnectionId), u32>,
    pub(super) ports: Ports,
    /// The identifiers that wait for the addresses of peers.
    pub(super) resolving: Vec<Resolving>,
    /// The state of the network at the last look for these, and the time of the next one.
    pub(super) generation: u64,
    pub(super) next_look: Nanos,
    /// Threads that wait for events of files that are closed.
    orphans: Vec<Wait<T>>,
    /// The number of events that programs have not read.
    events: Arc<AtomicUsize>,
    last: u32,
    random: RandomState,
    start: Instant,
}

impl<T> CmService<T> {
    /// Returns the connection manager of these adapters.
    #[must_use]
    pub fn new(devices: &[Arc<Device>], ports: Ports) -> Self {
        let random = RandomState::new();
        // CAST: takes the lower half.
        let network = Network::new(devices, random.hash_one(1) as u32);
        Self {
            network,
            files: HashMap::new(),
            ids: HashMap::new(),
            groups: HashMap::new(),
            connections: HashMap::new(),
            ports,
            resolving: Vec::new(),
            generation: 0,
            next_look: Nanos::default(),
            orphans: Vec::new(),
            events: Arc::default(),
            last: 0,
            random,
            start: Instant::now(),
        }
    }

    /// Opens a file, with a pipe that has this path for a moment. Returns the descriptor for the
    /// program.
    ///
    /// # Errors
    /// `EMFILE` if there are too many, and the error of making the pipe.
    pub fn open(&mut self, path: &Path, nonblocking: bool) -> Result<(FileId, OwnedFd), Errno> {
        if self.files.len() >= FILES_MAX {
            return Err(Errno::MFILE);
        }
        let (file, theirs) = CmFile::open(path, nonblocking, &self.events)?;
        let id = file.id();
        self.files.insert(id, file);
        Ok((id, theirs))
    }

    /// Returns a file.
    #[must_use]
    pub fn file(&self, id: FileId) -> Option<&CmFile<T>> {
        self.files.get(&id)
    }

    /// Closes a file: its identifiers end. Threads that wait for its events go on to wait.
    pub fn close(&mut self, file: FileId) {
        // Nobody reads the events any more.
        let waits = self.files.remove(&file).map(|mut file| std::mem::take(&mut file.waits));
        self.orphans.extend(waits.into_iter().flatten());
        let of_file = |(number, id): (&u32, &CmId)| (id.file == file).then_some(*number);
        let numbers: Vec<_> = self.ids.iter().filter_map(of_file).collect();
        self.groups
            .retain(|_, group| self.ids.get(&group.owner).is_some_and(|owner| owner.file != file));
        for number in numbers {
            let _events = self.end_without_groups(number);
        }
        self.settle();
    }

    /// Closes all files, because no process is left that could use them.
    pub fn close_all(&mut self) {
        let all: Vec<_> = self.files.keys().copied().collect();
        all.into_iter().for_each(|file| self.close(file));
    }

    /// Makes a thread wait for an event of a file.
    ///
    /// # Errors
    /// `ENOMEM` if too many wait.
    pub fn wait(&mut self, file: FileId, wait: Wait<T>) -> Result<(), Errno> {
        let file = self.files.get_mut(&file).ok_or(Errno::BADF)?;
        if file.waits.len() >= super::files::WAITS_MAX {
            return Err(Errno::NOMEM);
        }
        file.waits.push_back(wait);
        Ok(())
    }

    /// Returns whether threads wait.
    #[must_use]
    pub fn has_waits(&self) -> bool {
        !self.orphans.is_empty() || self.files.values().any(|file| !file.waits.is_empty())
    }

    /// Ends the waits for which this returns true.
    pub fn end_waits(&mut self, mut ends: impl FnMut(&mut Wait<T>) -> bool) {
        self.files.values_mut().for_each(|file| file.waits.retain_mut(|wait| !ends(wait)));
        self.orphans.retain_mut(|wait| !ends(wait));
    }

    /// Gives events to the threads that wait for them. `answer` returns whether the thread has got
    /// the event; if not, it does not wait any more.
    pub fn deliver(&mut self, mut answer: impl FnMut(&Wait<T>, &EventResp) -> bool) {
        let mut read = Vec::new();
        for file in self.files.values_mut().filter(|file| !file.waits.is_empty()) {
            while let Some(event) = file.first()
                && let Some(wait) = file.waits.front()
            {
                let got = answer(wait, &event.resp);
                file.waits.pop_front();
                if got {
                    read.extend(file.pop());
                }
            }
        }
        read.iter().for_each(|event| self.count(event));
    }

    /// Records that a program has read an event.
    pub(super) fn count(&mut self, event: &Pending) {
        if let Some(id) = self.ids.get_mut(&event.owner) {
            id.events_reported = id.events_reported.wrapping_add(1);
            if event.child.is_some() {
                id.backlog = id.backlog.saturating_add(1);
            }
        }
        if let Some(group) = event.group.and_then(|group| self.groups.get_mut(&group)) {
            group.events_reported = group.events_reported.wrapping_add(1);
        }
    }

    /// Returns the time now.
    #[must_use]
    pub(super) fn now(&self) -> Nanos {
        Nanos::default().plus(self.start.elapsed())
    }

    /// Returns how long there is nothing to do. `None` if only commands and messages can change
    /// that.
    #[must_use]
    pub fn idle(&self) -> Option<Duration> {
        let unsent = self.network.has_unsent().then_some(NO_ROOM_PAUSE);
        let asked = (!self.resolving.is_empty()).then_some(LOOK_INTERVAL);
        let due = self.network.deadline().map(|at| at.since(self.now()));
        unsent.into_iter().chain(asked).chain(due).min()
    }

    /// Handles messages that have arrived, and does what is due. Returns whether more messages
    /// wait.
    pub fn advance(&mut self) -> bool {
        let now = self.now();
        let more = self.network.receive(now);
        self.network.expire(now);
        self.look_again();
        self.settle();
        more
    }

    /// Handles what has happened to connections, and sends messages.
    pub(super) fn settle(&mut self) {
        while let Some(happened) = self.network.happened() {
            self.handle(happened);
        }
        self.network.send();
    }

    /// Returns a new number for an identifier or a membership.
    pub(super) fn number(&mut self) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1);
            let (number, used) = (self.last, self.ids.contains_key(&self.last));
            if number != u32::MAX && !used && !self.groups.contains_key(&number) {
                return number;
            }
        }
    }

    /// Returns a number of 24 bits that peers do not know.
    pub(super) fn psn(&self) -> u32 {
        // CAST: takes 24 bits.
        self.random.hash_one(self.last) as u32 & 0xff_ffff
    }

    /// Checks that a file has room for another identifier.
    pub(super) fn check_ids(&self, file: FileId) -> Result<(), Errno> {
        let own = self.files.get(&file).ok_or(Errno::BADF)?.ids;
        if own < IDS_MAX && self.ids.len() < ALL_IDS_MAX { Ok(()) } else { Err(Errno::NOMEM) }
    }

    /// Adds an identifier. Returns the number.
    pub(super) fn insert(&mut self, id: CmId) -> u32 {
        let number = self.number();
        if let Some(file) = self.files.get_mut(&id.file) {
            file.ids += 1;
        }
        self.ids.insert(number, id);
        number
    }

    /// Returns an identifier of a file.
    ///
    /// # Errors
    /// `ENOENT` if there is none, `EINVAL` if another file has it.
    pub(super) fn id(&mut self, file: FileId, number: u32) -> Result<&mut CmId, Errno> {
        let id = self.ids.get_mut(&number).ok_or(Errno::NOENT)?;
        if id.file == file { Ok(id) } else { Err(Errno::INVAL) }
    }

    /// Returns an identifier of a file that has an adapter, and the connection manager there.
    ///
    /// # Errors
    /// `ENOENT` if there is none, `EINVAL` if another file has it, or if it has no adapter.
    pub(super) fn on_adapter(
        &mut self,
        file: FileId,
        number: u32,
    ) -> Result<(&mut CmId, &mut Manager), Errno> {
        let id = self.ids.get_mut(&number).ok_or(Errno::NOENT)?;
        let attached = id.attached.filter(|_| id.file == file).ok_or(Errno::INVAL)?;
        let manager = self.network.manager(attached.adapter).ok_or(Errno::NODEV)?;
        Ok((id, manager))
    }

    /// Adds an event of an identifier that its program knows.
    pub(super) fn post(&mut self, number: u32, resp: EventResp) -> Result<(), Errno> {
        let id = self.ids.get(&number).ok_or(Errno::NOENT)?;
        if id.uid == 0 {
            return Ok(());
        }
        let resp = EventResp { uid: id.uid, id: number, ..resp };
        let event = Pending { owner: number, group: None, child: None, resp };
        let file = self.files.get_mut(&id.file).ok_or(Errno::BADF)?;
        if file.push(event) { Ok(()) } else { Err(Errno::NOMEM) }
    }
}
