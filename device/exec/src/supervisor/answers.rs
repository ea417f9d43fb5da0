//! The thread that answers system calls.

use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;
use rustix::io::Errno;
use vrnic_abi::admin::STAT_NAMES;
use vrnic_adapter::host::GuestMemory;

use super::caller::Caller;
use super::connections::{self, Connections};
use super::deferred::Deferred;
use super::opened::Files;
use crate::adapter::bell::Bell;
use crate::memory::space::Space;
use crate::memory::spaces::Spaces;
use crate::signals::mask_signals;
use crate::trap::call::{Answer, Call};
use crate::trap::files::{self, Subject, Wish};
use crate::trap::listener::{Id, Listener};
use crate::trap::paths::Link;
use crate::trap::stat::{self, DeviceNumber};
use crate::trap::tree::Tree;
use crate::trap::{paths, task};
use crate::uverbs::address::ASKED;
use crate::uverbs::device::Device;
use crate::uverbs::dispatch;

/// The least time between two looks at the signals of threads that wait for events.
const LOOK: Duration = Duration::from_millis(10);
/// The time between two looks, in times of what a look takes: with many threads that wait, system
/// calls have most of the time all the same.
const LOOK_PART: u32 = 9;

/// What answers need.
#[derive(Debug)]
pub struct Answers {
    /// The file by which system calls arrive.
    pub listener: Listener,
    /// The files that programs see.
    pub tree: Arc<Tree>,
    /// The adapters.
    pub devices: Vec<Arc<Device>>,
    /// The memory of programs.
    pub spaces: Arc<Spaces>,
    /// The device files that they have opened.
    pub files: Files,
    /// The connection manager.
    pub connections: Connections,
    /// Requests that wait for the addresses of peers.
    pub deferred: Deferred,
    /// The bell of messages for the connection manager.
    pub bell: Arc<Bell>,
    /// The lowest descriptor of a device file.
    pub first_descriptor: u32,
}

