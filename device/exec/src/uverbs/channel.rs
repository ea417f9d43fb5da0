//! Files from which programs read events. A program has one end of a pair of sockets that keeps
//! the limits of records, so reading, polling and waiting are those of the kernel.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};

use super::process::Process;
use crate::descriptors::check_room;
use crate::trap::task::FileId;

/// Maximum number of records that wait because the program does not read them.
const WAITING_MAX: usize = 1 << 16;

/// A pair of sockets. The supervisor keeps a copy of the program's end, to take back records that
/// the program has not read.
#[derive(Debug)]
pub struct Channel {
    ours: OwnedFd,
    theirs: OwnedFd,
    waiting: Mutex<VecDeque<[u8; 16]>>,
    /// Number of bytes of a record.
    len: usize,
}

impl Channel {
    /// Creates a pair for records of `len` bytes, 8 or 16, and gives a process its end. Returns the
    /// descriptor there, too.
    ///
    /// # Errors
    /// `EMFILE` if this or the other process has too many files.
    pub fn create(process: &dyn Process, len: usize) -> Result<(Self, u32), Errno> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        check_room(&ours).and_then(|()| check_room(&theirs))?;
        let descriptor = process.give(theirs.as_fd())?;
        let descriptor = u32::try_from(descriptor).map_err(|_| Errno::MFILE)?;
        Ok((Self { ours, theirs, waiting: Mutex::default(), len }, descriptor))
    }

    /// Returns the identity of the program's end.
    ///
    /// # Errors
    /// The error of fstat.
    pub fn id(&self) -> Result<FileId, Errno> {
        FileId::of(&self.theirs)
    }

    /// Sends a record. Returns false if it is lost, because the program does not read.
    pub fn push(&self, record: [u8; 16]) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.is_empty() {
            match self.send(&record) {
                Err(Errno::AGAIN) => {}
                sent => return sent.is_ok(),
            }
        }
        let room = waiting.len() < WAITING_MAX;
        if room {
            waiting.push_back(record);
        }
        room
    }

    /// Returns whether records wait.
    #[must_use]
    pub fn waits(&self) -> bool {
        !self.waiting.lock().is_empty()
    }

    /// Sends records that wait. Returns whether some still wait.
    pub fn retry(&self) -> bool {
        let mut waiting = self.waiting.lock();
        while let Some(record) = waiting.front() {
            match self.send(record) {
                Err(Errno::AGAIN) => return true,
                _ => drop(waiting.pop_front()),
            }
        }
        false
    }

    fn send(&self, record: &[u8; 16]) -> Result<(), Errno> {
        let bytes = record.get(..self.len).unwrap_or(record);
        send(&self.ours, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).map(drop)
    }

    /// Takes back the records of an object that the program has not read, as the kernel does when
    /// the object is destroyed (`ib_uverbs_release_ucq` in drivers/infiniband/core/uverbs_main.c).
    /// Returns their number.
    pub fn take_back(&self, element: u64) -> u32 {
        let mut waiting = self.waiting.lock();
        let mut unread = VecDeque::new();
        let mut record = [0; 16];
        while let Ok((_, len)) = recv(&self.theirs, &mut record, RecvFlags::DONTWAIT) {
            if len == 0 {
                break;
            }
            unread.push_back(std::mem::take(&mut record));
        }
        unread.append(&mut waiting);
        let before = unread.len();
        unread.retain(|record| record.first_chunk() != Some(&element.to_le_bytes()));
        let taken = before - unread.len();
        *waiting = unread;
        drop(waiting);
        let _waits = self.retry();
        u32::try_from(taken).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{BorrowedFd, RawFd};

    use super::*;

    /// A process that keeps no descriptor.
    struct Nobody;

    impl Process for Nobody {
        fn read(&self, _: u64, _: &mut [u8]) -> Result<(), Errno> {
            Err(Errno::FAULT)
        }
        fn write(&self, _: u64, _: &[u8]) -> Result<(), Errno> {
            Err(Errno::FAULT)
        }
        fn place(
            &self,
            _: u64,
            _: u64,
            _: bool,
        ) -> Result<crate::memory::spaces::Placement, Errno> {
            Err(Errno::FAULT)
        }
        fn file(&self, _: i32) -> Result<FileId, Errno> {
            Err(Errno::BADF)
        }
        fn give(&self, _: BorrowedFd<'_>) -> Result<RawFd, Errno> {
            Ok(7)
        }
    }

    fn record(element: u64) -> [u8; 16] {
        u128::from(element).to_le_bytes()
    }

    fn read(channel: &Channel) -> Option<u64> {
        let mut record = [0; 16];
        recv(&channel.theirs, &mut record, RecvFlags::DONTWAIT).ok()?;
        record.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }

    #[test]
    fn unread_records_of_an_object_are_taken_back_and_others_stay_in_order() {
        let (channel, descriptor) = Channel::create(&Nobody, 8).expect("a pair");
        assert_eq!(descriptor, 7);
        [1, 2, 1, 3, 2].into_iter().for_each(|element| assert!(channel.push(record(element))));
        assert_eq!(read(&channel), Some(1));
        assert_eq!(channel.take_back(1), 1);
        let rest: Vec<_> = std::iter::from_fn(|| read(&channel)).collect();
        assert_eq!(rest, [2, 3, 2]);
    }

    #[test]
    fn records_wait_for_a_slow_reader_up_to_a_limit() {
        let (channel, _) = Channel::create(&Nobody, 16).expect("a pair");
        let sent = (0..2 * WAITING_MAX as u64).take_while(|n| channel.push(record(*n))).count();
        assert!((WAITING_MAX..2 * WAITING_MAX).contains(&sent), "{sent}");
        for expected in 0..sent as u64 {
            let _waits = channel.retry();
            assert_eq!(read(&channel), Some(expected));
        }
        assert_eq!(read(&channel), None);
    }
}
