//! Guests with two processors: two completion vectors, agents and interrupts that really run at the same
//! time.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::bench::{self, Case};
use vrnic_tests::conformance::run;
use vrnic_tests::talk::SHORT;

fn main() -> ExitCode {
    let mut cases = vec![Case::new("a_vector_for_each_processor", vectors)];
    for (group, sq) in [
        ("queues", "guest"),
        ("credits", "guest"),
        ("events", "device"),
        ("atomics", "guest"),
        ("order", "device"),
        ("stress", "guest"),
        ("hostile", "device"),
    ] {
        let selection = format!("--only {group}/ --skip 500_qps");
        cases.push(Case::new(group, move |pair: &mut Pair| run(pair, &selection, sq)));
    }
    bench::main(Options { cpus: 2, memory: 2048, ..Options::default() }, cases)
}

/// The device offers as many completion vectors as there are processors.
fn vectors(pair: &mut Pair) -> Result<()> {
    for guest in [&pair.a, &pair.b] {
        let text = guest.check("ibv_devinfo -v | grep num_comp_vectors", SHORT)?;
        ensure!(text.trim().ends_with('2'), "with two processors: {text}");
        let lines = guest.check("grep -c vrnic-comp /proc/interrupts", SHORT)?;
        ensure!(lines.trim() == "2", "{lines} completion interrupts");
    }
    Ok(())
}
