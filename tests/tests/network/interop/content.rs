//! The conformance program: every byte of every operation, and the completions on both sides.
//!
//! Shows: roce

use anyhow::{Context, Result};
use vrnic_qemu::pair::Pair;
use vrnic_tests::conformance::between;
use vrnic_tests::harness::Case;
use vrnic_tests::object_counts::ObjectCounts;

use super::both_ways;
use super::ends::Way;
use super::network::{set_mtu, with_losses};

/// Groups of its cases. Messages of 64 MiB take too long with rxe.
const GROUPS: &[&str] = &[
    "--only data/ --skip 64MiB",
    "--only segments/ --only inline/",
    "--only order/ --only atomics/",
    "--only srq/ --only datagrams/",
    "--only rnr/",
    "--only mistakes/",
];

/// Cases that rxe does not pass at the end that has the shared receive queue, or as a sender of
/// datagrams. docs/roce.md names the causes.
const UNFIT: [(Way, &[&str]); 2] = [
    (
        Way::ToRxe,
        &[
            "srq/limit_event",
            "srq/destroyed_qps_give_receives_back",
            "srq/sizes_and_users",
            "srq/one_last_wqe_event_for_each_end",
            "srq/a_queue_changes_its_size",
        ],
    ),
    (
        Way::FromRxe,
        &[
            "datagrams/queue_keys",
            "datagrams/longest",
            "datagrams/operations_they_lack",
            "mistakes/read_with_another_path_mtu",
            "atomics/atomic_write",
        ],
    ),
];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for group in GROUPS {
        cases.extend(both_ways(&format!("conformance {group}"), move |pair, way| {
            conforms(pair, way, group, 1500)
        }));
    }
    // rxe does not receive from a group that was joined only by verbs.
    cases.push(Case::new("conformance --only multicast from rxe", |pair: &mut Pair| {
        let groups = "--only multicast/members --only multicast/ipv6";
        conforms(pair, Way::FromRxe, groups, 1500)
    }));
    cases.extend(both_ways("MTU 4096: conformance", |pair, way| {
        conforms(pair, way, "--only KiB --only 4097 --only datagrams/", 9000)
    }));
    cases.extend(both_ways("losses: conformance", |pair, way| {
        let (_server, _client) = way.ends(pair)?;
        let selection = "--only KiB --only 4097 --only atomics/fetch_add_of";
        with_losses(pair, 10, || conforms(pair, way, selection, 1500))
    }));
    cases
}

/// Runs these cases with end b as the server, and checks that they leave no objects in the adapter.
fn conforms(pair: &Pair, way: Way, selection: &str, mtu: u32) -> Result<()> {
    let (server, client) = way.ends(pair)?;
    set_mtu(pair, mtu)?;
    let mut options = selection.to_owned();
    for case in UNFIT.iter().filter(|(of, _)| *of == way).flat_map(|(_, cases)| *cases) {
        options += &format!(" --skip {case}");
    }
    let before = ObjectCounts::take(pair, &pair.a)?;
    between(server, client, &options)?;
    before.unchanged(pair, &pair.a).context("something is left")
}
