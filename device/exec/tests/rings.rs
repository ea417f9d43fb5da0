//! Hostile rings: whatever bytes a program writes to the memory that it shares with the adapter,
//! the adapter ends its work, and the objects can be destroyed.
//!
//! Shows: hostile
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vrnic_abi::admin::{self, CreateCq, CreateQp, CreateSrq, Pages, QpResult, command};
use vrnic_abi::qp::{Access, AddressVector, Attr, NO_VLAN, Type};
use vrnic_abi::{Cqn, Key, Pdn, Srqn};
use vrnic_exec::adapter::driver::Driver;
use vrnic_exec::adapter::host::{ProcessHost, system_clock};
use vrnic_exec::join::neighbors::Neighbors;
use vrnic_exec::memory::space::Space;
use vrnic_exec::memory::spaces::{Placement, Spaces};
use vrnic_exec::uverbs::device::Device;
use vrnic_exec::uverbs::file::{KICK_OFFSET, OpenFile};
use vrnic_exec::uverbs::ring::{RINGS, SharedRing};
use vrnic_exec::uverbs::routes::Routes;
use vrnic_packet::MacAddr;
use vrnic_queues::mapping::Mapping;
use vrnic_testdriver::qp::TO_RTS;

/// log2 of the entries of each queue, and of their length in bytes.
const LOG_ENTRIES: u8 = 4;
const LOG_STRIDE: u8 = 6;
/// Length in bytes of each ring.
const RING: usize = 4096;
/// Length of the region.
const REGION: usize = 64 << 10;
/// The place of the doorbell page in the list of what is shared.
const UAR: usize = 3;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const GID: [u8; 16] = [1; 16];

/// A queue pair that is connected to itself and shares its receives, and all that it uses.
struct Rig {
    file: OpenFile,
    /// The rings, the doorbell page and the kick page, as the program maps them.
    shared: Vec<Mapping>,
    rings: Vec<SharedRing>,
    pdn: Pdn,
    key: Key,
    cqn: Cqn,
    srqn: Srqn,
    qp: QpResult,
    region: Vec<u8>,
    _placement: Placement,
}

fn open() -> OpenFile {
    let (spaces, routes) = (Arc::new(Spaces::default()), Arc::new(Routes::default()));
    let host = ProcessHost::new(&spaces, &Arc::default(), system_clock()).expect("memory");
    let driver = Driver::new("vrnic0", MacAddr(MAC), host, Driver::most(), &Arc::default())
        .expect("an adapter");
    driver.set_gid(0, GID).expect("a GID");
    let neighbors = Arc::new(Neighbors::from([(GID, MAC)]));
    let device = Device::new(&Arc::from([driver]), 0, vec![GID], &neighbors, &routes);
    OpenFile::open(&Arc::new(device)).expect("a file").0
}

/// All rights of a region.
const ACCESS: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::MW_BIND);

/// Registers memory of this process, which is the program.
fn region(driver: &Driver, pdn: Pdn) -> (Vec<u8>, Placement, Key) {
    let spaces = driver.host().spaces();
    let own = Space::open(nix::unistd::Pid::this()).expect("own memory");
    let number = spaces.insert(own).expect("room");
    let region = vec![0; REGION];
    let iova = region.as_ptr() as u64;
    let placement = spaces.place(number, iova).expect("an address");
    let table = Pages::new(placement.addr().get() & !0xfff, 12, 0);
    let mr = admin::RegMr::new(pdn, ACCESS.bits(), iova, REGION as u64, table);
    let key = driver.command::<command::RegMr>(&mr).expect("a region");
    (region, placement, key)
}

