//! The device files that programs have opened.

use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::unistd::Pid;
use rustix::io::Errno;

use super::closing::Closing;
use crate::memory::space::Space;
use crate::memory::spaces::{Number, Spaces};
use crate::trap::task::FileId;
use crate::uverbs::device::Device;
use crate::uverbs::file::OpenFile;

/// Maximum number of files at a time.
const FILES_MAX: usize = 4096;
/// Maximum number of living processes that make requests to one file.
const PROCESSES_MAX: usize = 256;

/// A device file, and the memory of the processes that have made requests to it.
#[derive(Debug)]
struct Opened {
    file: OpenFile,
    memories: Vec<Number>,
}

/// All files.
#[derive(Debug)]
pub struct Files {
    all: HashMap<FileId, Opened>,
    closing: Closing,
    spaces: Arc<Spaces>,
}

impl Files {
    /// Returns no files, of programs with these memories.
    ///
    /// # Errors
    /// The error of inotify.
    pub fn new(spaces: &Arc<Spaces>) -> Result<Self, Errno> {
        Ok(Self { all: HashMap::new(), closing: Closing::new()?, spaces: Arc::clone(spaces) })
    }

    /// Returns the file on which to wait for [`Self::close_ended`].
    #[must_use]
    pub fn closing(&self) -> &Closing {
        &self.closing
    }

    /// Opens the device file of an adapter. Returns the descriptor for the program.
    ///
    /// # Errors
    /// `EMFILE` if there are too many.
    pub fn open(&mut self, device: &Arc<Device>) -> Result<(FileId, OwnedFd), Errno> {
        if self.all.len() >= FILES_MAX {
            return Err(Errno::MFILE);
        }
        let (file, theirs) = OpenFile::open(device)?;
        let id = file.id();
        self.closing.add(file.memory(), id, true)?;
        self.all.insert(id, Opened { file, memories: Vec::new() });
        Ok((id, theirs))
    }

    /// Returns a file, and the number of the memory of a process. `opens` opens that memory if this
    /// is the first request of the process.
    ///
    /// # Errors
    /// Those of `opens`, and `ENOMEM` if too many processes use the file.
    pub fn of_process(
        &mut self,
        id: FileId,
        process: Pid,
        opens: impl FnOnce() -> Result<Space, Errno>,
    ) -> Result<(&mut OpenFile, Number), Errno> {
        let Self { all, spaces, .. } = self;
        let opened = all.get_mut(&id).ok_or(Errno::BADF)?;
        let is_its = |number: &&Number| {
            spaces.get(**number).is_some_and(|space| space.pid() == process && space.exists())
        };
        let known = opened.memories.iter().find(is_its).copied();
        let number = match known {
            Some(number) => number,
            None => {
                opened.memories.retain(|number| !spaces.free_ended(*number));
                if opened.memories.len() >= PROCESSES_MAX {
                    return Err(Errno::NOMEM);
                }
                let number = spaces.insert(opens()?)?;
                opened.memories.push(number);
                number
            }
        };
        Ok((&mut opened.file, number))
    }

    /// Returns the number of the adapter whose device file this is.
    #[must_use]
    pub fn device(&self, id: FileId) -> Option<usize> {
        self.all.get(&id).map(|opened| opened.file.device().number())
    }

    /// Closes a file that no program has got.
    pub fn close(&mut self, id: FileId) {
        let Some(Opened { file, memories }) = self.all.remove(&id) else { return };
        // The adapter stops using the memory before its number is free.
        drop(file);
        memories.into_iter().for_each(|number| self.spaces.free(number));
    }

    /// Closes the files that programs have closed. Returns those of [`Self::add_other`].
    pub fn close_ended(&mut self) -> Vec<FileId> {
        let (own, others): (Vec<_>, Vec<_>) =
            self.closing.ended().into_iter().partition(|id| self.all.contains_key(id));
        own.into_iter().for_each(|id| self.close(id));
        others
    }

    /// Awaits the end of a file that is no device file, and that programs can only read.
    ///
    /// # Errors
    /// `ENOSPC` if the user awaits too many.
    pub fn add_other(&mut self, file: BorrowedFd<'_>, id: FileId) -> Result<(), Errno> {
        self.closing.add(file, id, false)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use vrnic_packet::MacAddr;

    use super::*;
    use crate::adapter::driver::Driver;
    use crate::adapter::host::{ProcessHost, system_clock};

    #[test]
    fn a_file_serves_any_number_of_processes_one_after_the_other() {
        let spaces = Arc::new(Spaces::default());
        let host = ProcessHost::new(&spaces, &Arc::default(), system_clock()).expect("memory");
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        let driver =
            Driver::new("vrnic0", mac, host, Driver::most(), &Arc::default()).expect("an adapter");
        let drivers = Arc::from([driver]);
        let device = Device::new(&drivers, 0, vec![[1; 16]], &Arc::default(), &Arc::default());
        let mut files = Files::new(&spaces).expect("inotify");
        let (id, _theirs) = files.open(&Arc::new(device)).expect("a file");
        // Regions that they leave behind.
        let mut placements = Vec::new();
        for _ in 0..PROCESSES_MAX + 4 {
            let mut child = Command::new("sleep").arg("60").spawn().expect("a program");
            let pid = Pid::from_raw(i32::try_from(child.id()).expect("a number"));
            let (_, number) = files.of_process(id, pid, || Space::open(pid)).expect("room");
            placements.push(spaces.place(number, 1 << 16).expect("an address"));
            child.kill().and_then(|()| child.wait()).expect("a running process");
        }
        let mut numbers: Vec<_> = placements.iter().map(|placement| placement.addr()).collect();
        numbers.dedup();
        assert_eq!(numbers.len(), placements.len(), "each has a number of its own");
    }
}
