//! The limits of QUERY_DEVICE are exact.
//!
//! Shows: resources

use std::sync::Arc;

use vrnic_abi::admin::{
    CreateCq, CreateEq, CreateSrq, Opcode, Pages, RegMr, SetGid, Status, command,
};
use vrnic_abi::cq;
use vrnic_abi::regs;
use vrnic_abi::sq;
use vrnic_adapter::limits::Limits;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::bus::Guest;
use crate::world::{Pair, World, by_packets};

const FULL: Refused = Refused(Status::NoResource, 0);

fn small() -> Limits {
    let few = Limits { contexts: 5, pd: 6, cq: 7, srq: 10, qp: 8, mr: 9, ..Limits::default() };
    Limits { device_memory: 1, ..few }
}

fn guest(limits: Limits) -> Guest {
    let world = World::default();
    world.guest_with(1, 1, limits)
}

/// Creates objects until this fails. Returns the objects, and the reason of the failure.
fn fill(mut create: impl FnMut() -> Result<u32, Refused>) -> (Vec<u32>, Refused) {
    let mut made = Vec::new();
    loop {
        match create() {
            Ok(id) => made.push(id),
            Err(why) => return (made, why),
        }
        assert!(made.len() <= 1 << 20, "the number of objects has no limit");
    }
}

/// Creates as many objects as possible. Checks that after one of them was destroyed, exactly one
/// can be created.
fn check(
    guest: &Guest,
    promised: u32,
    destroy: Opcode,
    mut create: impl FnMut() -> Result<u32, Refused>,
) -> Vec<u32> {
    let (made, why) = fill(&mut create);
    assert_eq!((made.len() as u32, why), (promised, FULL), "{destroy:?}");
    let some = made[made.len() / 2];
    assert!(guest.on_object(destroy, some).is_ok());
    let again = create().expect("room for one");
    assert_eq!(create(), Err(FULL));
    made.into_iter().filter(|id| *id != some).chain([again]).collect()
}

fn check_all(limits: Limits) {
    let guest = guest(limits);
    let caps = guest.caps();
    assert_eq!(
        [caps.max_contexts, caps.max_pd, caps.max_cq, caps.max_qp, caps.max_mr].map(|n| n.get()),
        [limits.contexts, limits.pd, limits.cq, limits.qp, limits.mr]
    );
    let alloc_pd = || guest.on_object(Opcode::AllocPd, 0);
    let pd = check(&guest, limits.pd, Opcode::FreePd, alloc_pd)[0];

    // The rings of all CQs are the same memory, because no entries are written.
    let page = guest.ram().alloc(4096);
    let eq = CreateEq::new(Pages::new(guest.ram().alloc(4096), 12, 0), 1, 4);
    let eqn = guest.command::<command::CreateEq>(&eq).expect("CREATE_EQ").eqn.get();
    let params = CreateCq::new(0, eqn, 0, Pages::new(page, 12, 0));
    // A UAR has a limited number of slots, so many objects need several UARs.
    let mut uar = 0;
    let mut with_uar = |create: &dyn Fn(u32) -> Result<u32, Refused>| {
        create(uar).or_else(|why| match guest.on_object(Opcode::AllocUar, 0) {
            Ok(more) if why == FULL => {
                uar = more;
                create(uar)
            }
            _ => Err(why),
        })
    };
    let create_cq = |uar: u32| {
        let params = CreateCq { uar: uar.into(), ..params };
        guest.command::<command::CreateCq>(&params).map(|made| made.cqn.get())
    };
    let cqs = check(&guest, limits.cq, Opcode::DestroyCq, || with_uar(&create_cq));
    let cq = cqs[0];
    for other in &cqs[1..] {
        assert!(guest.on_object(Opcode::DestroyCq, *other).is_ok());
    }

    let mut params = Setup::default().qp(&guest);
    (params.pdn, params.send_cqn, params.recv_cqn) = (pd.into(), cq.into(), cq.into());
    let create_qp = |uar: u32| {
        let mut params = params;
        params.uar = uar.into();
        guest.create_qp(&params).map(|made| made.0)
    };
    check(&guest, limits.qp, Opcode::DestroyQp, || with_uar(&create_qp));

    check(&guest, limits.mr, Opcode::DeregMr, || guest.reg_flat(pd, 0, page, 16));
    // Regions and windows are in the same table.
    let alloc_mw = vrnic_abi::admin::AllocMw::new(pd, vrnic_abi::admin::MwType::Type1);
    assert_eq!(guest.command::<command::AllocMw>(&alloc_mw).map(|_| ()), Err(FULL));
}

#[test]
fn as_many_as_promised_and_no_more() {
    check_all(small());
}

/// The largest limits, except for the keys: a million registrations take too long.
#[test]
fn as_many_as_there_can_be_and_no_more() {
    check_all(Limits { mr: 1 << 15, ..Limits::default() });
}