impl Answers {
    /// Answers system calls until there is no process left that could make one.
    pub fn run(mut self) {
        // A signal that interrupts the gift of a descriptor would let the system call return
        // without it.
        mask_signals();
        let mut next_look = Instant::now();
        loop {
            let mut ready = [
                PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.files.closing().as_fd(), PollFlags::POLLIN),
                PollFd::new(self.bell.as_fd(), PollFlags::POLLIN),
            ];
            let polled = poll(&mut ready, self.timeout(next_look));
            let [calls, closed, rung] =
                ready.map(|file| file.revents().unwrap_or(PollFlags::empty()));
            if polled.is_err() {
                continue;
            }
            if is_set(rung) {
                self.bell.quiet();
            }
            let _message = catch_unwind(AssertUnwindSafe(|| {
                self.look(is_set(closed), &mut next_look);
                self.try_again();
            }));
            if is_set(calls) {
                self.one();
            } else if calls.intersects(PollFlags::POLLHUP | PollFlags::POLLERR) {
                // The kernel may report the end of the last process before it closes its files.
                let _message = catch_unwind(AssertUnwindSafe(|| self.connections.close_all()));
                return;
            }
        }
    }

    /// Does what no system call is for: closes files, handles messages for the connection manager,
    /// and ends waits.
    fn look(&mut self, closed: bool, next_look: &mut Instant) {
        if closed {
            for file in self.files.close_ended() {
                self.connections.close(file);
            }
        }
        if self.connections.advance() {
            self.bell.ring();
        }
        if self.connections.has_waits() {
            connections::deliver(&mut self.connections, &self.listener);
            let start = Instant::now();
            if start >= *next_look {
                connections::interrupt(&mut self.connections, &self.listener);
                *next_look = Instant::now() + LOOK.max(start.elapsed() * LOOK_PART);
            }
        }
    }

    /// Answers the next system call.
    fn one(&mut self) {
        // An error means that the thread does not wait any more.
        let Ok((id, call)) = self.listener.receive() else { return };
        // A bug must not be the end of the program: it would wait for ever.
        let answer = catch_unwind(AssertUnwindSafe(|| self.answer(id, &call)));
        let _gone = self.listener.answer(id, answer.unwrap_or(Answer::Failed(Errno::IO)));
    }

    fn answer(&mut self, id: Id, call: &Call) -> Answer {
        match call.number {
            libc::SYS_ioctl => self.ioctl(id, call),
            libc::SYS_write => self.write(id, call),
            libc::SYS_execve | libc::SYS_execveat => self.execute(call),
            libc::SYS_socket => Answer::Failed(Errno::PROTONOSUPPORT),
            _ => match files::parse(call) {
                Some((Subject::Path(addr), wish)) => self.path(id, call, addr, wish),
                Some((Subject::Descriptor(descriptor), wish)) => {
                    self.descriptor(id, call, descriptor, wish)
                }
                None => Answer::Continue,
            },
        }
    }

    /// Answers a system call about the file with a path.
    fn path(&mut self, id: Id, call: &Call, addr: u64, wish: Wish) -> Answer {
        // The kernel reports what is wrong with a path that cannot be read.
        let Ok(path) = task::path(call.thread, addr) else { return Answer::Continue };
        if let (Some(link), Wish::Open(flags)) = (paths::link(&path), wish)
            && let Some(answer) = self.open_again(id, call, link, flags)
        {
            return answer;
        }
        let Some(path) = paths::own(&path) else { return Answer::Continue };
        if let (Some(value), Wish::Open(flags)) = (self.counter(&path), wish) {
            return files::text(&self.listener, id, flags, &format!("{value}\n")).into();
        }
        match (paths::device(&path), wish) {
            (Some(number), Wish::Open(flags)) => self.open(id, call, number, flags).into(),
            (None, Wish::Open(flags)) if path == paths::RDMA_CM => {
                self.open_connections(id, call, flags).into()
            }
            _ => files::answer(&self.listener, id, call, &self.tree, &path, wish).into(),
        }
    }

    /// Returns the value of the counter whose file has this path.
    fn counter(&self, path: &str) -> Option<u64> {
        let (adapter, name) = paths::counter(path)?;
        let device = self.devices.iter().find(|device| device.name() == adapter)?;
        let values = device.driver().adapter().stats().values();
        STAT_NAMES.iter().zip(values).find_map(|(known, value)| (*known == name).then_some(value))
    }

    /// Opens a file of the adapters to which a link of `/proc` leads. That is another file, as with
    /// the kernel's: the end of one is not the end of the other. `None` if the link leads
    /// elsewhere.
    fn open_again(&mut self, id: Id, call: &Call, link: Link, flags: i32) -> Option<Answer> {
        let process = link.process.map_or(call.thread, Pid::from_raw);
        let file = task::file(process, link.descriptor).ok()?;
        match self.files.device(file) {
            Some(number) => Some(self.open(id, call, number, flags).into()),
            None if self.connections.file(file).is_some() => {
                Some(self.open_connections(id, call, flags).into())
            }
            None => None,
        }
    }

    /// Opens the device file of the adapter with this number, with these flags of `open(2)`.
    fn open(&mut self, id: Id, call: &Call, number: usize, flags: i32) -> Result<Answer, Errno> {
        let device = self.devices.get(number).ok_or(Errno::NOENT)?;
        let (file, theirs) = self.files.open(device)?;
        let given = self.give(id, call, theirs.as_fd(), flags);
        given.inspect_err(|_| self.files.close(file))
    }

    /// Opens the connection manager, with these flags of `open(2)`.
    fn open_connections(&mut self, id: Id, call: &Call, flags: i32) -> Result<Answer, Errno> {
        let path = self.tree.place("/pipe");
        let nonblocking = flags & libc::O_NONBLOCK != 0;
        let (file, theirs) = self.connections.open(&path, nonblocking)?;
        let pipe = self.connections.file(file).ok_or(Errno::IO)?.pipe();
        let given = self
            .files
            .add_other(pipe, file)
            .and_then(|()| self.give(id, call, theirs.as_fd(), flags));
        given.inspect_err(|_| self.connections.close(file))
    }

    /// Gives a process a descriptor among those of device files.
    fn give(&self, id: Id, call: &Call, file: BorrowedFd<'_>, flags: i32) -> Result<Answer, Errno> {
        let given = task::free_descriptor(call.thread, self.first_descriptor)
            .and_then(|at| self.listener.answer_at(id, file, at, flags));
        match given {
            Ok(_) => Ok(Answer::Given),
            // The process may not have so high a descriptor.
            Err(Errno::BADF) => Err(Errno::MFILE),
            Err(error) => Err(error),
        }
    }

    /// Answers a system call about the attributes of a descriptor, which may be a device file.
    fn descriptor(&self, id: Id, call: &Call, descriptor: i32, wish: Wish) -> Answer {
        let Ok(file) = task::file(call.thread, descriptor) else { return Answer::Continue };
        let (path, number) = match (self.files.device(file), self.connections.file(file)) {
            (Some(number), _) => {
                let path = format!("/dev/infiniband/uverbs{number}");
                (path, u32::try_from(number).ok().map(DeviceNumber::adapter))
            }
            (None, Some(_)) => (paths::RDMA_CM.to_owned(), Some(DeviceNumber::RDMA_CM)),
            (None, None) => return Answer::Continue,
        };
        let place = self.tree.place(&path);
        let Ok(metadata) = std::fs::metadata(place) else { return Answer::Failed(Errno::IO) };
        let (addr, bytes) = match wish {
            Wish::Stat(addr) => (addr, stat::stat(&metadata, number)),
            Wish::Statx(addr) => (addr, stat::statx(&metadata, number)),
            _ => return Answer::Continue,
        };
        files::store(&self.listener, id, call, addr, &bytes).map(|()| Answer::Value(0)).into()
    }

    /// Executes a command that a program writes to the connection manager.
    fn write(&mut self, id: Id, call: &Call) -> Answer {
        let Ok(file) = task::file(call.thread, call.descriptor(0)) else { return Answer::Continue };
        if self.connections.file(file).is_none() {
            return Answer::Continue;
        }
        let answer = connections::write(&mut self.connections, &self.listener, id, call, file);
        if self.connections.has_waits() {
            connections::deliver(&mut self.connections, &self.listener);
        }
        answer.into()
    }

    /// Executes a request to a device file.
    fn ioctl(&mut self, id: Id, call: &Call) -> Answer {
        let Ok(file) = task::file(call.thread, call.descriptor(0)) else { return Answer::Continue };
        if self.files.device(file).is_none() {
            return Answer::Continue;
        }
        match self.request(id, call, file) {
            Err(ASKED) if self.deferred.add(id, *call, file) => Answer::Given,
            Err(ASKED) => Answer::Failed(Errno::TIMEDOUT),
            done => done.map(|()| Answer::Value(0)).into(),
        }
    }

    /// Executes requests again that wait for the addresses of peers, if it is time or if addresses
    /// have become known.
    fn try_again(&mut self) {
        let Some(device) = self.devices.first() else { return };
        for waiting in self.deferred.take(device.neighbors().generation()) {
            let done = match self.request(waiting.id, &waiting.call, waiting.file) {
                Err(ASKED) if !waiting.is_over(Instant::now()) => {
                    self.deferred.put_back(waiting);
                    continue;
                }
                Err(ASKED) => Err(Errno::TIMEDOUT),
                done => done.map(|()| Answer::Value(0)),
            };
            let _gone = self.listener.answer(waiting.id, done.into());
        }
    }

    /// Returns how long to wait for system calls: until there is something to do without them, and
    /// not long if threads wait for events, because they may have to handle signals.
    fn timeout(&self, next_look: Instant) -> PollTimeout {
        let until = |time: Instant| time.saturating_duration_since(Instant::now());
        let look = self.connections.has_waits().then_some(next_look);
        let times = look.into_iter().chain(self.deferred.next()).map(until);
        let until = times.chain(self.connections.idle()).min();
        until.map_or(PollTimeout::NONE, |until| {
            let milliseconds = u16::try_from(until.as_millis() + 1).unwrap_or(u16::MAX);
            PollTimeout::from(milliseconds)
        })
    }

    fn request(&mut self, id: Id, call: &Call, file: task::FileId) -> Result<(), Errno> {
        let process = task::process(call.thread)?;
        let listener = &self.listener;
        if !listener.is_waiting(id) {
            return Err(Errno::SRCH);
        }
        let opens = || {
            let space = Space::open(process)?;
            // The number was that of this process when its memory was opened.
            if listener.is_waiting(id) { Ok(space) } else { Err(Errno::SRCH) }
        };
        let (file, number) = self.files.of_process(file, process, opens)?;
        let space = self.spaces.get(number).ok_or(Errno::FAULT)?;
        let caller =
            Caller { listener, id, thread: call.thread, space, number, spaces: &self.spaces };
        dispatch::ioctl(file, &caller, call.arg(2))
    }

    /// Lets a process execute another program. From now on, its number does not lead to the memory
    /// that adapters use.
    fn execute(&self, call: &Call) -> Answer {
        // Without it, adapters could reach the memory of the new program.
        let Ok(process) = task::process(call.thread) else { return Answer::Failed(Errno::AGAIN) };
        let spaces = self.spaces.of(process);
        if !spaces.is_empty() {
            spaces.iter().for_each(|space| space.set_executes());
            self.devices.iter().for_each(|device| device.driver().host().drain());
        }
        Answer::Continue
    }
}

/// Returns whether a file is ready.
fn is_set(flags: PollFlags) -> bool {
    flags.contains(PollFlags::POLLIN)
}
