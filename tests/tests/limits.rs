//! An adapter with limits for few objects: programs can create as many as it reports, and then get
//! a clear error.

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::commands::{SHORT_TIMEOUT, said, stop, works};
use vrnic_tests::conformance::run;
use vrnic_tests::harness::{self, Case};

/// Arguments of the daemon.
const LIMITS: [(&str, u32); 5] = [("pd", 40), ("cq", 60), ("srq", 30), ("qp", 50), ("mr", 70)];

fn main() -> ExitCode {
    let daemon =
        LIMITS.iter().flat_map(|(name, n)| ["--limit".to_owned(), format!("{name}={n}")]).collect();
    let cases = vec![
        Case::new("shown_to_programs", limits),
        Case::new("as_many_as_shown_and_no_more", |pair| {
            run(pair, "--huge --only limits/", "guest")
        }),
        Case::new("programs_share_them", shared),
        Case::new("still_works", |pair| works(pair)),
    ];
    harness::main(Options { daemon, ..Options::default() }, cases)
}

fn limits(pair: &mut Pair) -> Result<()> {
    let text = pair.a.check("ibv_devinfo -v", SHORT_TIMEOUT)?;
    let squeezed: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    for (name, limit) in LIMITS {
        ensure!(squeezed.contains(&format!("max_{name}:{limit}")), "no {name}={limit} in\n{text}");
    }
    Ok(())
}

/// Programs that start when all objects are in use fail with an error. The objects are free again
/// when the other programs have ended.
fn shared(pair: &mut Pair) -> Result<()> {
    let crowd = pair.a.agent().start(
        "for n in $(seq 60); do ibv_rc_pingpong -g 1 -p $((20000 + n)) & done; wait; sleep 1000",
    )?;
    let rest = "for n in $(seq 300); do n=$(pgrep -c pingpong); \
                [ $n -gt 30 ] && [ $n -lt 41 ] && exit; sleep 0.1; done; pgrep -c pingpong; exit 1";
    // Each program uses one of the 40 PDs.
    pair.a.check(rest, SHORT_TIMEOUT).context("not as many programs as there are PDs are left")?;
    let late = pair.a.agent().run("exec ibv_rc_pingpong -g 1 -p 20999", SHORT_TIMEOUT)?;
    ensure!(!late.ok() && said(&late).contains("PD"), "one program more: {}", said(&late));
    pair.a.check("pkill pingpong", SHORT_TIMEOUT)?;
    stop(crowd)?;
    works(pair)
}