#[test]
fn contexts_event_queues_and_addresses() {
    for limits in [small(), Limits::default()] {
        let guest = guest(limits);
        let caps = guest.caps();
        let alloc = || guest.command::<command::AllocContext>(&()).map(|made| made.get());
        check(&guest, caps.max_contexts.get(), Opcode::FreeContext, alloc);

        let ring = guest.ram().alloc(4096);
        let create = |vector| CreateEq::new(Pages::new(ring, 12, 0), vector, 4);
        let create = || guest.command::<command::CreateEq>(&create(1)).map(|made| made.eqn.get());
        check(&guest, caps.max_eq.get(), Opcode::DestroyEq, create);

        let set = |index: u32| {
            let entry = SetGid::set(index as u16, [1; 16], [2; 6], 0xffff);
            guest.command::<command::SetGid>(&entry)
        };
        assert!((0..caps.max_gid.get()).all(|index| set(index).is_ok()));
        assert_eq!(set(caps.max_gid.get()), Err(Refused(Status::BadParam, 0)));
    }
}

/// A single UAR has enough slots for a small number of SRQs. `srq::the_limits_told_are_kept`
/// creates the largest number.
#[test]
fn shared_receive_queues_and_xrc_domains() {
    let guest = guest(small());
    let caps = guest.caps();
    let pdn = guest.on_object(Opcode::AllocPd, 0).expect("PD");
    let pages = Pages::new(guest.ram().alloc(4096), 12, 0);
    let params =
        CreateSrq { pages, pdn: pdn.into(), log_size: 0, log_stride: 5, ..CreateSrq::default() };
    let create = || guest.command::<command::CreateSrq>(&params).map(|made| made.srqn.get());
    assert_eq!(caps.max_srq.get(), small().srq);
    check(&guest, small().srq, Opcode::DestroySrq, create);

    let alloc = || guest.command::<command::AllocXrcd>(&()).map(|made| made.get());
    check(&guest, caps.max_xrcd.get(), Opcode::FreeXrcd, alloc);
}

/// A worker keeps references to QPs whose doorbell was rung. When a QP is destroyed, the worker is
/// woken to drop its reference.
#[test]
fn a_queue_pair_that_rang_is_let_go() {
    let mut pair = Pair::new();
    let write = Wr::new(sq::Opcode::Write, &[pair.a.sge(0, 8)]).to(pair.b.buffer, pair.b.key);
    assert_eq!(status(&pair.complete(&write)), cq::Status::Success);
    // The peer has a reference, too, until it is destroyed.
    assert!(pair.gb.on_object(Opcode::DestroyQp, pair.b.qpn).is_ok());
    let (qp, wakes) = (pair.ga.adapter.qp(pair.a.qpn).expect("there"), pair.ga.host.wakes());
    // Over packets, a timer also has a reference.
    let known = 4 + usize::from(by_packets());
    assert_eq!(
        Arc::strong_count(&qp),
        known,
        "references of this test, the table, the slot and the worker"
    );
    assert!(pair.ga.on_object(Opcode::DestroyQp, pair.a.qpn).is_ok());
    assert!(pair.ga.host.wakes() > wakes);
    pair.settle();
    assert_eq!(Arc::strong_count(&qp), 1);
}

/// When the adapter is reset, the memory of regions and keys is freed, and all earlier keys are
/// invalid.
///
/// Shows: memory
#[test]
fn a_reset_gives_the_memory_of_regions_back() {
    let guest = guest(Limits::default());
    let pd = |guest: &Guest| guest.on_object(Opcode::AllocPd, 0).expect("PD");
    // A table of two levels. All entries of the first level name the same page of the second level,
    // so the region has 512 times as many addresses.
    let lists = guest.ram().alloc(4096);
    let table = guest.ram().alloc(4096);
    guest.ram().write(table, &lists.to_le_bytes().repeat(512));
    guest.ram().write(lists, &guest.ram().alloc(4096).to_le_bytes().repeat(512));
    let register = |guest: &Guest| {
        let pages = Pages::new(table, 12, 2);
        let params = RegMr::new(pd(guest), 0, 0, 1 << 30, pages);
        guest.command::<command::RegMr>(&params).expect("REG_MR").get()
    };
    let key = register(&guest);
    let table = Arc::downgrade(&guest.adapter.tpt());
    assert!(guest.adapter.tpt().charged() >= 1 << 18);
    guest.set_register(regs::CONTROL, regs::Control::RESET.bits());
    assert!(table.upgrade().is_none(), "the table is still referenced");
    assert_eq!(guest.adapter.tpt().charged(), 0);
    guest.bring_up();
    let next = register(&guest);
    assert_eq!((next >> 8, next & 0xff), (key >> 8, (key & 0xff) + 1));
}
