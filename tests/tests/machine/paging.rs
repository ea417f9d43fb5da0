//! Regions that are registered on demand, whose pages the kernel takes away while messages move
//! (`tests/programs/paging.c`). rdma-core's own tests are in `ci/ports/pyverbs`.
//!
//! Shows: paging

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use vrnic_qemu::agent::Running;
use vrnic_qemu::pair::{Options, Pair, load_module, ready};
use vrnic_tests::commands::{
    LONG_TIMEOUT, PCI, SHORT_TIMEOUT, recovers, registration, settles, works,
};
use vrnic_tests::harness::{Case, Suite};
use vrnic_tests::object_counts::ObjectCounts;
use vrnic_tests::rules::{self, arm, over};

/// Who withholds a page: nobody answers a userfaultfd, or a FUSE server does not answer.
const SUPPLIERS: [&str; 3] = ["", "fuse", "fuse-sync"];
/// Time in which nothing has waited for a page that never comes.
const AT_ONCE: Duration = Duration::from_secs(10);

/// The cases of `vrnic_paging`.
const CASES: [&str; 12] = [
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
    "counted",
];

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let case = |name: &'static str| Case::new(name, move |pair: &mut Pair| program(pair, name));
    let mut cases: Vec<Case> = CASES.into_iter().map(case).collect();
    cases.push(Case::new("swapped", |pair| swapped(pair)));
    cases.push(Case::new("page_tables_count_for_the_group", |pair| grouped(pair, "tabled")));
    cases.push(Case::new("parts_count_for_the_group", |pair| grouped(pair, "parts")));
    cases.push(Case::new("killed_while_it_waits_for_pages", killed));
    cases.push(Case::new("a_page_that_is_withheld_delays_its_process_alone", withheld));
    cases.push(Case::new("a_page_that_is_withheld_does_not_delay_unbinding", unbound));
    cases.push(Case::new("a_page_that_is_withheld_does_not_delay_recovery", failed));
    cases.push(Case::new("a_page_that_is_withheld_does_not_delay_removal", removed));
    cases.push(Case::new("an_adapter_that_keeps_pages_is_reset", kept));
    cases.push(Case::new("still_works", |pair| works(pair)));
    cases.push(Case::ruinous("a_stopped_daemon_delays_the_kernel_briefly", pressed));
    cases.push(Case::ruinous("a_stopped_daemon_delays_direct_reclaim_briefly", reclaimed));
    Ok(Suite::new(Options { daemon: rules::arguments(), ..Options::default() }, cases))
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

/// Shell words that make a control group of memory.
const GROUP: &str = "
    mkdir -p /sys/fs/cgroup; mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
    cd /sys/fs/cgroup; echo +memory >cgroup.subtree_control; mkdir group";

