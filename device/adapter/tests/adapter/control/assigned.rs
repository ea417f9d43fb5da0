//! An adapter's own maximum of each resource, and the number that it uses.
//!
//! Shows: resources

use std::cell::Cell;

use vrnic_abi::admin::{
    AllocMw, ArmRange, CreateCq, CreateQp, CreateSrq, Mcast, MwType, Opcode, Pages, RegMr,
    ResizeCq, Status, command,
};
use vrnic_abi::direct::RANGES;
use vrnic_abi::qp::Type;
use vrnic_abi::regs;
use vrnic_adapter::assigned::{InUse, Shrink};
use vrnic_adapter::limits::Limits;
use vrnic_adapter::limits::resource::Resource;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::qp::Setup;

use crate::bus::Guest;
use crate::world;

const FULL: Refused = Refused(Status::NoResource, 0);
/// An address that is no memory.
const NOWHERE: u64 = 1 << 50;

/// The kinds of which objects can be created and destroyed.
const KINDS: [Resource; 11] = [
    Resource::Contexts,
    Resource::Pd,
    Resource::Cq,
    Resource::Cqe,
    Resource::Srq,
    Resource::Qp,
    Resource::Mr,
    Resource::Mw,
    Resource::Ranges,
    Resource::Mcast,
    Resource::Uar,
];

/// A guest with an object of each kind, which the objects that it creates refer to.
struct Rig {
    guest: Guest,
    pdn: u32,
    page: u64,
    cq: CreateCq,
    cqn: u32,
    qp: CreateQp,
    rc: u32,
    ud: u32,
    /// Number of the next range or group.
    next: Cell<u32>,
}

impl Rig {
    fn new() -> Self {
        let guest = world::guest();
        let pdn = guest.on_object(Opcode::AllocPd, 0).expect("PD");
        let (eqn, _) = guest.create_eq(1, 4).expect("EQ");
        let page = guest.ram().alloc(4096);
        let cq = CreateCq::new(0, eqn, 0, Pages::new(page, 12, 0));
        let cqn = guest.command::<command::CreateCq>(&cq).expect("CQ").cqn.get();
        let mut qp = Setup::default().qp(&guest);
        (qp.pdn, qp.send_cqn, qp.recv_cqn) = (pdn.into(), cqn.into(), cqn.into());
        let rc = guest.create_qp(&qp).expect("QP").0;
        let ud = guest.create_qp(&CreateQp { qp_type: Type::Ud as u8, ..qp }).expect("QP").0;
        Self { guest, pdn, page, cq, cqn, qp, rc, ud, next: Cell::new(0) }
    }

    fn actual(&self, kind: Resource) -> u64 {
        self.guest.adapter.actual(kind).expect("a number")
    }

    /// Sets the maximum of a resource, and leaves the others as they are.
    fn set(&self, kind: Resource, maximum: u64, shrink: Shrink) -> Result<(), InUse> {
        let mut limits = self.guest.adapter.limits();
        *limits.place(kind) = maximum.try_into().expect("a number");
        self.guest.adapter.set_limits(&limits, shrink)
    }

    /// Creates an object that uses one of a kind. Returns its number.
    fn create(&self, kind: Resource) -> Result<u32, Refused> {
        let (guest, next) = (&self.guest, self.next.get() % RANGES);
        self.next.set(next + 1);
        match kind {
            Resource::Contexts => guest.alloc_context(),
            Resource::Pd => guest.on_object(Opcode::AllocPd, 0),
            Resource::Srq => self.srq(self.page),
            Resource::Qp => Ok(guest.create_qp(&self.qp)?.0),
            Resource::Mr => guest.reg_flat(self.pdn, 0, self.page, 16),
            Resource::Mw => self.window(self.pdn),
            Resource::Ranges => self.range(next, self.page).map(|()| next),
            Resource::Mcast => self.join(group(next)).map(|()| next),
            Resource::Uar => guest.on_object(Opcode::AllocUar, 0),
            _ => Ok(guest.command::<command::CreateCq>(&self.cq)?.cqn.get()),
        }
    }

