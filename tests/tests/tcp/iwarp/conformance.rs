//! The cases of the conformance program that apply to iWARP.
//!
//! Shows: iwarp

use vrnic_qemu::pair::Pair;
use vrnic_tests::conformance::run_managed;
use vrnic_tests::harness::Case;

/// The groups of these cases.
const GROUPS: [&str; 23] = [
    "connections",
    "data",
    "segments",
    "inline",
    "queues",
    "credits",
    "counters",
    "order",
    "atomics",
    "events",
    "extended",
    "local_errors",
    "remote_errors",
    "raw",
    "regions",
    "windows",
    "direct",
    "attributes",
    "async_events",
    "srq",
    "stress",
    "isolation",
    "loopback",
];

/// Returns one case for each group.
pub(super) fn cases() -> Vec<Case> {
    let group = |group: &'static str| {
        let only = format!("--only {group}/");
        Case::new(format!("verify, {group}"), move |pair: &mut Pair| run_managed(pair, &only))
    };
    GROUPS.into_iter().map(group).collect()
}
