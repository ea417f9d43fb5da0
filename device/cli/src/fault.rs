//! Rules for fault injection.

use std::path::Path;

use anyhow::bail;
use clap::Subcommand;
use vrnic_control_api::faults::{FaultsView, RuleView};
use vrnic_control_api::request::{Reply, Request};

use crate::change::ask;
use crate::show::{finish, table};

/// Commands for rules.
#[derive(Debug, Subcommand)]
pub(crate) enum Fault {
    /// Add a rule for packets that functions send, such as: drop function=a prob=0.01 seed=7
    ///
    /// A rule is an action (drop, delay by=TIME, duplicate, reorder behind=PACKETS, corrupt
    /// crc=right|checksum|wrong) and fields: function=NAME, qp=NUMBER (the sending QP),
    /// opcode=NAME, psn=NUMBER and nth=NUMBER select packets; prob=CHANCE and seed=NUMBER hit some
    /// of them; times=HITS and for=TIME end the rule. Times are written like 20us, 5ms or 3s.
    Add {
        /// The action and its fields
        #[arg(required = true, value_name = "WORD")]
        rule: Vec<String>,
    },
    /// List the rules, with the numbers of packets that each has looked at (seen) and hit
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
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

/// Shows a row for each rule.
fn list(faults: &FaultsView, json: bool) -> anyhow::Result<()> {
    let mut table = table(&["rule", "seen", "hit", "over", "text"]);
    for RuleView { id, rule, seen, hit, over } in &faults.rules {
        let over = if *over { "yes" } else { "no" };
        let numbers = [id.to_string(), seen.to_string(), hit.to_string()];
        table.add_row([&numbers[..], &[over.to_owned(), rule.clone()]].concat());
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
