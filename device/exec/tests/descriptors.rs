//! Programs that open all that they can: the supervisor keeps descriptors for its own work. This is
//! a program of its own, because it lowers the limit of open files.
#![forbid(unsafe_code)]

use std::fs::File;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit, setrlimit};
use vrnic_exec::adapter::driver::Driver;
use vrnic_exec::adapter::host::{ProcessHost, system_clock};
use vrnic_exec::memory::space::Space;
use vrnic_exec::memory::spaces::Placement;
use vrnic_exec::trap::task::FileId;
use vrnic_exec::uverbs::channel::Channel;
use vrnic_exec::uverbs::device::Device;
use vrnic_exec::uverbs::file::OpenFile;
use vrnic_exec::uverbs::process::Process;
use vrnic_packet::MacAddr;

/// A program that closes each descriptor that it gets.
struct Closing;

impl Process for Closing {
    fn read(&self, _: u64, _: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::FAULT)
    }
    fn write(&self, _: u64, _: &[u8]) -> Result<(), Errno> {
        Err(Errno::FAULT)
    }
    fn place(&self, _: u64, _: u64, _: bool) -> Result<Placement, Errno> {
        Err(Errno::FAULT)
    }
    fn file(&self, _: i32) -> Result<FileId, Errno> {
        Err(Errno::BADF)
    }
    fn give(&self, _: BorrowedFd<'_>) -> Result<RawFd, Errno> {
        Ok(100)
    }
}

fn device() -> Arc<Device> {
    let host = ProcessHost::new(&Arc::default(), &Arc::default(), system_clock()).expect("memory");
    let mac = MacAddr([2, 0, 0, 0, 0, 1]);
    let driver =
        Driver::new("vrnic0", mac, host, Driver::most(), &Arc::default()).expect("an adapter");
    let (neighbors, routes) = (Arc::default(), Arc::default());
    Arc::new(Device::new(&Arc::from([driver]), 0, vec![[1; 16]], &neighbors, &routes))
}

#[test]
fn the_supervisor_keeps_descriptors_for_its_own_work() {
    let device = device();
    let (mut file, _theirs) = OpenFile::open(&device).expect("a file");
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(256);
    setrlimit(Resource::Nofile, limit).expect("a lower limit");
    let mut kept = Vec::new();
    let mut channels = || file.add_channel(|| Channel::create(&Closing, 8));
    let refused = std::iter::repeat_with(&mut channels).take(1000).find_map(Result::err);
    assert_eq!(refused, Some(Errno::MFILE));
    let files = || OpenFile::open(&device);
    let refused = std::iter::repeat_with(files).take(1000).find_map(|opened| match opened {
        Ok((file, _theirs)) => {
            kept.push(file);
            None
        }
        Err(error) => Some(error),
    });
    assert_eq!(refused, Some(Errno::MFILE));
    assert_eq!(Space::open(nix::unistd::Pid::this()).err(), Some(Errno::MFILE));
    let own: Vec<_> = (0..32).map(|_| File::open("/proc/self/maps")).collect();
    assert!(own.iter().all(Result::is_ok), "it cannot read what it needs to answer");
}
