//! The domains themselves. A's QP has the number and the PD of C's, so that only the domain differs
//! if its work meets C's table of keys.
//!
//! Shows: memory: the domain of a function in its keys, windows and ranges, compared last

use std::sync::Arc;

use vrnic_abi::admin::MwType;
use vrnic_abi::qp::Access;
use vrnic_adapter::adapter::Adapter;
use vrnic_adapter::datapath::sgl::SgList;
use vrnic_adapter::datapath::turn::TurnContext;
use vrnic_adapter::host::{GuestMemory, Lane};
use vrnic_adapter::limits::Limits;
use vrnic_adapter::memory::tpt::{
    Binding, Bound, Buffer, ByteRange, CommandData, Denied, Message, Registration, RemoteUse, Tpt,
    User,
};
use vrnic_adapter::requests::wqe::Segment;
use vrnic_adapter::slice::Slice;
use vrnic_packet::MacAddr;
use vrnic_testdriver::qp::ALL;

use super::keys::{Keys, Scene, Way};
use crate::host::TestHost;
use crate::memory::keys::{PAGE, reg_seg};
use crate::world::World;

const READ: Access = Access::REMOTE_READ;

/// A use of C's keys by a QP.
type Use = fn(&Scene, &Tpt, User, &Keys) -> Result<(), Denied>;

fn local(tpt: &Tpt, user: User, key: u32, range: ByteRange, need: Access) -> Result<(), Denied> {
    tpt.check(&(), key.into(), user, range, need).map(|_| ())
}

fn remote(tpt: &Tpt, user: User, key: u32, addr: u64) -> Result<(), Denied> {
    tpt.check_remote(&(), key.into(), user, ByteRange { addr, len: 8 }, RemoteUse::new(READ, 0))
        .map(|_| ())
}

fn command(
    scene: &Scene,
    tpt: &Tpt,
    user: User,
    segment: Segment,
    physical: bool,
) -> Result<(), Denied> {
    let segments = [segment].into_iter();
    let buffer = if physical { Buffer::Physical(segments) } else { Buffer::Ranges(segments) };
    let data = CommandData { buffer, access: READ, one_touch: false, id: 1, may_be_empty: false };
    tpt.insert_command(&scene.guests[2].host.hold(Lane::SHARED), user, data).map(|_| ())
}

/// Each use, in an order in which all of them succeed for C's own QP.
const USES: [(&str, Use); 11] = [
    ("local", |_, tpt, user, k| {
        local(tpt, user, k.region, ByteRange { addr: k.addr, len: 8 }, Access::LOCAL_WRITE)
    }),
    ("remote", |_, tpt, user, k| remote(tpt, user, k.region, k.addr)),
    ("remote by a window", |_, tpt, user, k| remote(tpt, user, k.window, k.addr)),
    ("remote to a command", |_, tpt, user, k| remote(tpt, user, k.command, 0)),
    ("BIND_MW", |_, tpt, user, k| {
        let (addr, access) = (k.addr, READ);
        let wanted = Binding {
            lkey: k.region.into(),
            addr,
            length: 8,
            access,
            one_touch: false,
            same_key: false,
        };
        tpt.bind(k.idle_window.into(), user, &wanted).map(|_| ())
    }),
    ("REG_MR", |s, tpt, user, k| {
        let pages = reg_seg(&s.guests[2], &[k.addr], PAGE, ALL);
        let wanted = Registration::new(k.idle_fast.into(), user, k.addr, &pages)?;
        let host = &s.guests[2].host;
        tpt.register(&host.hold(Lane::SHARED), &wanted)
    }),
    ("SEND_CMD", |s, tpt, user, k| {
        command(s, tpt, user, Segment { addr: k.addr, len: 8, key: k.region.into() }, false)
    }),
    ("SEND_CMD of guest addresses", |s, tpt, user, k| {
        command(s, tpt, user, Segment { addr: k.addr, len: 8, key: 0.into() }, true)
    }),
    ("the end of a command", |_, tpt, user, k| tpt.end_command(k.command.into(), user).map(|_| ())),
    ("LOCAL_INV", |_, tpt, user, k| tpt.invalidate(k.fast.into(), user, false)),
    ("SEND_INV", |_, tpt, user, k| tpt.invalidate(k.window.into(), user, true)),
];