impl Rig {
    fn new() -> Self {
        let mut file = open();
        let uar = file.create_context().expect("a context");
        let context = file.context().expect("a context");
        let device = Arc::clone(file.device());
        let driver = device.driver();
        let maps = |offset, len| Mapping::device(file.memory(), offset, len).expect("mapped");
        let starts = (RINGS.start..).step_by(RING).take(3);
        let rings: Vec<_> = starts
            .clone()
            .map(|start| file.ring(file.id(), start..start + RING as u64).expect("mapped"))
            .collect();
        let mut shared: Vec<_> = starts.map(|start| maps(start, RING)).collect();
        shared.push(maps(uar.offset(), 4096));
        shared.push(maps(KICK_OFFSET, 4096));
        let pages: Vec<_> = rings
            .iter()
            .map(|ring| Pages::new(ring.number().place(0).expect("an address"), 12, 0))
            .collect();
        let pdn = driver.command::<command::AllocPd>(&context).expect("a PD");
        let (region, _placement, key) = region(driver, pdn);
        let cq = CreateCq::new(uar, driver.eqn(), LOG_ENTRIES, pages[0]);
        let cqn = driver.command::<command::CreateCq>(&cq).expect("a CQ").cqn;
        let srq = CreateSrq {
            pages: pages[1],
            pdn,
            uar,
            log_size: LOG_ENTRIES,
            log_stride: LOG_STRIDE,
            ..CreateSrq::default()
        };
        let srqn = driver.command::<command::CreateSrq>(&srq).expect("an SRQ").srqn;
        let qp = CreateQp {
            sq_table: pages[2].table,
            sq_page_shift: pages[2].page_shift,
            sq_log_size: LOG_ENTRIES,
            sq_log_stride: LOG_STRIDE,
            rq_log_size: admin::NO_QUEUE,
            pdn,
            uar,
            send_cqn: cqn,
            recv_cqn: cqn,
            srqn,
            qp_type: Type::Rc as u8,
            ..CreateQp::default()
        };
        let qp = driver.command::<command::CreateQp>(&qp).expect("a QP");
        let this = Self { file, shared, rings, pdn, key, cqn, srqn, qp, region, _placement };
        this.connect();
        this
    }

    fn driver(&self) -> &Driver {
        self.file.device().driver()
    }

    /// Connects the queue pair with itself.
    fn connect(&self) {
        let av = AddressVector {
            dgid: GID,
            dmac: MAC,
            vlan: NO_VLAN.into(),
            hop_limit: 64,
            ..AddressVector::default()
        };
        let mut attr = Attr {
            path_mtu: 3,
            port: 1,
            access: ACCESS.bits().into(),
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            min_rnr_timer: 1,
            timeout: 8,
            retry_cnt: 1,
            rnr_retry: 1,
            dest_qpn: self.qp.qpn.get().into(),
            av,
            ..Attr::default()
        };
        for (state, mask) in TO_RTS {
            attr.state = state as u8;
            self.driver().modify_qp(self.qp.qpn, mask, &attr).expect("a change");
            attr.cur_state = attr.state;
        }
    }

    /// Lets the adapter work, and takes its events.
    fn poll(&self, rounds: u8) {
        for _ in 0..rounds {
            let _polled = self.driver().adapter().poll(0);
            while self.driver().event().is_some() {}
        }
    }

    /// Destroys everything.
    fn end(self) {
        let driver = self.driver();
        driver.command::<command::DestroyQp>(&self.qp.qpn).expect("destroyed");
        driver.command::<command::DestroySrq>(&self.srqn).expect("destroyed");
        driver.command::<command::DestroyCq>(&self.cqn).expect("destroyed");
        driver.command::<command::DeregMr>(&self.key).expect("destroyed");
        driver.command::<command::FreePd>(&self.pdn).expect("destroyed");
        assert!(!driver.host().has_failed());
        drop(self.rings);
    }
}

/// Returns a word of which entries and doorbells may consist, or any.
fn word(random: &mut fastrand::Rng, rig: &Rig) -> u64 {
    let key = u64::from(rig.key.get());
    match random.u8(..12) {
        0..3 => random.u64(..64) | random.u64(..4) << 8 | random.u64(..256) << 32,
        3..5 => key << 32 | random.u64(..4096),
        5..7 => key | random.u64(..4096) << 32,
        7..9 => rig.region.as_ptr() as u64 + random.u64(..REGION as u64),
        9..11 => 0,
        _ => random.u64(..),
    }
}

/// Writes words to a part of the shared memory, rings doorbells, or lets the adapter work.
fn act(random: &mut fastrand::Rng, rig: &Rig) {
    let store = |part: usize, at: usize, count: usize, word: &mut dyn FnMut() -> u64| {
        let words = rig.shared.get(part).expect("a part").words().iter();
        words.skip(at).take(count).for_each(|to| to.store(word(), Ordering::Release));
    };
    match random.u8(..12) {
        0..6 => {
            let (part, at, count) = (random.usize(..5), random.usize(..512), random.usize(1..24));
            store(part, at, count, &mut || word(random, rig));
        }
        6..9 => {
            // Both halves of the words of a slot, and the summary that shows it to the adapter.
            let (slot, index) = (random.usize(..64), random.u64(..40));
            store(UAR, slot * 8, 8, &mut || index << 32 | index);
            store(UAR, 0, 2, &mut || u64::MAX);
        }
        _ => rig.poll(random.u8(1..8)),
    }
}

#[test]
fn any_bytes_in_shared_memory_are_survived() {
    vrnic_cases::seeds(100, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let rig = Rig::new();
        for _ in 0..random.usize(1..100) {
            act(&mut random, &rig);
        }
        rig.poll(16);
        rig.end();
        1
    });
}
