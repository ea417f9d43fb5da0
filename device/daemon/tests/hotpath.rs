//! The data path makes no allocation and no system call.
//!
//! Shows: cost

mod common;

use std::alloc::System;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Parser;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use vrnic_abi::sq::Opcode;
use vrnic_device::cli::Args;
use vrnic_device::config::Config;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::vmm::vfio::{Endpoint, Guest};
use vrnic_testdriver::wr::Wr;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const LIMIT: Duration = Duration::from_secs(20);
/// Number of operations of each kind.
const ROUNDS: u32 = 20_000;
/// Number of them after which allocations are counted.
const PART: u32 = 200;

/// The tests share an allocator, so only one of them may run at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Two connected endpoints, and a WQE of each kind.
struct Traffic {
    a: Endpoint,
    b: Endpoint,
    wqes: [Vec<u8>; 4],
}

impl Traffic {
    fn new(guests: &[Guest; 2], in_device: bool) -> Self {
        let setup = Setup { log_stride: 7, in_device, ..Setup::default() };
        let [a, b] = common::connected(guests, setup);
        let far = |opcode| Wr::new(opcode, &[]).to(b.buffer, b.key);
        let data = |wr: Wr, len| Wr { sges: vec![a.sge(0, len)], ..wr }.encode();
        let wqes = [
            data(far(Opcode::Write), 64),
            data(far(Opcode::Read), 8192),
            data(far(Opcode::Write), 100_000),
            data(Wr::new(Opcode::Send, &[]), 64),
        ];
        Self { a, b, wqes }
    }

    /// Executes one operation of each kind.
    fn round(&mut self) {
        let Self { a, b, wqes } = self;
        let buffer = b.sge(4096, 4096);
        b.post_recv(1, &[buffer]);
        for wqe in wqes {
            a.store_encoded(wqe);
            a.ring();
            let start = Instant::now();
            while !a.send_cq.ready() {
                std::hint::spin_loop();
                assert!(start.elapsed() < LIMIT, "no completion");
            }
            a.send_cq.poll_success();
        }
        b.recv_cq.poll_success();
    }
}

#[test]
fn a_copy_allocates_nothing() {
    nothing_is_allocated("copy", ROUNDS);
}

#[test]
fn packets_allocate_nothing() {
    nothing_is_allocated("wire", ROUNDS / 10);
}

/// The daemon runs in this process, whose allocator counts.
fn nothing_is_allocated(fabric: &str, rounds: u32) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("folder");
    let at = folder.path().display();
    let function = |n: u32| format!("name=f{n},mac=52:54:00:00:00:0{n},socket={at}/{n}.sock");
    let functions = ["--function", &function(0), "--function", &function(1)];
    let args = [&["vrnicd", "--fabric", fabric], &functions[..]].concat();
    let config = Config::new(Args::parse_from(args).settings, None).expect("settings");
    let _daemon = vrnic_device::daemon::Daemon::start(&config).expect("daemon");
    let guests = [0u8, 1].map(|n| {
        let socket = folder.path().join(format!("{n}.sock"));
        let guest = Guest::connect(&socket, [0x52, 0x54, 0, 0, 0, n]).expect("connected");
        guest.bring_up();
        guest
    });
    for in_device in [false, true] {
        let mut traffic = Traffic::new(&guests, in_device);
        (0..100).for_each(|_| traffic.round());
        let mut allocations = || {
            let region = Region::new(ALLOCATOR);
            (0..PART).for_each(|_| traffic.round());
            let change = region.change();
            change.allocations + change.reallocations
        };
        // Other threads of the daemon allocate some times in a second, whatever the rounds take. If
        // the hot path allocated, it would do so in each round.
        let least = (0..rounds / PART).map(|_| allocations()).min().expect("a part");
        assert!(least < PART as usize / 2, "{least} allocations in {PART} rounds");
    }
}

