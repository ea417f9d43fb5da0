//! Numbers in commands. Each row is a command with valid parameters of A, except for one number.
//!
//! Shows: hostile: numbers of objects of other functions, in each command

use vrnic_abi::admin::{
    AllocMr, AllocMw, ArmRange, CreateCq, CreateQp, CreateSrq, Inspect, Inspected, ModifyCq,
    ModifySrq, MwType, NO_QUEUE, Opcode as Admin, Rereg, ReregMr, ResizeCq, SrqType, Status,
    command,
};
use vrnic_abi::direct::Direction;
use vrnic_abi::qp::{Attr, State, Type};
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::memory::Ram;
use vrnic_testdriver::qp::{ALL, INIT, attributes};
use vrnic_testdriver::stream;

use super::function::{Function, Numbers, Picture, RANGE, range_state};
use crate::direct::transfer;
use crate::memory::keys::PAGE;
use crate::messages::multicast::{GROUP, GROUP6, attach, detach};
use crate::world::World;

type Done = Result<(), Refused>;

/// A command of A with one of these numbers.
struct Row {
    what: &'static str,
    run: fn(&Function, &Numbers) -> Done,
    /// The outcome if the number is that of an object of A. It is never [`Status::NotFound`].
    own: Status,
}

const fn row(what: &'static str, run: fn(&Function, &Numbers) -> Done, own: Status) -> Row {
    Row { what, run, own }
}

fn on(a: &Function, opcode: Admin, id: u32) -> Done {
    a.guest.on_object(opcode, id).map(|_| ())
}

fn create_qp(a: &Function, tune: impl Fn(&mut CreateQp)) -> Done {
    let mut params = a.end.params();
    tune(&mut params);
    a.guest.create_qp(&params).map(|_| ())
}

fn create_cq(a: &Function, uar: u32, eqn: u32) -> Done {
    let params = CreateCq::new(uar, eqn, 4, Ram::pages(a.guest.ram().alloc(PAGE)));
    a.guest.command::<command::CreateCq>(&params).map(|_| ())
}

fn create_srq(a: &Function, tune: impl Fn(&mut CreateSrq)) -> Done {
    let own = &a.numbers;
    let mut params = CreateSrq {
        pages: Ram::pages(a.guest.ram().alloc(PAGE)),
        pdn: own.pdn.into(),
        uar: own.uar.into(),
        log_size: 3,
        log_stride: 6,
        ..CreateSrq::default()
    };
    tune(&mut params);
    a.guest.command::<command::CreateSrq>(&params).map(|_| ())
}

/// Makes an SRQ of XRC, except for this change.
fn create_xrc_srq(a: &Function, tune: impl Fn(&mut CreateSrq)) -> Done {
    create_srq(a, |params| {
        params.srq_type = SrqType::Xrc as u8;
        params.xrcdn = a.numbers.xrcdn.into();
        params.cqn = a.numbers.cqn.into();
        tune(params);
    })
}

fn rereg(a: &Function, key: u32, pdn: u32) -> Done {
    let params = ReregMr { pdn: pdn.into(), ..ReregMr::new(key, Rereg::PD) };
    a.guest.command::<command::ReregMr>(&params).map(|_| ())
}

fn modify_qp(a: &Function, qpn: u32) -> Done {
    let attr = Attr { state: State::Init as u8, ..attributes(a.guest.mac(), 0) };
    a.guest.modify_qp(qpn, INIT, &attr)
}

fn open_connection(a: &Function, qpn: u32) -> Done {
    let macs = [a.guest.mac(), [2, 0, 0, 0, 0, 99]];
    a.guest.open_connection(qpn, &stream::connection(0, macs, stream::MSS))
}

/// Lists the QPs from a number on. To list none is to find none.
fn inspect(a: &Function, qpn: u32) -> Done {
    let params = Inspect::new(Inspected::Qp, qpn, a.guest.ram().alloc(PAGE), PAGE as u32);
    match a.guest.command::<command::Inspect>(&params)?.count.get() {
        0 => Err(Refused(Status::NotFound, 0)),
        _ => Ok(()),
    }
}

