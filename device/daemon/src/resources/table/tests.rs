//! Tests of the table of resources.
//!
//! Shows: resources

use super::*;

fn few() -> Limits {
    Limits { qp: 10, cq: 20, wr: 64, device_memory: 1, ..Limits::default() }
}

fn row(name: &str, maximum: Limits) -> Row {
    Row { name: name.to_owned(), mac: MacAddr([2, 0, 0, 0, 0, 1]), maximum }
}

fn table(physical: &[(Resource, u64)]) -> ResourceTable {
    ResourceTable::new(3, few(), physical.iter().copied().collect())
}

#[test]
fn without_maxima_of_the_adapter_every_function_gets_the_default() {
    let mut table = table(&[]);
    for name in ["a", "b", "c"] {
        table.admit(row(name, few())).expect("room");
    }
    assert_eq!((table.maximum(Resource::Qp), table.assigned(Resource::Qp)), (30, Some(30)));
    assert_eq!((table.maximum(Resource::Wr), table.assigned(Resource::Wr)), (64, None));
    assert_eq!(table.maximum(Resource::DeviceMemory), 6 << 20);
    assert_eq!(table.admit(row("d", Limits::NONE)), Err(Refusal::Entries(3)));
    table.remove("b");
    table.admit(row("d", few())).expect("a free row");
    let names: Vec<_> = table.rows().map(|row| (row.number, row.row.name.as_str())).collect();
    assert_eq!(names, [(1, "a"), (2, "d"), (3, "c")]);
}

#[test]
fn every_resource_is_tested_and_equality_passes() {
    for &resource in Resource::ALL {
        let requested = few().of(resource);
        let factor = if resource.is_used_up() { 2 } else { 1 };
        let mut exact = table(&[(resource, factor * requested)]);
        exact.admit(row("a", few())).expect("the first");
        exact.admit(row("b", few())).expect("all that is left");
        let mut short = table(&[(resource, factor * requested - 1)]);
        let refused = if resource.is_used_up() {
            short.admit(row("a", few())).expect("the first");
            short.admit(row("b", few()))
        } else {
            short.admit(row("a", few()))
        };
        let left = requested - 1;
        let maximum = factor * requested - 1;
        let name = resource.name();
        assert_eq!(refused, Err(Refusal::Resources { resource: name, requested, left, maximum }));
        let assigned = resource.is_used_up().then_some(requested);
        assert_eq!(short.assigned(resource), assigned, "a refusal changes nothing");
    }
}

#[test]
fn a_refusal_names_the_resource_and_what_is_left() {
    let mut table = table(&[(Resource::Qp, 15)]);
    table.admit(row("a", few())).expect("room");
    let error = table.admit(row("b", few())).expect_err("no room").to_string();
    let text = "out of resources: 10 of qp were requested, and 5 of 15 are left";
    assert_eq!(error, text);
    table.admit(row("b", Limits { qp: 5, ..few() })).expect("all that is left");
}

#[test]
fn a_function_gets_more_only_if_it_is_left() {
    let mut table = table(&[(Resource::Qp, 15)]);
    table.admit(row("a", few())).expect("room");
    let with = |qp| Limits { qp, ..few() };
    table.check(&few(), &with(15)).expect("all");
    table.check(&few(), &with(16)).expect_err("one more");
    table.replace("a", with(7));
    assert_eq!(
        (table.of("a").map(|limits| limits.qp), table.assigned(Resource::Qp)),
        (Ok(7), Some(7))
    );
    assert_eq!(table.of("b"), Err(Refusal::Absent("b".to_owned())));
}

#[test]
fn a_maximum_of_the_adapter_below_what_is_assigned_is_refused_or_drains() {
    let mut table = table(&[]);
    table.admit(row("a", few())).expect("room");
    let nine = BTreeMap::from([(Resource::Qp, 9)]);
    let refused = table.set_physical(nine.clone(), Shrink::Refuse);
    assert_eq!(refused, Err(Refusal::Assigned { resource: "qp", assigned: 10, maximum: 9 }));
    assert_eq!(table.maximum(Resource::Qp), 30);
    table.set_physical(nine, Shrink::Drain).expect("it drains");
    let one = Limits { qp: 1, ..few() };
    let left = |table: &mut ResourceTable| match table.admit(row("b", one)) {
        Err(Refusal::Resources { left, .. }) => Some(left),
        _ => None,
    };
    assert_eq!(left(&mut table), Some(0));
    table.check(&few(), &Limits { qp: 9, ..few() }).expect("less");
    table.replace("a", Limits { qp: 8, ..few() });
    table.admit(row("b", one)).expect("room");
    let short = BTreeMap::from([(Resource::Wr, 63)]);
    table.set_physical(short, Shrink::Refuse).expect_err("a function has longer queues");
}

#[test]
fn no_more_is_assigned_than_there_is_after_any_changes() {
    let mut random = fastrand::Rng::with_seed(25);
    let limits = |random: &mut fastrand::Rng| {
        let mut limits = few();
        for &resource in Resource::ALL {
            let place = limits.place(resource);
            *place = random.u32(0..=*place);
        }
        limits
    };
    for _ in 0..50 {
        let most = |resource: Resource| if resource.is_used_up() { 3 } else { 1 };
        let physical =
            Resource::ALL.iter().map(|kind| (*kind, random.u64(0..=most(*kind) * few().of(*kind))));
        let mut table = ResourceTable::new(3, few(), physical.collect());
        for _ in 0..200 {
            let (before, name) =
                (table.clone(), *random.choice(&["a", "b", "c", "d"]).expect("one"));
            let new = limits(&mut random);
            match (table.of(name), random.bool()) {
                (Err(_), _) => {
                    if table.admit(row(name, new)).is_err() {
                        assert_eq!(table, before);
                    }
                }
                (Ok(_), true) => table.remove(name),
                (Ok(old), false) => {
                    if table.check(&old, &new).is_ok() {
                        table.replace(name, new);
                    }
                }
            }
            for &resource in Resource::ALL {
                let rows = table.rows().map(|row| row.row.maximum.of(resource));
                let sum: u64 =
                    if resource.is_used_up() { rows.sum() } else { rows.max().unwrap_or(0) };
                assert!(sum <= table.maximum(resource), "{resource:?}");
            }
        }
    }
}
