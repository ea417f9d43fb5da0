//! Rules for fault injection.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Subcommand;
use vrnic_control_api::faults::{FaultsView, RuleView};
use vrnic_control_api::request::{Reply, Request};

use crate::change::ask;
use crate::show::{finish, table};

/// Time between two looks at the hits of a rule.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Longest time to wait for a hit.
const TIMEOUT_MAX: u64 = 31_536_000;

/// Commands for rules.
#[derive(Debug, Subcommand)]
pub(crate) enum Fault {
    /// Add a rule, such as: drop function=a prob=0.01 seed=7
    ///
    /// A rule is an action and fields. Actions for packets: drop, delay by=TIME, duplicate,
    /// reorder behind=PACKETS, corrupt crc=right|checksum|wrong. For work requests: hold-request
    /// by=TIME, slow-memory rate=BYTES, fail-request status=STATUS, fail-qp, drop-message,
    /// disorder, rnr, fail-completion status=STATUS, fill-cq, pause-worker by=TIME. For events and
    /// interrupts: drop-event, delay-event by=TIME, drop-interrupt, delay-interrupt by=TIME. For
    /// admin commands: fail-command status=STATUS, delay-command by=TIME, drop-command. By time:
    /// port-down lasts=TIME pause=TIME, lower-mtu bytes=SIZE, remove-gid index=NUMBER, loop-back,
    /// fail-device pause=TIME.
    ///
    /// Fields: function=NAME, qp=NUMBER, opcode=NAME, psn=NUMBER, event=NAME, cq=NUMBER,
    /// vector=NUMBER, command=NAME, relaxed=yes|no, nth=NUMBER and every=NUMBER select; prob=CHANCE
    /// and seed=NUMBER hit some of these; times=HITS, after=TIME and for=TIME bound the rule. Times
    /// are written like 20us, 5ms or 3s.
    Add {
        /// The action and its fields
        #[arg(required = true, value_name = "WORD")]
        rule: Vec<String>,
    },
    /// List the rules, with what each has looked at (seen) and hit, and when. The name of a
    /// function stands before the numbers of rules that its guest has set
    #[command(visible_alias = "show")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Wait until a rule has hit. Fails when it no longer can, because it is over or was removed
    Wait {
        /// Number of the rule
        rule: u32,
        /// Number of hits to wait for
        #[arg(long, value_name = "N", default_value_t = 1)]
        #[arg(value_parser = clap::value_parser!(u64).range(1..))]
        hits: u64,
        /// Fail after so many seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 60)]
        #[arg(value_parser = clap::value_parser!(u64).range(1..=TIMEOUT_MAX))]
        timeout: u64,
    },
    /// Remove all rules, and send the packets that they delay at once
    Clear {
        /// Remove only the rule with this number
        rule: Option<u32>,
    },
}

/// Sends a request and prints the reply.
pub(crate) fn run(control: &Path, command: Fault) -> anyhow::Result<()> {
    let (request, json) = match command {
        Fault::Add { rule } => (Request::AddFault(rule.join(" ")), false),
        Fault::List { json } => (Request::ListFaults, json),
        Fault::Wait { rule, hits, timeout } => {
            return wait(control, rule, hits, Duration::from_secs(timeout));
        }
        Fault::Clear { rule } => (Request::ClearFaults(rule), false),
    };
    match ask(control, &request)? {
        Reply::Done => Ok(()),
        Reply::FaultAdded(number) => {
            println!("rule {number}");
            Ok(())
        }
        Reply::Faults(faults) => list(&faults, json),
        Reply::Refused(why) => bail!("the daemon refused this: {why}"),
        other => bail!("unexpected reply from the daemon: {other:?}"),
    }
}

/// Waits until a rule has hit this often.
fn wait(control: &Path, number: u32, hits: u64, timeout: Duration) -> anyhow::Result<()> {
    let end = Instant::now() + timeout;
    loop {
        let Reply::Faults(faults) = ask(control, &Request::ListFaults)? else {
            bail!("unexpected reply from the daemon");
        };
        let Some(rule) = faults.rules.iter().find(|rule| rule.guest.is_none() && rule.id == number)
        else {
            bail!("there is no rule {number}");
        };
        if rule.hit >= hits {
            println!("rule {number} has hit {} of {} that it has seen", rule.hit, rule.seen);
            return Ok(());
        }
        let RuleView { rule: text, seen, hit, .. } = rule;
        if rule.over {
            bail!("rule {number} ({text}) is over: it has hit {hit} of {seen} that it has seen");
        }
        if Instant::now() >= end {
            let seconds = timeout.as_secs();
            bail!("rule {number} ({text}) has hit {hit} of {seen} that it has seen in {seconds} s");
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Shows a row for each rule.
fn list(faults: &FaultsView, json: bool) -> anyhow::Result<()> {
    let mut table = table(&["rule", "seen", "hit", "over", "armed", "last hit", "text"]);
    for RuleView { guest, id, rule, seen, hit, armed, last_hit, over } in &faults.rules {
        let over = if *over { "yes" } else { "no" };
        let last = last_hit.map_or_else(|| "-".to_owned(), |last| ago(faults.now, last));
        let (armed, text) = (ago(faults.now, *armed), rule.clone());
        let guest = guest.as_ref().map(|guest| format!("{guest}:")).unwrap_or_default();
        table.add_row([
            format!("{guest}{id}"),
            seen.to_string(),
            hit.to_string(),
            over.to_owned(),
            armed,
            last,
            text,
        ]);
    }
    finish(json, &serde_json::to_value(faults)?, &table)?;
    if !json && faults.waiting + faults.overflowed > 0 {
        let FaultsView { waiting, overflowed, .. } = faults;
        println!(
            "{waiting} packets are delayed; {overflowed} were dropped because too many were delayed"
        );
    }
    Ok(())
}

/// Returns the age of a moment, as text. Both are in microseconds.
fn ago(now: u64, moment: u64) -> String {
    let milliseconds = now.saturating_sub(moment) / 1000;
    format!("{}.{:03} s ago", milliseconds / 1000, milliseconds % 1000)
}