    /// Fails to create an object of a kind, for another reason than its maximum.
    fn fail_to_create(&self, kind: Resource) -> Refused {
        let (guest, none) = (&self.guest, 999);
        let created = match kind {
            // Nothing but the maximum can stop it.
            Resource::Contexts => Err(Refused(Status::Ok, 0)),
            Resource::Pd => guest.on_object(Opcode::AllocPd, none).map(drop),
            Resource::Srq => self.srq(NOWHERE).map(drop),
            Resource::Qp => {
                let unreachable = CreateQp { rq_levels: 1, rq_table: NOWHERE.into(), ..self.qp };
                guest.create_qp(&unreachable).map(drop)
            }
            Resource::Mr => {
                let params = RegMr::new(self.pdn, 0, 0, 4096, Pages::new(NOWHERE, 12, 1));
                guest.command::<command::RegMr>(&params).map(drop)
            }
            Resource::Mw => self.window(none).map(drop),
            Resource::Ranges => self.range(0, NOWHERE),
            Resource::Mcast => self.join([0; 16]),
            Resource::Uar => guest.on_object(Opcode::AllocUar, none).map(drop),
            _ => {
                let unreachable = CreateCq { pages: Pages::new(NOWHERE, 12, 1), ..self.cq };
                guest.command::<command::CreateCq>(&unreachable).map(drop)
            }
        };
        created.expect_err("it cannot be created")
    }

    fn destroy(&self, kind: Resource, number: u32) -> Result<(), Refused> {
        let opcode = match kind {
            Resource::Contexts => Opcode::FreeContext,
            Resource::Pd => Opcode::FreePd,
            Resource::Srq => Opcode::DestroySrq,
            Resource::Qp => Opcode::DestroyQp,
            Resource::Mr => Opcode::DeregMr,
            Resource::Mw => Opcode::DeallocMw,
            Resource::Ranges => Opcode::EndRange,
            Resource::Uar => Opcode::FreeUar,
            Resource::Mcast => {
                let params = Mcast::new(self.ud, group(number));
                return self.guest.command::<command::DetachMcast>(&params);
            }
            _ => Opcode::DestroyCq,
        };
        self.guest.on_object(opcode, number).map(drop)
    }

    fn srq(&self, table: u64) -> Result<u32, Refused> {
        let levels = u8::from(table == NOWHERE);
        let pages = Pages::new(table, 12, levels);
        let pdn = self.pdn.into();
        let params = CreateSrq { pages, pdn, log_size: 0, log_stride: 5, ..CreateSrq::default() };
        Ok(self.guest.command::<command::CreateSrq>(&params)?.srqn.get())
    }

    fn window(&self, pdn: u32) -> Result<u32, Refused> {
        let params = AllocMw::new(pdn, MwType::Type1);
        Ok(self.guest.command::<command::AllocMw>(&params)?.get())
    }

    fn range(&self, range: u32, memory: u64) -> Result<(), Refused> {
        let params = ArmRange {
            memory: memory.into(),
            range: range.into(),
            qpn: self.rc.into(),
            length: 16.into(),
            time_limit_ms: 1000.into(),
            ..ArmRange::default()
        };
        self.guest.command::<command::ArmRange>(&params)
    }

    fn join(&self, group: [u8; 16]) -> Result<(), Refused> {
        self.guest.command::<command::AttachMcast>(&Mcast::new(self.ud, group))
    }
}

/// Returns the address of a multicast group.
fn group(number: u32) -> [u8; 16] {
    let [.., high, low] = number.to_be_bytes();
    [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low]
}

/// Shows: resources: a creation at the maximum is refused, for each resource
#[test]
fn a_creation_at_the_maximum_is_refused_for_each_resource() {
    let rig = Rig::new();
    for kind in KINDS {
        let before = rig.actual(kind);
        rig.set(kind, before + 2, Shrink::Refuse).expect("room for two");
        let first = rig.create(kind).expect("the first");
        rig.create(kind).expect("the second, with which the number is at the maximum");
        assert_eq!((rig.actual(kind), rig.create(kind)), (before + 2, Err(FULL)), "{kind:?}");
        assert_eq!(rig.actual(kind), before + 2, "{kind:?}");
        rig.destroy(kind, first).expect("destroyed");
        assert_eq!(rig.actual(kind), before + 1, "{kind:?}");
        rig.create(kind).expect("room for one again");
        assert_eq!(rig.create(kind), Err(FULL), "{kind:?}");
        // Objects of the kinds that follow belong to it.
        rig.set(kind, before + 100, Shrink::Refuse).expect("more room");
    }
}

