//! Code that the tests share. Not every test uses all of it.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`world`] | two functions, in one daemon or in two, and the command `vrnic` |
//! | [`joined`] | two daemons that are joined by an uplink |
//! | [`switch`] | daemons whose switches have uplinks and ports |
//! | [`trunk`] | a hostile daemon's end of a trunk |
//! | [`ethernet`] | frames on the sockets of netdevs |
//! | [`namespace`] | network namespaces, for tests with interfaces of the kernel |
//! | [`capture`] | captures by `vrnic pcap`, and the packets in their files |
#![allow(dead_code)]

pub(crate) mod capture;
pub(crate) mod ethernet;
pub(crate) mod joined;
pub(crate) mod namespace;
pub(crate) mod switch;
pub(crate) mod trunk;
pub(crate) mod world;

use std::path::Path;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use vrnic_abi::cq::Status;
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::vmm::daemon::Daemon;
use vrnic_testdriver::vmm::vfio::{Endpoint, Guest};
use vrnic_testdriver::wr::Wr;

/// Starts a daemon with this number of functions.
pub(crate) fn start(functions: usize) -> Daemon {
    start_with(functions, &[])
}

/// Starts a daemon with further arguments.
pub(crate) fn start_with(functions: usize, args: &[&str]) -> Daemon {
    Daemon::start(Path::new(env!("CARGO_BIN_EXE_vrnicd")), functions, args).expect("vrnicd starts")
}

/// Returns the guests of functions 0 and 1, ready for commands.
pub(crate) fn pair(daemon: &Daemon) -> [Guest; 2] {
    [0, 1].map(|index| daemon.ready_guest(index))
}

/// Returns bytes that repeat after a long period and differ by `seed`.
pub(crate) fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31 + seed * 101) % 253) as u8).collect()
}

/// Checks that a pair of connected endpoints moves data.
pub(crate) fn still_works(a: &mut Endpoint, b: &Endpoint) {
    let data = pattern(5000, 9);
    a.fill(0, &data);
    b.fill(0, &[0; 5000]);
    let write = Wr::new(Opcode::Write, &[a.sge(0, 5000)]).id(77).to(b.buffer, b.key);
    a.run_expecting(&write, Status::Success);
    assert!(b.bytes(0, 5000) == data);
}

/// A transfer of `len` bytes between offsets of two buffers.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) len: usize,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// Writes to b and reads from it. Checks every byte.
pub(crate) fn write_and_read(a: &mut Endpoint, b: &Endpoint, span: Span) {
    let Span { len, from, to } = span;
    let data = pattern(len, 1);
    a.fill(from, &data);
    b.fill(to, &vec![0; len + 1]);
    let write = Wr::new(Opcode::Write, &[a.sge(from, len as u32)]).to(b.buffer + to, b.key);
    a.run_expecting(&write, Status::Success);
    assert!(b.bytes(to, len) == data, "WRITE of {len} bytes");
    assert_eq!(b.bytes(to + len as u64, 1), [0], "beyond {len} bytes");
    let back = pattern(len, 2);
    b.fill(to, &back);
    let read = Wr::new(Opcode::Read, &[a.sge(from, len as u32)]).to(b.buffer + to, b.key);
    let cqe = a.run_expecting(&read, Status::Success);
    assert_eq!(cqe.byte_len.get(), len as u32);
    assert!(a.bytes(from, len) == back, "READ of {len} bytes");
}

/// Returns endpoints with a connection between them.
pub(crate) fn connected(guests: &[Guest; 2], setup: Setup) -> [Endpoint; 2] {
    let ends = guests.each_ref().map(|guest| Endpoint::new(guest, setup));
    Endpoint::connect_pair(&ends[0], &ends[1]);
    ends
}

/// Returns the number of descriptors that the daemon has open.
pub(crate) fn descriptors(daemon: &Daemon) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).expect("descriptors").count()
}

/// Sets the maximum number of the daemon's descriptors, or no limit. Returns the former limit.
pub(crate) fn limit_descriptors(daemon: &Daemon, current: Option<u64>) -> Option<u64> {
    let pid = Pid::from_raw(daemon.pid().cast_signed()).expect("a process");
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let limit = Rlimit { current, maximum };
    prlimit(Some(pid), Resource::Nofile, limit).expect("limit of the daemon").current
}
