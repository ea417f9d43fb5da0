//! Memory that a program has not mapped under a key: an access fails, does not touch other memory,
//! and the supervisor goes on.
#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::ops::Range;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use nix::unistd::Pid;
use vrnic_abi::GuestAddr;
use vrnic_adapter::host::{CopyFault, GuestMemory, HeldMemory, Lane, Place};
use vrnic_exec::adapter::host::{ProcessHost, system_clock};
use vrnic_exec::memory::space::Space;
use vrnic_exec::memory::spaces::{Number, Spaces};

/// Number of bytes before the heap that are not mapped, at least.
const GAP: usize = 64 << 10;

/// A program that waits, whose heap has nothing mapped before and behind it.
struct Program {
    child: Child,
    heap: Range<u64>,
}

impl Program {
    fn new() -> Self {
        // The kernel puts the heap at a random place, which may be next to other memory.
        std::iter::repeat_with(Self::start).flatten().next().expect("a program")
    }

    /// Starts the program. Returns none if its heap is next to other memory.
    fn start() -> Option<Self> {
        let mut command = Command::new("cat");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cat");
        let mut this = Self { child, heap: 0..0 };
        // When it answers, it has all the memory that it needs.
        let (to, from) = (this.child.stdin.as_mut(), this.child.stdout.as_mut());
        to.expect("a pipe").write_all(b"x").expect("a reader");
        from.expect("a pipe").read_exact(&mut [0]).expect("an answer");
        let maps = format!("/proc/{}/maps", this.child.id());
        let text = std::fs::read_to_string(maps).expect("its memory");
        let mut before = 0;
        let heap = text.lines().find_map(|line| {
            let area = area(line)?;
            let gap = area.start - std::mem::replace(&mut before, area.end);
            line.ends_with("[heap]").then_some((area, gap))
        });
        let (heap, gap) = heap.expect("a heap");
        this.heap = heap;
        (gap >= GAP as u64).then_some(this)
    }

    fn open(&self) -> Space {
        let number = i32::try_from(self.child.id()).expect("a process number");
        Space::open(Pid::from_raw(number)).expect("its memory")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Returns the addresses in a line of `/proc/PID/maps`.
fn area(line: &str) -> Option<Range<u64>> {
    let (start, rest) = line.split_once('-')?;
    let (end, _) = rest.split_once(' ')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(number(start)?..number(end)?)
}

/// A host that reaches the program, and this process.
struct Rig {
    host: ProcessHost,
    program: Program,
    theirs: Number,
    own: Number,
}

impl Rig {
    fn new() -> Self {
        let spaces = Arc::new(Spaces::default());
        let program = Program::new();
        let theirs = spaces.insert(program.open()).expect("room");
        let own = spaces.insert(Space::open(Pid::this()).expect("own memory")).expect("room");
        let host = ProcessHost::new(&spaces, &Arc::default(), system_clock()).expect("memory");
        Self { host, program, theirs, own }
    }

    fn theirs(&self, addr: u64) -> GuestAddr {
        self.theirs.place(addr).expect("an address of a program")
    }

    fn copy(&self, from: GuestAddr, to: GuestAddr, len: usize) -> Result<(), CopyFault> {
        let held = self.host.hold(Lane::SHARED);
        let place = |addr| Place { memory: &held, addr };
        ProcessHost::copy(place(from), place(to), len)
    }

    /// Returns the program's memory.
    fn memory(&self) -> Vec<u8> {
        let heap = &self.program.heap;
        let mut bytes = vec![0; usize::try_from(heap.end - heap.start).expect("a length")];
        self.program.open().read(heap.start, &mut bytes).expect("mapped");
        bytes
    }
}

#[test]
fn unmapped_memory_fails_and_memory_beside_it_keeps_its_bytes() {
    let rig = Rig::new();
    let Range { start, end } = rig.program.heap;
    let before = rig.memory();
    let own = vec![0xa5u8; before.len()];
    let near = rig.own.place(own.as_ptr() as u64).expect("an address");
    for len in [1usize, 8, 64, 4096, 16 << 10, GAP] {
        // Behind, before, and across both ends.
        let half = len.div_ceil(2) as u64;
        for addr in [end, start - len as u64, end - half + 1, start - half] {
            let far = rig.theirs(addr);
            if len > 1 || addr != end - half + 1 {
                assert_eq!(rig.copy(far, near, len), Err(CopyFault::Source), "{len} at {addr:#x}");
            }
            if addr == end || addr < start {
                assert_eq!(rig.copy(near, far, len), Err(CopyFault::Target), "{len} at {addr:#x}");
            }
        }
    }
    assert!(rig.memory() == before, "bytes beside unmapped memory have changed");
    assert!(own.iter().all(|byte| *byte == 0xa5), "bytes came from unmapped memory");
    // The adapter goes on.
    assert_eq!(rig.copy(near, rig.theirs(start), before.len()), Ok(()));
    assert_eq!(rig.memory(), own);
}

#[test]
fn words_in_unmapped_memory_are_not_accessed() {
    let rig = Rig::new();
    let Range { start, end } = rig.program.heap;
    let held = rig.host.hold(Lane::SHARED);
    for addr in [end, end - 4, start - 8, start - 4] {
        let addr = rig.theirs(addr);
        let mut word = [7; 8];
        assert!(held.read(addr, &mut word).is_err());
        assert!(held.fetch_add(addr, 1).is_err());
        assert!(held.compare_swap(addr, 0, 1).is_err());
        assert!(held.store(addr, 1).is_err() && held.write(addr, &word).is_err());
    }
}

#[test]
fn memory_of_a_program_that_has_ended_fails() {
    let mut rig = Rig::new();
    let own = [0u8; 16 << 10];
    let near = rig.own.place(own.as_ptr() as u64).expect("an address");
    let far = rig.theirs(rig.program.heap.start);
    for len in [8, 16 << 10] {
        assert_eq!(rig.copy(near, far, len), Ok(()));
    }
    rig.program.child.kill().expect("a running process");
    rig.program.child.wait().expect("a child");
    for len in [8, 16 << 10] {
        assert_eq!(rig.copy(near, far, len), Err(CopyFault::Target));
        assert_eq!(rig.copy(far, near, len), Err(CopyFault::Source));
    }
}