#[test]
fn a_creation_that_fails_is_not_counted() {
    let rig = Rig::new();
    for kind in KINDS {
        let before = KINDS.map(|kind| rig.actual(kind));
        let why = rig.fail_to_create(kind);
        assert_ne!(why, FULL, "{kind:?}");
        assert_eq!(KINDS.map(|kind| rig.actual(kind)), before, "{kind:?}");
    }
    // A CQ whose entries were counted when the table of CQs turned out to be full, and a window
    // that was counted when the table of keys turned out to be full.
    for (kind, counted) in [(Resource::Cq, Resource::Cqe), (Resource::Mr, Resource::Mw)] {
        rig.set(kind, rig.actual(kind), Shrink::Refuse).expect("no room");
        let before = rig.actual(counted);
        assert_eq!(rig.create(counted), Err(FULL));
        assert_eq!(rig.actual(counted), before, "{kind:?}");
    }
}

#[test]
fn an_object_that_is_not_destroyed_stays_counted() {
    let rig = Rig::new();
    let guest = &rig.guest;
    let context = guest.alloc_context().expect("a context");
    guest.on_object(Opcode::AllocPd, context).expect("a PD of the context");
    let srqn = rig.create(Resource::Srq).expect("an SRQ");
    let qp = CreateQp { rq_log_size: vrnic_abi::admin::NO_QUEUE, srqn: srqn.into(), ..rig.qp };
    guest.create_qp(&CreateQp { rq_table: 0.into(), rq_page_shift: 0, ..qp }).expect("its QP");
    let busy = [
        (Resource::Contexts, context),
        (Resource::Pd, rig.pdn),
        (Resource::Cq, rig.cqn),
        (Resource::Cqe, rig.cqn),
        (Resource::Srq, srqn),
    ];
    for (kind, number) in busy {
        let before = rig.actual(kind);
        assert_eq!(rig.destroy(kind, number), Err(Refused(Status::Busy, 0)), "{kind:?}");
        assert_eq!(rig.actual(kind), before, "{kind:?}");
    }
    for kind in KINDS {
        rig.create(kind).expect("an object");
        let before = rig.actual(kind);
        assert_eq!(rig.destroy(kind, 9999), Err(Refused(Status::NotFound, 0)), "{kind:?}");
        assert_eq!(rig.actual(kind), before, "{kind:?}");
    }
}

#[test]
fn entries_of_completion_queues_are_counted_through_changes_of_size() {
    let rig = Rig::new();
    let before = rig.actual(Resource::Cqe);
    rig.set(Resource::Cqe, before + 4, Shrink::Refuse).expect("room");
    let cqn = rig.create(Resource::Cq).expect("a CQ of one entry");
    let resize = |log_size| {
        let params = ResizeCq { cqn: cqn.into(), pages: rig.cq.pages, log_size };
        rig.guest.command::<command::ResizeCq>(&params).map(drop)
    };
    assert_eq!(resize(3), Err(FULL));
    assert_eq!(rig.actual(Resource::Cqe), before + 1);
    resize(2).expect("four entries");
    assert_eq!((rig.actual(Resource::Cqe), rig.create(Resource::Cq)), (before + 4, Err(FULL)));
    resize(1).expect("two entries");
    assert_eq!(rig.actual(Resource::Cqe), before + 2);
    rig.destroy(Resource::Cq, cqn).expect("destroyed");
    assert_eq!(rig.actual(Resource::Cqe), before);
}

#[test]
fn no_work_queue_is_longer_than_the_maximum() {
    let rig = Rig::new();
    rig.set(Resource::Wr, 15, Shrink::Refuse).expect("no number is in use");
    assert_eq!((rig.guest.caps().max_wr.get(), rig.guest.adapter.actual(Resource::Wr)), (8, None));
    // The rings of the rig have 16 entries.
    assert!(matches!(rig.guest.create_qp(&rig.qp), Err(Refused(Status::BadParam, _))));
    let qp = CreateQp { sq_log_size: 3, rq_log_size: 3, ..rig.qp };
    rig.guest.create_qp(&qp).expect("a QP of 8 entries");
    let longer = CreateQp { sq_log_size: 4, ..qp };
    assert!(matches!(rig.guest.create_qp(&longer), Err(Refused(Status::BadParam, _))));
    rig.set(Resource::Wr, 16, Shrink::Refuse).expect("more");
    rig.guest.create_qp(&longer).expect("a QP of 16 entries");
}

