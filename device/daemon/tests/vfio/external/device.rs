//! The memory of another device next to a function, as the VMM reads and writes it.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use vrnic_abi::sq::Sge;
use vrnic_testdriver::qp::{ALL, Setup};
use vrnic_testdriver::stream;
use vrnic_testdriver::vmm::daemon::Daemon;
use vrnic_testdriver::vmm::relay::{Relay, Request};
use vrnic_testdriver::vmm::vfio::{Endpoint, Guest};
use vrnic_testdriver::wr::sge;

use crate::common::switch::Folder;

/// The address of another device's memory, of which the VMM has given no mapping.
pub(crate) const FAR: u64 = 0xdead_0000_0000;
/// The length of that memory.
pub(crate) const LEN: usize = 1 << 20;

/// The behaviour of the VMM at a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Honest,
    Slow,
    Refuses,
    Short,
    Long,
    WrongId,
    WrongAddress,
    Silent,
    Twice,
}

/// The memory of another device, as the VMM reads and writes it.
pub(crate) struct Device {
    bytes: Mutex<Vec<u8>>,
    manner: Mutex<Manner>,
    /// The last request that was not answered.
    pub(crate) open: Mutex<Option<Request>>,
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
    /// The largest number of bytes of a request.
    pub(crate) largest: AtomicU64,
}

impl Device {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            bytes: Mutex::new(vec![0; LEN]),
            manner: Mutex::new(Manner::Honest),
            open: Mutex::default(),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            largest: AtomicU64::new(0),
        })
    }

    pub(crate) fn fill(&self, at: usize, bytes: &[u8]) {
        self.bytes.lock()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        self.bytes.lock()[at..at + len].to_vec()
    }

    pub(crate) fn be(&self, manner: Manner) {
        *self.manner.lock() = manner;
    }

    /// Executes a request. Returns the reply.
    pub(crate) fn execute(&self, request: &Request) -> Vec<u8> {
        let (at, count) = (request.addr.wrapping_sub(FAR) as usize, request.count as usize);
        let mut bytes = self.bytes.lock();
        let Some(bytes) = at.checked_add(count).and_then(|end| bytes.get_mut(at..end)) else {
            // ENODEV, as QEMU answers for addresses without a device.
            return request.refusal(19);
        };
        if request.is_write() {
            bytes.copy_from_slice(&request.data);
            self.writes.fetch_add(1, Ordering::SeqCst);
            return request.bare_reply();
        }
        self.reads.fetch_add(1, Ordering::SeqCst);
        request.reply(bytes)
    }

    pub(crate) fn answer(&self, request: &Request) -> Vec<u8> {
        self.largest.fetch_max(request.count, Ordering::SeqCst);
        let lie = |len: usize| Request { ..request.clone() }.reply(&vec![0xee; len]);
        let count = request.count as usize;
        match *self.manner.lock() {
            Manner::Honest => self.execute(request),
            Manner::Slow => {
                std::thread::sleep(Duration::from_millis(5));
                self.execute(request)
            }
            Manner::Refuses => request.refusal(14),
            Manner::Short => lie(count - 1),
            Manner::Long => lie(count + 1),
            Manner::WrongId => Request { id: request.id ^ 0x4000, ..request.clone() }
                .reply(&vec![0xee; if request.is_write() { 0 } else { count }]),
            Manner::WrongAddress => Request { addr: request.addr + 8, ..request.clone() }
                .reply(&vec![0xee; if request.is_write() { 0 } else { count }]),
            Manner::Silent => {
                *self.open.lock() = Some(request.clone());
                Vec::new()
            }
            Manner::Twice => {
                let reply = self.execute(request);
                [reply.clone(), reply].concat()
            }
        }
    }
}

/// Two functions, of which the first one has a device with memory next to it.
pub(crate) struct Rig {
    pub(crate) daemon: Daemon,
    pub(crate) device: Arc<Device>,
    pub(crate) relay: Relay,
    pub(crate) guests: [Guest; 2],
    personality: &'static str,
}

impl Rig {
    pub(crate) fn new(args: &[&str]) -> Self {
        Self::of("roce", args)
    }

    pub(crate) fn of(personality: &'static str, args: &[&str]) -> Self {
        let program = Path::new(env!("CARGO_BIN_EXE_vrnicd"));
        let args = [&["--dma-messages"], args].concat();
        let daemon = Daemon::start_of(program, 0..2, personality, &args).expect("vrnicd starts");
        let device = Device::new();
        let answering = Arc::clone(&device);
        let answer = Arc::new(move |request: &Request| answering.answer(request));
        let relay = Relay::start(&daemon.socket(0), answer).expect("a relay");
        let guests = [daemon.ready_guest_behind(0, &relay), daemon.ready_guest(1)];
        Self { daemon, device, relay, guests, personality }
    }

    /// Returns a connected pair, and a key of the first one for the device's memory.
    pub(crate) fn ends(&self) -> (Endpoint, Endpoint, u32) {
        self.ends_of(Setup::default())
    }

    pub(crate) fn ends_of(&self, setup: Setup) -> (Endpoint, Endpoint, u32) {
        let [a, b] = self.guests.each_ref().map(|guest| Endpoint::new(guest, setup));
        if self.personality == "iwarp" {
            stream::connect_pair(&a, &b);
        } else {
            // A message waits for such memory as it does for a receive, here without a limit.
            a.connect(self.guests[1].mac(), b.qpn, |attr| attr.rnr_retry = 7);
            b.connect(self.guests[0].mac(), a.qpn, |attr| attr.rnr_retry = 7);
        }
        let key = a.guest.reg_flat(a.pdn, ALL, FAR, LEN as u64).expect("a region");
        (a, b, key)
    }
}

pub(crate) fn far(at: usize, len: usize, key: u32) -> Sge {
    sge(FAR + at as u64, len as u32, key)
}

/// Returns a counter of the first function, as `vrnic` shows it.
pub(crate) fn counter(folder: &Folder, name: &str) -> u64 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vrnic"));
    command.arg("--monitor").arg(folder.path("monitor"));
    let output = command.args(["show", "counters", "--json"]).output().expect("vrnic runs");
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    shown[0]["counters"][name].as_u64().expect("a counter")
}

/// The ways in which messages of functions travel.
pub(crate) const WAYS: [&[&str]; 2] = [&[], &["--fabric", "wire"]];
/// The ways of both personalities.
pub(crate) const ALL_WAYS: [(&str, &[&str]); 4] =
    [("roce", WAYS[0]), ("roce", WAYS[1]), ("iwarp", WAYS[0]), ("iwarp", WAYS[1])];