/// A tracer stops the worker at each system call.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_kernel_is_not_called() {
    use nix::libc;

    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let daemon = common::start(2);
    let guests = common::pair(&daemon);
    let mut traffic = Traffic::new(&guests, false);
    (0..100).for_each(|_| traffic.round());
    // An idle worker may read the load of the machine, sleep, and read the eventfd that has woken
    // it. A busy one may read its thread's time for some polls, after one that seemed very long,
    // which each stop by the tracer makes it seem.
    let resting = [
        libc::SYS_clock_gettime,
        libc::SYS_read,
        libc::SYS_nanosleep,
        libc::SYS_clock_nanosleep,
        libc::SYS_poll,
        libc::SYS_ppoll,
        libc::SYS_pread64,
        libc::SYS_restart_syscall,
    ];
    let worker = tracer::thread_named(daemon.pid(), "worker-0");
    let calls = tracer::system_calls(worker, || (0..ROUNDS / 10).for_each(|_| traffic.round()));
    // If functions exchange packets, a worker's last look before its sleep may pass a frame on,
    // which wakes the same worker by a write.
    let packets = std::env::var("VRNIC_FABRIC").is_ok_and(|fabric| fabric == "wire");
    let expected = |call: &i64| resting.contains(call) || packets && *call == libc::SYS_write;
    let others: BTreeSet<_> = calls.iter().filter(|call| !expected(call)).collect();
    assert!(others.is_empty(), "system calls: {others:?}");
    // This checks that the tracer sees system calls: when it reports an event, the worker signals
    // an eventfd.
    let calls = tracer::system_calls(worker, || {
        for _ in 0..10 {
            traffic.a.send_cq.arm(vrnic_abi::uar::ARM_NEXT);
            traffic.round();
        }
    });
    assert!(calls.contains(&libc::SYS_io_submit), "no event was reported");
}

/// Stops a thread at each of its system calls.
#[cfg(target_arch = "x86_64")]
mod tracer {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use nix::sys::ptrace::{self, Options};
    use nix::sys::signal::Signal;
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    use nix::unistd::Pid;

    /// Returns the thread of process `pid` with this name.
    pub(super) fn thread_named(pid: u32, name: &str) -> Pid {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads");
        let named = |path: &std::path::PathBuf| {
            std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name)
        };
        let found = tasks.filter_map(Result::ok).map(|task| task.path()).find(named);
        let number = found.and_then(|path| path.file_name()?.to_str()?.parse().ok());
        Pid::from_raw(number.expect("the thread"))
    }

    /// Returns the system calls that `thread` begins while `run` runs.
    pub(super) fn system_calls(thread: Pid, run: impl FnOnce()) -> Vec<i64> {
        let (stop, ready) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            // Only the thread that has attached the tracer may wait for the traced thread.
            let tracer = scope.spawn(|| trace(thread, &ready, &stop));
            while !ready.load(Ordering::Acquire) && !tracer.is_finished() {
                std::thread::yield_now();
            }
            run();
            stop.store(true, Ordering::Release);
            tracer.join().expect("tracer")
        })
    }

    fn trace(thread: Pid, ready: &AtomicBool, stop: &AtomicBool) -> Vec<i64> {
        ptrace::seize(thread, Options::PTRACE_O_TRACESYSGOOD).expect("attach");
        ptrace::interrupt(thread).expect("first stop");
        let mut calls = Vec::new();
        let mut inside = false;
        let mut asked = false;
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::__WALL;
        loop {
            match waitpid(thread, Some(flags)).expect("wait") {
                WaitStatus::StillAlive if stop.load(Ordering::Acquire) && !asked => {
                    ptrace::interrupt(thread).expect("last stop");
                    asked = true;
                }
                WaitStatus::StillAlive => std::thread::sleep(Duration::from_micros(20)),
                _ if asked => {
                    ptrace::detach(thread, None::<Signal>).expect("detach");
                    return calls;
                }
                stopped => {
                    if let WaitStatus::PtraceSyscall(_) = stopped {
                        inside = !inside;
                        if inside {
                            let registers = ptrace::getregs(thread).expect("registers");
                            calls.push(registers.orig_rax.cast_signed());
                        }
                    }
                    ptrace::syscall(thread, None::<Signal>).expect("go on");
                    ready.store(true, Ordering::Release);
                }
            }
        }
    }
}