/// A case of the program in a control group: what the kernel allocates while messages arrive counts
/// for the group of their process.
fn grouped(pair: &Pair, name: &str) -> Result<()> {
    let run = format!("sh -c 'echo $$ >group/cgroup.procs; exec vrnic_paging {name}'; status=$?");
    leaves_nothing(pair, || {
        let command = format!("{GROUP}\n{run}\nrmdir group; exit $status");
        let text = pair.a.check(&command, LONG_TIMEOUT)?;
        ensure!(text.contains(&format!("{name}: good")), "no '{name}' in\n{text}");
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

/// Starts the program whose page never comes, and waits until it waits.
fn wait_for_page(pair: &Pair, end: &str) -> Result<Running> {
    let command =
        format!("vrnic_withheld {end} >/tmp/withheld; status=$?; cat /tmp/withheld; exit $status");
    let program = pair.a.agent().start(&format!("rm -f /tmp/withheld; {command}"))?;
    settles(&pair.a, "grep -qs waiting /tmp/withheld", 20)?;
    Ok(program)
}

/// Ends the process that keeps a userfaultfd open.
fn release(pair: &Pair) -> Result<()> {
    pair.a.check("pkill -KILL holder", SHORT_TIMEOUT)?;
    settles(&pair.a, "! pgrep vrnic_withheld", 10)
}

/// A page never comes, also after the process has ended: the region ends nevertheless, and other
/// processes use the adapter.
///
/// Shows: paging: a page that is withheld, with userfaultfd and FUSE
fn withheld(pair: &mut Pair) -> Result<()> {
    leaves_nothing(pair, || {
        for supplier in SUPPLIERS {
            for end in ["dereg", "close"] {
                let program = wait_for_page(pair, &format!("{end} {supplier}"))?;
                let said = program.wait(AT_ONCE).context("it waits for the page")?;
                ensure!(said.ok() && said.stdout.contains("good"), "{end}: {}", said.stdout);
                works(pair)?;
                release(pair)?;
            }
        }
        for end in ["stay", "advise", "stay fuse-sync", "advise fuse-sync"] {
            let program = wait_for_page(pair, end)?;
            works(pair)?;
            pair.a.check("pkill -KILL vrnic_withheld", SHORT_TIMEOUT)?;
            program.wait(AT_ONCE).context("it cannot be killed")?;
            release(pair)?;
        }
        Ok(())
    })
}

/// The driver is unbound, and its module can be removed, while pages never come. Only if the fault
/// cannot be killed, the module stays until the server of the page ends.
fn unbound(pair: &mut Pair) -> Result<()> {
    for how in ["stay", "advise", "stay fuse", "stay fuse-sync", "advise fuse-sync"] {
        let program = wait_for_page(pair, how)?;
        let driver = "/sys/bus/pci/drivers/vrnic";
        let unbind = format!("basename {PCI} >/tmp/name; cat /tmp/name >{driver}/unbind");
        pair.a.check(&unbind, AT_ONCE).context("unbinding waits for the page")?;
        pair.a.check(&format!("cat /tmp/name >{driver}/bind"), SHORT_TIMEOUT)?;
        ready(&pair.a)?;
        works(pair)?;
        // An advice has ended already.
        pair.a.check("pkill -KILL vrnic_withheld || true", SHORT_TIMEOUT)?;
        program.wait(AT_ONCE).context("it cannot be killed")?;
        let stays = how.ends_with("fuse-sync");
        if stays {
            pair.a.check("! rmmod vrnic 2>/dev/null", AT_ONCE)?;
            release(pair)?;
        }
        settles(&pair.a, "rmmod vrnic 2>/dev/null", 10)?;
        load_module(&pair.a)?;
        if !stays {
            release(pair)?;
        }
    }
    works(pair)
}

/// Loses the adapter in this way while pages never come. The processes that need them can be killed
/// after that.
fn lost(pair: &Pair, lose: impl Fn(&Pair) -> Result<()>) -> Result<()> {
    for how in ["stay", "advise", "stay fuse", "stay fuse-sync", "advise fuse-sync"] {
        let program = wait_for_page(pair, how)?;
        lose(pair).context(how)?;
        works(pair)?;
        // An advice has ended already.
        pair.a.check("pkill -KILL vrnic_withheld || true", SHORT_TIMEOUT)?;
        program.wait(AT_ONCE).context("it cannot be killed")?;
        release(pair)?;
    }
    works(pair)
}

/// The adapter fails while pages never come, and is brought up again.
///
/// Shows: paging: a page that is withheld while the adapter fails or is removed
fn failed(pair: &mut Pair) -> Result<()> {
    lost(pair, |pair| {
        let before = registration(&pair.a)?;
        arm(pair, "fail-device function=a")?;
        recovers(&pair.a, before).context("recovery waits for the page")?;
        over(pair)
    })
}

/// The adapter is removed from the running guest while pages never come, and found again.
fn removed(pair: &mut Pair) -> Result<()> {
    lost(pair, |pair| {
        let remove = format!("echo 1 >{PCI}/remove; ! ls /sys/class/infiniband/* 2>/dev/null");
        pair.a.check(&remove, AT_ONCE).context("removal waits for the page")?;
        pair.a.check("echo 1 >/sys/bus/pci/rescan", SHORT_TIMEOUT)?;
        ready(&pair.a)
    })
}

/// The adapter does not give pages back, so it is reset before the kernel uses them otherwise.
fn kept(pair: &mut Pair) -> Result<()> {
    let before = registration(&pair.a)?;
    arm(pair, "fail-command function=a command=unmap-pages status=no-resource")?;
    let said = pair.a.agent().run("vrnic_paging kept", LONG_TIMEOUT)?;
    ensure!(said.ok(), "{}{}", said.stdout, said.stderr);
    recovers(&pair.a, before)?;
    over(pair)
}

/// Shell words that make kswapd look for memory, without a lack of memory for others, until it
/// waits for the adapter.
const PRESS: &str = "
    for n in $(seq 40); do
        free=$(awk '/^MemFree/ { print $2 }' /proc/meminfo)
        echo $((free * 9 / 10)) >/proc/sys/vm/min_free_kbytes
        dd if=/dev/zero of=/tmp/press bs=1M count=16 2>/dev/null; rm /tmp/press
        grep -q paged_invalidate /proc/$(pgrep kswapd0)/stack && exit 0
        sleep 0.2
    done
    cat /proc/$(pgrep kswapd0)/stack; grep -E 'kswapd|swpout' /proc/vmstat; exit 1";

/// The daemon is stopped while it has pages that kswapd wants to use otherwise.
fn pressed(pair: &mut Pair) -> Result<()> {
    stopped(pair, "exec vrnic_paging idle >/tmp/idle", PRESS)
}

/// Shell words by which a task takes memory of the program's group away by itself, until it waits
/// for the adapter. Tasks that need memory when none is left do the same.
const RECLAIM: &str = "
    sh -c 'echo $$ >/tmp/who; echo 16M >/sys/fs/cgroup/group/memory.reclaim' 2>/dev/null &
    for n in $(seq 40); do
        grep -q paged_invalidate /proc/$(cat /tmp/who)/stack && exit 0
        sleep 0.2
    done
    cat /proc/$(cat /tmp/who)/stack; exit 1";

/// The same if the task that waits is not kswapd.
fn reclaimed(pair: &mut Pair) -> Result<()> {
    let run = "echo $$ >group/cgroup.procs; exec vrnic_paging idle >/tmp/idle";
    stopped(pair, &format!("{GROUP}\n{run}"), RECLAIM)
}

/// Stops the daemon while it has pages of a program that is started so, and uses shell words by
/// which the kernel waits for the pages. The driver does not hope for as long as usual that the
/// daemon goes on.
fn stopped(pair: &mut Pair, start: &str, press: &str) -> Result<()> {
    // A page that is swapped takes another page of memory. So kswapd never finds enough.
    let swap = "modprobe brd rd_nr=1 rd_size=524288; mkswap /dev/ram0 >/dev/null; swapon /dev/ram0";
    pair.a.check(swap, SHORT_TIMEOUT)?;
    let program = pair.a.agent().start(start)?;
    settles(&pair.a, "grep -qs idle /tmp/idle", 60)?;
    pair.daemon.pause()?;
    let start = Instant::now();
    pair.a.check(press, SHORT_TIMEOUT).context("nobody waits for the pages")?;
    let reset = settles(&pair.a, "dmesg | grep -q -e 'does not reset' -e 'adapter is gone'", 90);
    let took = start.elapsed();
    pair.daemon.resume()?;
    reset?;
    program.kill()?;
    ensure!(took < Duration::from_secs(50), "the driver waited for {took:?}");
    Ok(())
}
