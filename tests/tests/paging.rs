//! Regions that are registered on demand, whose pages the kernel takes away while messages move
//! (`tests/programs/paging.c`). rdma-core's own tests are in `ci/ports/pyverbs`.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::commands::{LONG_TIMEOUT, SHORT_TIMEOUT, settles, works};
use vrnic_tests::harness::{self, Case};
use vrnic_tests::object_counts::ObjectCounts;

/// The cases of `vrnic_paging`.
const CASES: [&str; 11] = [
    "messages",
    "traffic",
    "forks",
    "moved",
    "unmapped",
    "advice",
    "implicit",
    "huge",
    "refused",
    "read_only",
    "charged",
];

fn main() -> ExitCode {
    let case = |name: &'static str| Case::new(name, move |pair: &mut Pair| program(pair, name));
    let mut cases: Vec<Case> = CASES.into_iter().map(case).collect();
    cases.push(Case::new("swapped", |pair| swapped(pair)));
    cases.push(Case::new("killed_while_it_waits_for_pages", killed));
    cases.push(Case::new("still_works", |pair| works(pair)));
    harness::main(Options::default(), cases)
}

/// Calls `run`, which must leave no object.
fn leaves_nothing(pair: &Pair, run: impl FnOnce() -> Result<()>) -> Result<()> {
    let before = ObjectCounts::take(pair, &pair.a)?;
    run()?;
    before.unchanged(pair, &pair.a)
}

/// A case of the program.
fn program(pair: &Pair, name: &str) -> Result<()> {
    leaves_nothing(pair, || {
        let text = pair.a.check(&format!("vrnic_paging {name}"), LONG_TIMEOUT)?;
        ensure!(text.contains(&format!("{name}: good")), "no '{name}' in\n{text}");
        Ok(())
    })
}

/// Shell words that make a control group of memory and a swap space, run the program in it, and let
/// the kernel write its pages to the swap space meanwhile. They print how many pages that were.
const SWAP: &str = "
    set -e
    modprobe brd rd_nr=1 rd_size=65536; mkswap /dev/ram0 >/dev/null; swapon /dev/ram0
    mkdir -p /sys/fs/cgroup; mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
    cd /sys/fs/cgroup; echo +memory >cgroup.subtree_control; mkdir swapped
    before=$(awk '/^pswpout/ { print $2 }' /proc/vmstat)
    sh -c 'echo $$ >swapped/cgroup.procs; exec vrnic_paging swapped' >/tmp/said & program=$!
    while kill -0 $program 2>/dev/null; do
        echo 1M >swapped/memory.reclaim 2>/dev/null || true; sleep 0.02
    done
    wait $program; grep -q 'swapped: good' /tmp/said
    rmdir swapped; cd /; swapoff /dev/ram0; rmmod brd
    echo $(($(awk '/^pswpout/ { print $2 }' /proc/vmstat) - before))";

/// Pages of regions go to the swap space under traffic, and come back when messages need them.
fn swapped(pair: &Pair) -> Result<()> {
    leaves_nothing(pair, || {
        let pages: u32 = pair.a.check(SWAP, LONG_TIMEOUT)?.trim().parse()?;
        ensure!(pages > 2000, "only {pages} pages were swapped");
        Ok(())
    })
}

/// Processes are killed while their messages wait for pages.
fn killed(pair: &mut Pair) -> Result<()> {
    leaves_nothing(pair, || {
        for tenths in 1..6 {
            let command = format!(
                "for n in 1 2 3; do vrnic_paging traffic >/dev/null & done; sleep 0.{tenths}; \
                 pkill -KILL vrnic_paging; wait"
            );
            pair.a.check(&command, SHORT_TIMEOUT)?;
        }
        settles(&pair.a, "! pgrep vrnic_paging", 20)
    })
}
