//! Admin commands that fail, wait or get no answer.
//!
//! Shows: faults

use vrnic_abi::admin::{Completion, Opcode, PARAMS_LEN, Status};
use vrnic_abi::pci::VECTOR_ASYNC;
use vrnic_abi::regs;
use vrnic_testdriver::admin::Refused;

use super::MILLI;
use crate::bus::Guest;
use crate::world::World;

/// Posts ALLOC_CONTEXT. Returns its id.
fn post(guest: &Guest) -> u32 {
    guest.with_admin(|queue| {
        let id = queue.post(Opcode::AllocContext as u16, 0, [0; PARAMS_LEN]);
        guest.set_register(regs::ADMIN_SQ_PI, queue.producer());
        id
    })
}

/// Takes the next completion. Returns its id and its status.
fn answer(guest: &Guest) -> Option<(u32, u16)> {
    let completion: Option<Completion> = guest.with_admin(|queue| queue.poll());
    completion.map(|completion| (completion.id.get(), completion.status.get()))
}

/// Lets time pass and does what is due.
fn pass(world: &World, guest: &Guest, nanos: u64) {
    world.advance(nanos);
    if guest.adapter.run_faults().control {
        guest.adapter.control();
    }
}

#[test]
fn a_command_fails_with_the_status_without_being_executed() {
    let world = World::copying();
    let guest = world.guest(1);
    world.rule("fail-command status=no-resource command=alloc-context function=f1 nth=2");
    let first = guest.alloc_context().expect("the first");
    assert_eq!(guest.alloc_context(), Err(Refused(Status::NoResource, 0)));
    assert_eq!(guest.alloc_context(), Ok(first + 1), "none was allocated");
    assert_eq!((world.counts(), guest.stats().cmds_err.get()), ((3, 1), 1));
}

#[test]
fn a_command_is_late_with_those_behind_it() {
    let world = World::copying();
    let guest = world.guest(1);
    world.rule("delay-command by=5ms command=alloc-context times=1");
    guest.host.interrupts(VECTOR_ASYNC);
    let ids = [post(&guest), post(&guest)];
    pass(&world, &guest, 4 * MILLI);
    assert_eq!((answer(&guest), guest.host.interrupts(VECTOR_ASYNC)), (None, 0));
    pass(&world, &guest, MILLI);
    for id in ids {
        assert_eq!(answer(&guest), Some((id, Status::Ok as u16)));
    }
    assert_eq!((world.counts(), guest.host.interrupts(VECTOR_ASYNC)), ((2, 1), 2));
}

#[test]
fn a_command_gets_no_answer_and_those_behind_it_do() {
    let world = World::copying();
    let guest = world.guest(1);
    world.rule("drop-command command=alloc-context nth=1");
    let [lost, next] = [post(&guest), post(&guest)];
    assert_eq!(answer(&guest), Some((next, Status::Ok as u16)), "not that of {lost}");
    assert_eq!(answer(&guest), None);
    // A reset ends what waits.
    world.rule("delay-command by=5s");
    post(&guest);
    world.fabric.faults.clear();
    guest.bring_up();
    assert_eq!(guest.alloc_context().map(|_| ()), Ok(()));
}

/// Nothing is left of a command that has run because its rule was removed.
#[test]
fn a_late_command_runs_when_its_rule_goes() {
    let world = World::copying();
    let guest = world.guest(1);
    world.rule("delay-command by=1s");
    let id = post(&guest);
    assert_eq!(answer(&guest), None);
    world.fabric.faults.clear();
    guest.adapter.control();
    assert_eq!(answer(&guest), Some((id, Status::Ok as u16)));
    let left = guest.adapter.run_faults();
    assert!(!left.control && !left.again);
}