/// Rows for the numbers of contexts, UARs, PDs and event queues.
const OWNERS: &[Row] = &[
    row("ALLOC_UAR", |a, n| on(a, Admin::AllocUar, n.context), Status::Ok),
    row("ALLOC_PD", |a, n| on(a, Admin::AllocPd, n.context), Status::Ok),
    row("FREE_CONTEXT", |a, n| on(a, Admin::FreeContext, n.context), Status::Busy),
    row("CREATE_CQ: UAR", |a, n| create_cq(a, n.uar, a.numbers.eqn), Status::Ok),
    row("CREATE_QP: UAR", |a, n| create_qp(a, |p| p.uar = n.uar.into()), Status::Ok),
    row("CREATE_SRQ: UAR", |a, n| create_srq(a, |p| p.uar = n.uar.into()), Status::Ok),
    row("FREE_UAR", |a, n| on(a, Admin::FreeUar, n.uar), Status::Busy),
    row("CREATE_QP: PD", |a, n| create_qp(a, |p| p.pdn = n.pdn.into()), Status::Ok),
    row("CREATE_SRQ: PD", |a, n| create_srq(a, |p| p.pdn = n.pdn.into()), Status::Ok),
    row(
        "REG_MR: PD",
        |a, n| a.guest.reg_flat(n.pdn, ALL, a.end.buffer, PAGE).map(|_| ()),
        Status::Ok,
    ),
    row("REREG_MR: PD", |a, n| rereg(a, a.numbers.key, n.pdn), Status::Ok),
    row(
        "ALLOC_MR: PD",
        |a, n| a.guest.command::<command::AllocMr>(&AllocMr::new(n.pdn, 1)).map(|_| ()),
        Status::Permission,
    ),
    row(
        "ALLOC_MW: PD",
        |a, n| a.guest.command::<command::AllocMw>(&AllocMw::new(n.pdn, MwType::Type1)).map(|_| ()),
        Status::Ok,
    ),
    row("FREE_PD", |a, n| on(a, Admin::FreePd, n.pdn), Status::Busy),
    row("CREATE_CQ: EQ", |a, n| create_cq(a, a.numbers.uar, n.eqn), Status::Ok),
    row("DESTROY_EQ", |a, n| on(a, Admin::DestroyEq, n.eqn), Status::Busy),
];

/// Rows for the numbers of queues and domains.
const QUEUES: &[Row] = &[
    row("CREATE_QP: send CQ", |a, n| create_qp(a, |p| p.send_cqn = n.cqn.into()), Status::Ok),
    row("CREATE_QP: receive CQ", |a, n| create_qp(a, |p| p.recv_cqn = n.cqn.into()), Status::Ok),
    row("CREATE_SRQ: CQ", |a, n| create_xrc_srq(a, |p| p.cqn = n.cqn.into()), Status::Ok),
    row(
        "MODIFY_CQ",
        |a, n| a.guest.command::<command::ModifyCq>(&ModifyCq::new(n.cqn, 2, 2)),
        Status::Ok,
    ),
    row(
        "RESIZE_CQ",
        |a, n| {
            let pages = Ram::pages(a.guest.ram().alloc(2 * PAGE));
            a.guest.command::<command::ResizeCq>(&ResizeCq::new(n.cqn, 7, pages)).map(|_| ())
        },
        Status::Ok,
    ),
    row("DESTROY_CQ", |a, n| on(a, Admin::DestroyCq, n.cqn), Status::Busy),
    row(
        "CREATE_QP: SRQ",
        |a, n| {
            create_qp(a, |p| {
                (p.srqn, p.rq_log_size) = (n.srqn.into(), NO_QUEUE);
                (p.rq_table, p.rq_page_shift, p.rq_log_stride) = (0.into(), 0, 0);
            })
        },
        Status::Ok,
    ),
    row(
        "MODIFY_SRQ",
        |a, n| a.guest.command::<command::ModifySrq>(&ModifySrq::new(n.srqn, 1)),
        Status::Ok,
    ),
    row(
        "QUERY_SRQ",
        |a, n| a.guest.command::<command::QuerySrq>(&n.srqn.into()).map(|_| ()),
        Status::Ok,
    ),
    row("DESTROY_SRQ", |a, n| on(a, Admin::DestroySrq, n.srqn), Status::Ok),
    row(
        "CREATE_SRQ: XRC domain",
        |a, n| create_xrc_srq(a, |p| p.xrcdn = n.xrcdn.into()),
        Status::Ok,
    ),
    row(
        "CREATE_QP: XRC domain",
        |a, n| {
            create_qp(a, |p| {
                (p.qp_type, p.pdn, p.xrcdn) = (Type::XrcTgt as u8, 0.into(), n.xrcdn.into());
            })
        },
        Status::Permission,
    ),
    row("FREE_XRCD", |a, n| on(a, Admin::FreeXrcd, n.xrcdn), Status::Ok),
    row("MODIFY_QP", |a, n| modify_qp(a, n.qpn), Status::Ok),
    row("QUERY_QP", |a, n| a.guest.query_qp(n.qpn).map(|_| ()), Status::Ok),
    row("INSPECT", |a, n| inspect(a, n.qpn), Status::Ok),
    row("OPEN_CONNECTION", |a, n| open_connection(a, n.qpn), Status::BadState),
    row("QUERY_CONNECTION", |a, n| a.guest.query_connection(n.qpn).map(|_| ()), Status::BadState),
    row(
        "ARM_RANGE: QP",
        |a, n| {
            let params =
                ArmRange { qpn: n.qpn.into(), ..transfer(&a.end, RANGE + 1, Direction::Write, 64) };
            a.guest.command::<command::ArmRange>(&params)
        },
        Status::Ok,
    ),
    row("ATTACH_MCAST: QP", |a, n| attach(&a.guest, n.datagram_qpn, a.numbers.group), Status::Ok),
    row("DETACH_MCAST: QP", |a, n| detach(&a.guest, n.datagram_qpn, a.numbers.group), Status::Ok),
    row(
        "DETACH_MCAST: group",
        |a, n| detach(&a.guest, a.numbers.datagram_qpn, n.group),
        Status::Ok,
    ),
    row("DESTROY_QP", |a, n| on(a, Admin::DestroyQp, n.qpn), Status::Ok),
];

