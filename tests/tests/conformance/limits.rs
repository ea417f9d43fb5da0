//! An adapter with limits for few objects: programs can create as many as it reports, and then get
//! a clear error. The limits, and the ceiling of what a function sends, change while it is in use.
//!
//! Shows: resources

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::commands::{SHORT_TIMEOUT, both, said, settles, stop, works};
use vrnic_tests::conformance::run;
use vrnic_tests::harness::{Case, Suite};
use vrnic_tests::rules;

/// Arguments of the daemon.
const LIMITS: [(&str, u32); 5] = [("pd", 40), ("cq", 60), ("srq", 30), ("qp", 50), ("mr", 70)];

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let mut daemon = rules::arguments();
    daemon
        .extend(LIMITS.iter().flat_map(|(name, n)| ["--limit".to_owned(), format!("{name}={n}")]));
    let cases = vec![
        Case::new("shown_to_programs", limits),
        Case::new("as_many_as_shown_and_no_more", |pair| {
            run(pair, "--huge --only limits/", "guest")
        }),
        Case::new("programs_share_them", shared),
        Case::new("the_operator_changes_them", changed),
        Case::new("a_ceiling_holds", ceiling),
        Case::new("still_works", |pair| works(pair)),
    ];
    Ok(Suite::new(Options { daemon, ..Options::default() }, cases))
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
                [ $n -gt 30 ] && [ $n -lt 41 ] && sleep 2 && [ $n = $(pgrep -c pingpong) ] && exit; \
                sleep 0.1; done; pgrep -c pingpong; exit 1";
    // Each program uses one of the 40 PDs. Their number must not change any more.
    pair.a.check(rest, SHORT_TIMEOUT).context("not as many programs as there are PDs are left")?;
    let late = pair.a.agent().run("exec ibv_rc_pingpong -g 1 -p 20999", SHORT_TIMEOUT)?;
    ensure!(!late.ok() && said(&late).contains("PD"), "one program more: {}", said(&late));
    pair.a.check("pkill pingpong", SHORT_TIMEOUT)?;
    stop(crowd)?;
    works(pair)
}

/// Returns how many QPs of a function exist.
fn qps(pair: &Pair) -> Result<u64> {
    let table = rules::change(pair, &["resources", "--function", "a", "--json"])?;
    let table: Value = serde_json::from_str(&table)?;
    let actual = table.pointer("/0/resources/qp/actual").and_then(Value::as_u64);
    actual.with_context(|| table.to_string())
}

/// With a lower maximum, programs cannot create more QPs, whatever they were shown before. A
/// maximum below the number in use is refused.
fn changed(pair: &mut Pair) -> Result<()> {
    let used = qps(pair)?;
    let assign = |qp: u64| rules::change(pair, &["assign", "--function", "a", &format!("qp={qp}")]);
    let refused = assign(used.saturating_sub(1)).map_err(|error| format!("{error:#}"));
    ensure!(refused.is_err_and(|why| why.contains("qp")), "a maximum below {used} was accepted");
    assign(used + 3)?;
    pair.a.check("rm -f /tmp/refused; touch /tmp/refused", SHORT_TIMEOUT)?;
    let crowd = pair.a.agent().start(
        "for n in $(seq 6); do \
         (ibv_rc_pingpong -g 1 -p $((20100 + n)) || echo >>/tmp/refused) & done; wait; sleep 1000",
    )?;
    settles(&pair.a, "[ $(wc -l </tmp/refused) = 3 ]", 60)?;
    ensure!(qps(pair)? == used + 3, "{} QPs", qps(pair)?);
    pair.a.check("pkill pingpong", SHORT_TIMEOUT)?;
    stop(crowd)?;
    assign(50)?;
    works(pair)
}

/// A program that sends all the time does not get above its function's ceiling.
fn ceiling(pair: &mut Pair) -> Result<()> {
    rules::change(pair, &["function", "limit", "a", "--rate", "400M"])?;
    let command = "ib_write_bw -D 4 -s 65536 --report_gbits -p 18750";
    let output = both(&pair.b, &pair.a, command, 18750)?;
    rules::change(pair, &["function", "limit", "a"])?;
    let line = output.lines().find(|line| line.trim_start().starts_with("65536"));
    let average = line.and_then(|line| line.split_whitespace().nth(3)?.parse::<f64>().ok());
    let average = average.with_context(|| format!("no figures in {output}"))?;
    // Without the ceiling it is many times as much. A loaded machine stays further below it.
    ensure!((0.02..0.6).contains(&average), "{average} Gbit/s with a ceiling of 0.4");
    works(pair)
}
