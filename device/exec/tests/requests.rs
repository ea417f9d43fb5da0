//! Hostile requests: whatever bytes a program passes, a request ends with an answer or an error.
//!
//! Shows: hostile
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

use proptest::prelude::*;
use rustix::io::Errno;
use vrnic_adapter::datapath::transport::peers::Fabric;
use vrnic_exec::adapter::driver::Driver;
use vrnic_exec::adapter::host::{ProcessHost, system_clock};
use vrnic_exec::join::neighbors::Neighbors;
use vrnic_exec::memory::space::Space;
use vrnic_exec::memory::spaces::{Number, Placement, Spaces};
use vrnic_exec::trap::task::FileId;
use vrnic_exec::uverbs::device::Device;
use vrnic_exec::uverbs::dispatch::ioctl;
use vrnic_exec::uverbs::file::OpenFile;
use vrnic_exec::uverbs::process::Process;
use vrnic_exec::uverbs::routes::Routes;
use vrnic_exec::uverbs::wire::{async_event, cq};
use vrnic_packet::{MacAddr, Nanos};

/// Number of bytes of memory of the program, from address zero on.
const MEMORY: usize = 64 << 10;

/// A program that consists of memory. Addresses for the adapter are those of this process, where
/// nothing is mapped.
struct Program {
    memory: RefCell<Vec<u8>>,
    spaces: Arc<Spaces>,
    number: Number,
}

impl Program {
    fn new(file: &OpenFile, memory: Vec<u8>) -> Self {
        let spaces = Arc::clone(file.device().driver().host().spaces());
        let own = Space::open(nix::unistd::Pid::this()).expect("own memory");
        let number = spaces.insert(own).expect("room");
        Self { memory: RefCell::new(memory), spaces, number }
    }

    fn range(addr: u64, len: usize) -> Result<std::ops::Range<usize>, Errno> {
        let start = usize::try_from(addr).map_err(|_| Errno::FAULT)?;
        let end = start.checked_add(len).filter(|end| *end <= MEMORY).ok_or(Errno::FAULT)?;
        Ok(start..end)
    }
}

impl Process for Program {
    fn read(&self, addr: u64, into: &mut [u8]) -> Result<(), Errno> {
        into.copy_from_slice(&self.memory.borrow()[Self::range(addr, into.len())?]);
        Ok(())
    }

    fn write(&self, addr: u64, from: &[u8]) -> Result<(), Errno> {
        self.memory.borrow_mut()[Self::range(addr, from.len())?].copy_from_slice(from);
        Ok(())
    }

    fn place(&self, addr: u64, len: u64, _written: bool) -> Result<Placement, Errno> {
        let len = usize::try_from(len).map_err(|_| Errno::FAULT)?;
        Self::range(addr, len)?;
        self.spaces.place(self.number, addr)
    }

    fn file(&self, _descriptor: i32) -> Result<FileId, Errno> {
        Err(Errno::BADF)
    }

    fn give(&self, _file: BorrowedFd<'_>) -> Result<RawFd, Errno> {
        Ok(100)
    }
}

fn open() -> OpenFile {
    open_in(&Arc::default())
}

/// Opens the device file of an adapter in this network.
fn open_in(fabric: &Arc<Fabric<ProcessHost>>) -> OpenFile {
    let (spaces, routes) = (Arc::new(Spaces::default()), Arc::new(Routes::default()));
    let host = ProcessHost::new(&spaces, &Arc::default(), system_clock()).expect("memory");
    let mac = [2, 0, 0, 0, 0, 1];
    let driver =
        Driver::new("vrnic0", MacAddr(mac), host, Driver::most(), fabric).expect("an adapter");
    let gid = [1; 16];
    driver.set_gid(0, gid).expect("a GID");
    let neighbors = Arc::new(Neighbors::from([(gid, mac)]));
    let device = Device::new(&Arc::from([driver]), 0, vec![gid], &neighbors, &routes);
    OpenFile::open(&Arc::new(device)).expect("a file").0
}

/// An attribute: its number, its length, its flags and its data.
type Attribute = (u16, u16, u16, u64);