/// Commands that name a key of another function.
const KEYS: &[Row] = &[
    row("REREG_MR", |a, n| rereg(a, n.key, a.numbers.pdn), Status::Ok),
    row("REVOKE_MR", |a, n| on(a, Admin::RevokeMr, n.key), Status::Ok),
    row("DEREG_MR", |a, n| on(a, Admin::DeregMr, n.key), Status::Ok),
    row("DEALLOC_MW", |a, n| on(a, Admin::DeallocMw, n.window), Status::Ok),
];

/// Rows for ranges, all of which each function has.
const RANGES: &[Row] = &[
    row(
        "QUERY_RANGE",
        |a, _| a.guest.command::<command::QueryRange>(&RANGE.into()).map(|_| ()),
        Status::Ok,
    ),
    row(
        "ARM_RANGE",
        |a, _| a.guest.command::<command::ArmRange>(&transfer(&a.end, RANGE, Direction::Read, 8)),
        Status::Ok,
    ),
    row("END_RANGE", |a, _| on(a, Admin::EndRange, RANGE), Status::Ok),
];

/// Returns two functions, and the picture of the second one, whose numbers differ unless `others`
/// is zero.
fn functions(others: u32) -> (Function, Function, Picture) {
    let world = World::default();
    let a = Function::new(world.guest(1), 0, GROUP);
    let group = if others == 0 { GROUP } else { GROUP6 };
    let c = Function::new(world.guest(3), others, group);
    c.arm();
    let picture = Picture::of(&c.guest);
    (a, c, picture)
}

#[test]
fn a_command_finds_no_object_of_another_function() {
    let (a, c, picture) = functions(8);
    for Row { what, run, .. } in [OWNERS, QUEUES, KEYS].into_iter().flatten() {
        let counts = a.guest.adapter.counts();
        assert_eq!(run(&a, &c.numbers), Err(Refused(Status::NotFound, 0)), "{what}");
        assert_eq!(a.guest.adapter.counts(), counts, "{what}");
        picture.check(&c.guest, what);
    }
    assert_eq!(range_state(&c.guest), (1, 0, 0));
}

#[test]
fn a_command_means_the_object_of_its_own_function() {
    for Row { what, run, own } in [OWNERS, QUEUES, KEYS, RANGES].into_iter().flatten() {
        let (a, c, picture) = functions(0);
        assert_eq!(a.numbers, c.numbers);
        let status = run(&a, &c.numbers).map_or_else(|Refused(status, _)| status, |()| Status::Ok);
        assert_eq!(status, *own, "{what}");
        picture.check(&c.guest, what);
        assert_eq!(range_state(&c.guest), (1, 0, 0), "{what}");
    }
}
