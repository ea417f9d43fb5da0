//! Open files of the connection manager, and the events in them.
//!
//! A program has the reading end of a named pipe without a name any more: there is a byte in it for
//! each event, so polling is that of the kernel. The supervisor has the pipe open, too, and takes
//! the byte when the program gets the event. A command that does not reach the supervisor fails,
//! because the program cannot write to the pipe.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;

use super::wire::EventResp;
use crate::descriptors::check_room;
use crate::trap::task::FileId;

/// Maximum number of events of a file that the program has not read.
pub const EVENTS_MAX: usize = 1 << 14;
/// Maximum number of events of all files that the programs have not read.
pub const ALL_EVENTS_MAX: usize = 1 << 18;
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
    /// The number of events of all files.
    all: Arc<AtomicUsize>,
    /// The threads that wait, the first one first.
    pub waits: VecDeque<Wait<T>>,
    /// The number of identifiers of the file.
    pub ids: usize,
}

impl<T> CmFile<T> {
    /// Opens a file, with a pipe that has this path for a moment. `all` counts the events of all
    /// files. Also returns the descriptor for the program.
    ///
    /// # Errors
    /// `EMFILE`, and the error of making the pipe. `EIO` if another process has put something else
    /// in its place.
    pub fn open(
        path: &Path,
        nonblocking: bool,
        all: &Arc<AtomicUsize>,
    ) -> Result<(Self, OwnedFd), Errno> {
        let rights = nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR;
        // What another process has left there would let this fail for ever.
        let _none = std::fs::remove_file(path);
        nix::unistd::mkfifo(path, rights)
            .map_err(|error| Errno::from_raw_os_error(error as i32))?;
        let ours = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let ours = open(path, ours, Mode::empty());
        let _removed = std::fs::remove_file(path);
        let ours = ours?;
        if FileType::from_raw_mode(fstat(&ours)?.st_mode) != FileType::Fifo {
            return Err(Errno::IO);
        }
        let blocking = if nonblocking { OFlags::NONBLOCK } else { OFlags::empty() };
        // The pipe has a writer, so opening it for reading does not wait. It has this name whatever
        // has the path now.
        let own = format!("/proc/self/fd/{}", ours.as_raw_fd());
        let theirs = open(own, OFlags::RDONLY | OFlags::CLOEXEC | blocking, Mode::empty())?;
        check_room(&ours)?;
        let id = FileId::of(&ours)?;
        let (events, waits, all) = (VecDeque::new(), VecDeque::new(), Arc::clone(all));
        Ok((Self { pipe: File::from(ours), id, events, all, waits, ids: 0 }, theirs))
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
        let room = self.has_room(1);
        if room {
            self.events.push_back(event);
            self.all.fetch_add(1, Ordering::Relaxed);
            // A pipe that is full is readable.
            let _full = (&self.pipe).write(&[1]);
        }
        room
    }

    /// Returns whether there is room for more events.
    #[must_use]
    pub fn has_room(&self, events: usize) -> bool {
        let all = self.all.load(Ordering::Relaxed);
        self.events.len() + events <= EVENTS_MAX && all + events <= ALL_EVENTS_MAX
    }

    /// Counts events that the program has not read.
    #[must_use]
    pub fn count(&self, is_it: impl Fn(&Pending) -> bool) -> usize {
        self.events.iter().filter(|event| is_it(event)).count()
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

    /// Takes the bytes of events that are gone. The pipe stays readable if there are others, also
    /// if it had no room for their bytes, or the program has taken some.
    fn take_bytes(&self, count: usize) {
        self.all.fetch_sub(count, Ordering::Relaxed);
        let mut bytes = vec![0; count];
        let _fewer = (&self.pipe).read(&mut bytes);
        let mut ready = [PollFd::new(self.pipe.as_fd(), PollFlags::POLLIN)];
        if !self.events.is_empty() && poll(&mut ready, PollTimeout::ZERO) == Ok(0) {
            let _written = (&self.pipe).write(&[1]);
        }
    }
}

impl<T> Drop for CmFile<T> {
    fn drop(&mut self) {
        self.all.fetch_sub(self.events.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn event(owner: u32) -> Pending {
        Pending { owner, group: None, child: None, resp: EventResp::default() }
    }

    fn opened(
        folder: &TempDir,
        nonblocking: bool,
        all: &Arc<AtomicUsize>,
    ) -> (CmFile<()>, OwnedFd) {
        CmFile::open(&folder.path().join("pipe"), nonblocking, all).expect("a pipe")
    }

    fn is_readable(file: &OwnedFd) -> bool {
        let mut ready = [PollFd::new(file.as_fd(), PollFlags::POLLIN)];
        poll(&mut ready, PollTimeout::ZERO) == Ok(1)
    }

    #[test]
    fn a_file_is_readable_as_long_as_it_has_events() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut file, theirs) = opened(&folder, true, &Arc::default());
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
        let (mut file, _theirs) = opened(&folder, false, &Arc::default());
        assert_eq!((0..2 * EVENTS_MAX).filter(|_| file.push(event(1))).count(), EVENTS_MAX);
    }

    #[test]
    fn the_events_of_all_files_are_limited() {
        let folder = tempfile::tempdir().expect("a folder");
        let all = Arc::default();
        let mut files: Vec<_> = (0..17).map(|_| opened(&folder, true, &all)).collect();
        let full = |file: &mut CmFile<()>| (0..EVENTS_MAX).filter(|_| file.push(event(1))).count();
        let pushed: usize = files.iter_mut().map(|(file, _)| full(file)).sum();
        assert_eq!(pushed, ALL_EVENTS_MAX);
        files.remove(0);
        let (last, _theirs) = files.last_mut().expect("a file");
        assert_eq!(full(last), EVENTS_MAX);
    }

    #[test]
    fn a_file_is_readable_if_the_program_has_read_from_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut file, theirs) = opened(&folder, true, &Arc::default());
        (0..3).for_each(|_| assert!(file.push(event(1))));
        assert_eq!(rustix::io::read(&theirs, &mut [0; 8]), Ok(3));
        assert!(file.pop().is_some() && is_readable(&theirs));
    }

    #[test]
    fn what_is_in_the_place_of_the_pipe_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("pipe"), "").expect("a file");
        let (mut file, theirs) = opened(&folder, true, &Arc::default());
        assert!(file.push(event(1)) && is_readable(&theirs));
    }
}
