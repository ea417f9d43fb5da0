//! Open files of the connection manager, and the events in them.
//!
//! A program has the reading end of a named pipe without a name any more: there is a byte in it for
//! each event, so polling is that of the kernel. The supervisor has the pipe open, too, and takes
//! the byte when the program gets the event. A command that does not reach the supervisor fails,
//! because the program cannot write to the pipe.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use super::wire::EventResp;
use crate::descriptors::check_room;
use crate::trap::task::FileId;

/// Maximum number of events of a file that the program has not read.
pub const EVENTS_MAX: usize = 1 << 14;
/// Maximum number of threads that wait for an event of a file.
pub const WAITS_MAX: usize = 1024;

/// An event that the program has not read.
#[derive(Clone, Debug)]
pub struct Pending {
    /// The identifier that counts the event.
    pub owner: u32,
    /// The membership that also counts the event.
    pub group: Option<u32>,
    /// The identifier that is new with the event.
    pub child: Option<u32>,
    /// What the program reads.
    pub resp: EventResp,
}

/// A thread that waits for an event. `T` is what answers it.
#[derive(Clone, Copy, Debug)]
pub struct Wait<T> {
    /// What answers the thread.
    pub by: T,
    /// The address for the event.
    pub response: u64,
    /// Number of bytes at that address.
    pub room: usize,
    /// The number of bytes that the thread has written, which is the answer.
    pub written: u64,
}

/// An open file.
#[derive(Debug)]
pub struct CmFile<T> {
    pipe: File,
    id: FileId,
    events: VecDeque<Pending>,
    /// The threads that wait, the first one first.
    pub waits: VecDeque<Wait<T>>,
    /// The number of identifiers of the file.
    pub ids: usize,
}

impl<T> CmFile<T> {
    /// Opens a file, with a pipe that has this path for a moment. Also returns the descriptor for
    /// the program.
    ///
    /// # Errors
    /// `EMFILE`, and the error of making the pipe.
    pub fn open(path: &Path, nonblocking: bool) -> Result<(Self, OwnedFd), Errno> {
        let rights = nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR;
        nix::unistd::mkfifo(path, rights)
            .map_err(|error| Errno::from_raw_os_error(error as i32))?;
        let open = |flags| open(path, OFlags::CLOEXEC | flags, Mode::empty());
        let blocking = if nonblocking { OFlags::NONBLOCK } else { OFlags::empty() };
        // It has a writer, so opening it for reading does not wait.
        let both = open(OFlags::RDWR | OFlags::NONBLOCK)
            .and_then(|ours| Ok((ours, open(OFlags::RDONLY | blocking)?)));
        let _removed = std::fs::remove_file(path);
        let (ours, theirs) = both?;
        check_room(&ours)?;
        let id = FileId::of(&ours)?;
        let (events, waits) = (VecDeque::new(), VecDeque::new());
        Ok((Self { pipe: File::from(ours), id, events, waits, ids: 0 }, theirs))
    }

    /// Returns the identity of the file.
    #[must_use]
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Returns the pipe.
    #[must_use]
    pub fn pipe(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// Adds an event. Returns false if there is no room for it.
    pub fn push(&mut self, event: Pending) -> bool {
        let room = self.events.len() < EVENTS_MAX;
        if room {
            self.events.push_back(event);
            // There is room for more bytes than events.
            let _full = (&self.pipe).write(&[1]);
        }
        room
    }

    /// Returns the next event.
    #[must_use]
    pub fn first(&self) -> Option<&Pending> {
        self.events.front()
    }

    /// Takes the next event.
    pub fn pop(&mut self) -> Option<Pending> {
        let event = self.events.pop_front()?;
        self.take_bytes(1);
        Some(event)
    }

    /// Takes events back that the program has not read.
    pub fn take_back(&mut self, is_it: impl Fn(&Pending) -> bool) -> Vec<Pending> {
        if !self.events.iter().any(&is_it) {
            return Vec::new();
        }
        let (taken, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.events).into_iter().partition(is_it);
        self.events = kept.into();
        self.take_bytes(taken.len());
        taken
    }

    fn take_bytes(&self, count: usize) {
        let mut bytes = vec![0; count];
        // The program may have taken some.
        let _fewer = (&self.pipe).read(&mut bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(owner: u32) -> Pending {
        Pending { owner, group: None, child: None, resp: EventResp::default() }
    }

    fn is_readable(file: &OwnedFd) -> bool {
        let mut ready = [nix::poll::PollFd::new(file.as_fd(), nix::poll::PollFlags::POLLIN)];
        nix::poll::poll(&mut ready, nix::poll::PollTimeout::ZERO) == Ok(1)
    }

    #[test]
    fn a_file_is_readable_as_long_as_it_has_events() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut file, theirs) =
            CmFile::<()>::open(&folder.path().join("pipe"), true).expect("a pipe");
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
        assert!(!is_readable(&theirs));
        [1, 2, 1, 3].into_iter().for_each(|owner| assert!(file.push(event(owner))));
        assert_eq!(file.take_back(|event| event.owner == 1).len(), 2);
        assert!(is_readable(&theirs));
        assert_eq!(file.pop().map(|event| event.owner), Some(2));
        assert!(is_readable(&theirs));
        assert_eq!(file.pop().map(|event| event.owner), Some(3));
        assert!(!is_readable(&theirs) && file.pop().is_none());
    }

    #[test]
    fn events_are_limited() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut file, _theirs) =
            CmFile::<()>::open(&folder.path().join("pipe"), false).expect("a pipe");
        assert_eq!((0..2 * EVENTS_MAX).filter(|_| file.push(event(1))).count(), EVENTS_MAX);
    }
}