/// Returns the users of keys that the QPs of A and C are.
fn users(s: &Scene) -> [User; 2] {
    let user = |guest: usize| s.guests[guest].adapter.qp(s.a.qpn).expect("the QP").user();
    let [a, c] = [user(0), user(2)];
    assert_eq!((a.pdn, a.qpn), (c.pdn, c.qpn));
    [a, c]
}

#[test]
fn a_table_is_used_by_its_own_function_only() {
    let s = Scene::new(Way::Roce, 0);
    let [a, c] = users(&s);
    let tpt = s.guests[2].adapter.tpt();
    for (what, run) in USES {
        assert_eq!(run(&s, &tpt, a, &s.foreign), Err(Denied::Foreign), "{what}");
    }
    assert!(s.picture.has_keys_of(&s.guests[2]), "the keys of C have changed");
    for (what, run) in USES {
        assert_eq!(run(&s, &tpt, c, &s.foreign), Ok(()), "{what}");
    }
}

#[test]
fn a_window_is_unbound_by_its_own_function_only() {
    let s = Scene::new(Way::Roce, 0);
    let [a, c] = users(&s);
    let tpt = s.guests[2].adapter.tpt();
    let window = tpt.insert_window(c.pdn, MwType::Type1).expect("room");
    let (lkey, access) = (s.foreign.region.into(), Access::empty());
    let nothing = Binding { lkey, addr: 0, length: 0, access, one_touch: false, same_key: false };
    assert_eq!(tpt.bind(window, a, &nothing), Err(Denied::Foreign));
    assert_eq!(tpt.bind(window, c, &nothing), Ok(Bound::Fresh));
}

/// The traditional checks come first.
#[test]
fn the_domain_is_compared_last() {
    let s = Scene::new(Way::Roce, 0);
    let [a, _] = users(&s);
    let tpt = s.guests[2].adapter.tpt();
    let Keys { region, window, addr, .. } = s.foreign;
    let (inside, outside) = (ByteRange { addr, len: 8 }, ByteRange { addr, len: PAGE + 1 });
    let none = Access::empty();
    assert_eq!(local(&tpt, a, region ^ 1, inside, none), Err(Denied::Stale));
    assert_eq!(local(&tpt, a, region, outside, none), Err(Denied::Bounds));
    let atomic = Access::REMOTE_ATOMIC;
    let denied =
        tpt.check_remote(&(), window.into(), a, inside, RemoteUse::new(atomic, 0)).map(|_| ());
    assert_eq!(denied, Err(Denied::Rights));
    assert_eq!(local(&tpt, a, region, inside, none), Err(Denied::Foreign));
    let touched = tpt.end_message(region.into(), Message { qpn: a.qpn, number: 0 });
    assert!(!touched, "a refused use leaves no trace");
}

/// A turn that holds the memory of A works for no QP of C.
#[test]
fn the_memory_of_a_turn_is_that_of_its_qp() {
    let s = Scene::new(Way::Roce, 0);
    let Keys { region, addr, .. } = s.foreign;
    let segment = Segment { addr, len: 8, key: region.into() };
    let qp = s.guests[2].adapter.qp(s.a.qpn).expect("the QP");
    for (memory, expected) in [(2, Ok(())), (0, Err(Denied::Foreign))] {
        let adapter = &s.guests[memory].adapter;
        let slice = Slice::new(adapter.host(), Lane::SHARED);
        let turn = TurnContext::new(adapter.core(), &qp, &slice);
        let (mut own, mut of_peer) = (SgList::default(), SgList::default());
        assert_eq!(own.add(&turn, qp.user(), &segment, Access::empty()), expected);
        assert_eq!(
            of_peer.add_remote(&turn, qp.user(), &segment, RemoteUse::new(READ, 0)),
            expected
        );
    }
}

#[test]
fn a_domain_is_not_used_again() {
    let world = World::copying();
    let mut domains = Vec::new();
    for _ in 0..3 {
        let host = TestHost::new(&world.clock);
        let mac = [2, 0, 0, 0, 0, 1];
        let new =
            || Adapter::new("f", MacAddr(mac), host.clone(), &world.fabric, 1, Limits::default());
        let adapters = [new(), new()];
        domains.extend(adapters.iter().map(|adapter| adapter.core().domain()));
        assert_eq!(Arc::strong_count(&adapters[0]), 1);
    }
    for (nth, domain) in domains.iter().enumerate() {
        assert!(!domains[..nth].contains(domain), "{domains:?}");
    }
}
