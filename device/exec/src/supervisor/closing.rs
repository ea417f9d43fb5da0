//! The end of device files. The kernel reports when the last descriptor and the last mapping of an
//! open file are gone (`IN_CLOSE_WRITE` and `IN_CLOSE_NOWRITE` of inotify(7)), also if that is
//! because a process has died.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::inotify;
use rustix::io::Errno;

use crate::trap::task::FileId;

/// The files whose end is awaited.
#[derive(Debug)]
pub struct Closing {
    events: OwnedFd,
    files: HashMap<i32, FileId>,
}

impl AsFd for Closing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

impl Closing {
    /// Awaits no file yet.
    ///
    /// # Errors
    /// `EMFILE` if the user has too many of them.
    pub fn new() -> Result<Self, Errno> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        Ok(Self { events: inotify::init(flags)?, files: HashMap::new() })
    }

    /// Awaits the end of a file that programs get, for writing or only for reading.
    ///
    /// # Errors
    /// `ENOSPC` if the user awaits too many.
    pub fn add(&mut self, file: BorrowedFd<'_>, id: FileId, writes: bool) -> Result<(), Errno> {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let [written, read] =
            [inotify::WatchFlags::CLOSE_WRITE, inotify::WatchFlags::CLOSE_NOWRITE];
        let ends = if writes { written } else { read };
        let watch = inotify::add_watch(&self.events, path, ends)?;
        self.files.insert(watch, id);
        Ok(())
    }

    /// Returns the files that have ended.
    pub fn ended(&mut self) -> Vec<FileId> {
        let mut ended = Vec::new();
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.events, &mut room);
        while let Ok(event) = events.next() {
            let watch = event.wd();
            let ends = inotify::ReadFlags::CLOSE_WRITE | inotify::ReadFlags::CLOSE_NOWRITE;
            if event.events().intersects(ends)
                && let Some(id) = self.files.remove(&watch)
            {
                let _removed = inotify::remove_watch(&self.events, watch);
                ended.push(id);
            }
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create, open};

    use super::*;

    #[test]
    fn a_file_ends_with_its_last_descriptor_and_its_last_mapping() {
        let ours = memfd_create("test", MemfdFlags::CLOEXEC).expect("a file");
        rustix::fs::ftruncate(&ours, 4096).expect("a length");
        let id = FileId::of(&ours).expect("an identity");
        let path = format!("/proc/self/fd/{}", ours.as_raw_fd());
        let theirs = open(path, OFlags::RDWR, Mode::empty()).expect("a descriptor");
        let mut closing = Closing::new().expect("room");
        closing.add(ours.as_fd(), id, true).expect("room");
        let mapping = vrnic_queues::mapping::Mapping::device(theirs.as_fd(), 0, 4096);
        let copy = theirs.try_clone().expect("a descriptor");
        drop(theirs);
        drop(copy);
        assert_eq!(closing.ended(), []);
        drop(mapping);
        // The kernel reports it when the last reference goes, which is not at once.
        let ended = (0..1000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            Some(closing.ended()).filter(|ended| !ended.is_empty())
        });
        assert_eq!(ended, Some(vec![id]));
    }
}