/// The numbers of commands that were system calls write once.
const COMMANDS: [u64; 18] =
    [1, 3, 5, 9, 11, 14, 17, 19, 25, 26, 30, 31, 33, 34, 37, 40, 1 << 31 | 1, 1 << 31 | 26];

/// Returns attributes, most of which are plausible.
fn attribute() -> impl Strategy<Value = Attribute> {
    let id = prop_oneof![8 => 0u16..16, 2 => 4096u16..4098, 1 => any::<u16>()];
    let lens: Vec<u16> = vec![0, 1, 4, 8, 16, 20, 32, 40, 48, 56, 112, 128, 304];
    let len = prop_oneof![8 => prop::sample::select(lens), 1 => any::<u16>()];
    let data = prop_oneof![
        4 => 0u64..4,
        4 => (0u64..MEMORY as u64).prop_map(|addr| addr & !7),
        2 => prop::sample::select(COMMANDS.to_vec()),
        1 => any::<u64>(),
    ];
    (id, len, 0u16..2, data)
}

/// Returns requests: an object, a method, and attributes.
fn request() -> impl Strategy<Value = (u16, u16, Vec<Attribute>)> {
    (0u16..20, 0u16..8, prop::collection::vec(attribute(), 0..16))
}

fn encode(object: u16, method: u16, attributes: &[Attribute]) -> Vec<u8> {
    let count = attributes.len() as u16;
    let mut bytes: Vec<u8> =
        [24 + 16 * count, object, method, count].into_iter().flat_map(u16::to_le_bytes).collect();
    bytes.extend([0; 8]);
    bytes.extend(vrnic_abi::RDMA_DRIVER_ID.to_le_bytes());
    bytes.extend([0; 4]);
    for (id, len, flags, data) in attributes {
        bytes.extend([*id, *len, *flags, 0].into_iter().flat_map(u16::to_le_bytes));
        bytes.extend(data.to_le_bytes());
    }
    bytes
}

/// The request for a context, which most others need.
fn context() -> Vec<u8> {
    encode(0, 3, &[(4097, 48, 1, 0x8000)])
}

proptest! {
    #![proptest_config(vrnic_cases::config(48))]

    #[test]
    fn requests_of_plausible_attributes_end(
        memory in prop::collection::vec(prop_oneof![3 => 0u8..4, 1 => any::<u8>()], MEMORY / 16),
        requests in prop::collection::vec(request(), 1..60),
    ) {
        let mut file = open();
        let program = Program::new(&file, memory.repeat(16));
        program.write(0, &context()).expect("room");
        prop_assert_eq!(ioctl(&mut file, &program, 0), Ok(()));
        for (object, method, attributes) in requests {
            program.write(0, &encode(object, method, &attributes)).expect("room");
            let _answer = ioctl(&mut file, &program, 0);
        }
    }

    #[test]
    fn requests_of_any_bytes_end(
        bytes in prop::collection::vec(any::<u8>(), MEMORY / 64),
        addr in any::<u64>(),
    ) {
        let mut file = open();
        let program = Program::new(&file, bytes.repeat(64));
        let _answer = ioctl(&mut file, &program, addr);
        let _answer = ioctl(&mut file, &program, addr % MEMORY as u64);
    }
}

#[test]
fn a_context_exists_once_and_what_needs_one_is_refused_before() {
    let mut file = open();
    let program = Program::new(&file, vec![0; MEMORY]);
    let alloc_pd =
        encode(0, 0, &[(2, 8, 1, 3), (0, 8, 1, 0), (1, 4, 1, 0x4000), (4097, 8, 1, 0x4010)]);
    program.write(0, &alloc_pd).expect("room");
    assert_eq!(ioctl(&mut file, &program, 0), Err(Errno::INVAL));
    program.write(0x1000, &context()).expect("room");
    assert_eq!(ioctl(&mut file, &program, 0x1000), Ok(()));
    assert_eq!(ioctl(&mut file, &program, 0x1000), Err(Errno::INVAL));
    assert_eq!(ioctl(&mut file, &program, 0), Ok(()));
    let destroy = encode(1, 0, &[(0, 0, 1, 0)]);
    program.write(0, &destroy).expect("room");
    assert_eq!(ioctl(&mut file, &program, 0), Ok(()));
    assert_eq!(ioctl(&mut file, &program, 0), Err(Errno::NOENT));
}