#[test]
fn a_query_answers_the_adapters_own_maximum() {
    let limits = Limits {
        contexts: 3,
        pd: 4,
        cq: 5,
        cqe: 100,
        srq: 6,
        qp: 7,
        wr: 33,
        mr: 8,
        mw: 2,
        device_memory: 1,
        ranges: 3,
        mcast: 9,
        uar: 10,
        flows: 11,
    };
    let world = world::World::copying();
    let guest = world.guest_with(1, 1, limits);
    let caps = guest.caps();
    let told = [
        caps.max_contexts,
        caps.max_pd,
        caps.max_cq,
        caps.max_cqe,
        caps.max_srq,
        caps.max_qp,
        caps.max_wr,
        caps.max_mr,
        caps.max_mw,
        caps.max_mcast_groups,
        caps.max_cq_entries,
        caps.max_ranges,
        caps.max_uars,
        caps.max_flows,
    ];
    assert_eq!(told.map(|number| number.get()), [3, 4, 5, 64, 6, 7, 32, 8, 2, 9, 100, 3, 10, 11]);
    let registers = [regs::DEVICE_MEMORY, regs::UAR_COUNT];
    assert_eq!(registers.map(|offset| guest.adapter.read_register(offset)), [1, 10]);
    // Another adapter of the daemon has its own.
    assert_eq!(world.guest(2).caps().max_qp.get(), Limits::default().qp);
    guest.adapter.set_limits(&Limits { qp: 70, ..limits }, Shrink::Refuse).expect("more QPs");
    assert_eq!(guest.caps().max_qp.get(), 70);
    assert_eq!(guest.adapter.actual(Resource::DeviceMemory), Some(2 << 20));
}

#[test]
fn a_maximum_below_the_number_in_use_is_refused_or_drains() {
    for kind in KINDS {
        let rig = Rig::new();
        let made = [(); 3].map(|()| rig.create(kind).expect("an object"));
        let actual = rig.actual(kind);
        let limits = rig.guest.adapter.limits();
        let refused = rig.set(kind, actual - 2, Shrink::Refuse).expect_err("in use");
        assert_eq!(refused, InUse { resource: kind, actual, maximum: actual - 2 });
        assert_eq!(rig.guest.adapter.limits(), limits, "{kind:?}");
        rig.set(kind, actual - 2, Shrink::Drain).expect("it drains");
        assert_eq!((rig.actual(kind), rig.create(kind)), (actual, Err(FULL)), "{kind:?}");
        for number in made {
            assert_eq!(rig.create(kind), Err(FULL), "{kind:?}");
            rig.destroy(kind, number).expect("destroyed");
        }
        assert_eq!(rig.actual(kind), actual - 3, "{kind:?}");
        rig.create(kind).expect("room for one");
        assert_eq!(rig.create(kind), Err(FULL), "{kind:?}");
    }
}

#[test]
fn a_reset_frees_everything_and_keeps_the_maxima() {
    let rig = Rig::new();
    for kind in KINDS {
        rig.create(kind).expect("an object");
    }
    rig.set(Resource::Mw, 1, Shrink::Refuse).expect("one window");
    rig.set(Resource::Cqe, rig.actual(Resource::Cqe), Shrink::Refuse).expect("no more entries");
    let limits = rig.guest.adapter.limits();
    rig.guest.set_register(regs::CONTROL, regs::Control::RESET.bits());
    assert_eq!(KINDS.map(|kind| rig.actual(kind)), [0; KINDS.len()]);
    rig.guest.bring_up();
    assert_eq!(rig.guest.adapter.limits(), limits);
    let pdn = rig.guest.on_object(Opcode::AllocPd, 0).expect("PD");
    rig.window(pdn).expect("a window");
    assert_eq!(rig.window(pdn), Err(FULL));
}