#[test]
fn the_first_channel_for_events_stays_that_of_objects_that_name_none() {
    let mut file = open();
    let program = Program::new(&file, vec![0; MEMORY]);
    let alloc = encode(async_event::OBJECT, async_event::ALLOC, &[(0, 0, 1, 0)]);
    program.write(0, &context()).expect("room");
    assert_eq!(ioctl(&mut file, &program, 0), Ok(()));
    program.write(0, &alloc).expect("room");
    assert_eq!(ioctl(&mut file, &program, 0), Ok(()));
    let first = Arc::clone(file.events().expect("a channel"));
    assert_eq!(ioctl(&mut file, &program, 0), Ok(()));
    assert!(Arc::ptr_eq(file.events().expect("a channel"), &first));
    // There are not any number of them.
    let refused = (0..100).find_map(|_| ioctl(&mut file, &program, 0).err());
    assert_eq!(refused, Some(Errno::MFILE));
}

/// Writes the request for a CQ of 64 entries at an address of the program.
fn create_cq(program: &Program, addr: u64) {
    let ring = [0x8000u64.to_le_bytes(), 6u64.to_le_bytes()].concat();
    program.write(addr + 0x800, &ring).expect("room");
    let attributes = [
        (0, 0, 1, 0),
        (cq::ENTRIES, 4, 1, 64),
        (cq::USER_HANDLE, 8, 1, 0),
        (cq::VECTOR, 4, 1, 0),
        (cq::RESP_ENTRIES, 4, 1, addr + 0xc00),
        (4096, 16, 1, addr + 0x800),
        (4097, 24, 1, addr + 0xd00),
    ];
    program.write(addr, &encode(cq::OBJECT, cq::CREATE, &attributes)).expect("room");
}

#[test]
fn memory_of_what_cannot_be_destroyed_is_not_used_again() {
    let fabric: Arc<Fabric<ProcessHost>> = Arc::default();
    for refuses in [false, true] {
        let mut file = open_in(&fabric);
        let program = Program::new(&file, vec![0; MEMORY]);
        program.write(0, &context()).expect("room");
        assert_eq!(ioctl(&mut file, &program, 0), Ok(()));
        create_cq(&program, 0x1000);
        assert_eq!(ioctl(&mut file, &program, 0x1000), Ok(()));
        if refuses {
            let rule = "fail-command command=destroy-cq status=busy".parse().expect("a rule");
            fabric.faults.add(rule, Nanos(1)).expect("room");
        }
        drop(file);
        program.spaces.free(program.number);
        let own = Space::open(nix::unistd::Pid::this()).expect("own memory");
        let next = program.spaces.insert(own).expect("room");
        // The adapter may go on to write to the ring of the queue.
        assert_eq!(next == program.number, !refuses);
    }
}

#[test]
fn unknown_requests_have_the_errors_of_the_kernel() {
    let mut file = open();
    let program = Program::new(&file, vec![0; MEMORY]);
    let mut refused = |bytes: &[u8]| {
        program.write(0, bytes).expect("room");
        ioctl(&mut file, &program, 0)
    };
    assert_eq!(refused(&encode(200, 0, &[])), Err(Errno::PROTONOSUPPORT));
    assert_eq!(refused(&encode(0, 2, &[])), Err(Errno::INVAL));
    let unknown = encode(0, 3, &[(77, 0, 1, 0)]);
    assert_eq!(refused(&unknown), Err(Errno::PROTONOSUPPORT));
    assert_eq!(refused(&encode(0, 0, &[(2, 8, 1, 1)])), Err(Errno::NOSPC));
    let mut long = encode(0, 3, &[]);
    long[0] = 25;
    assert_eq!(refused(&long), Err(Errno::INVAL));
}
