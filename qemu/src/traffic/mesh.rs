//! Traffic between all pairs of guests: `ib_write_bw`, and `rping` with the RDMA connection
//! manager.

use std::borrow::Cow;

use anyhow::Context;

use crate::adapter::Transport;
use crate::guest::Guest;
use crate::machine::progress::step;
use crate::pair::Pair;
use crate::traffic::perftest::{Case, Outcome, PING, TIMEOUT, between, case, with_sound_clocks};

/// The run of perftest.
const WRITE: Case = case("ib_write_bw", "-s 65536 -n 50");
/// The run of perftest over iWARP.
const IWARP_WRITE: Case = case("ib_write_bw", "-R -s 65536 -n 50");
/// The run of rping, which checks its data.
const ROUNDS: Case = case(PING, "-V -C 10");

/// Runs the programs whose line in the table contains `only` between all pairs of guests, one after
/// the other. Prints a line for each when it has ended, and its output if it has failed or if
/// `verbose` is true.
///
/// # Errors
/// If a guest has ended.
pub fn run_mesh(pair: &Pair, only: &str, verbose: bool) -> anyhow::Result<Vec<Outcome>> {
    let guests: Vec<&Guest> = pair.guests().collect();
    let mut outcomes = Vec::new();
    for (n, server) in guests.iter().enumerate() {
        for client in guests.iter().take(n) {
            let write = match server.setup().adapter.personality {
                Transport::Roce => WRITE,
                Transport::Iwarp => IWARP_WRITE,
            };
            for case in [write, ROUNDS] {
                let line = line(&case, client, server);
                if !format!("{} {}", line.tool, line.options).contains(only) {
                    continue;
                }
                let ran = run(&case, client, server).with_context(|| pair.report())?;
                let outcome = Outcome { case: line, ..ran };
                step(&outcome);
                if verbose || !outcome.passed() {
                    println!("{}", outcome.text.trim_end());
                }
                outcomes.push(outcome);
            }
        }
    }
    Ok(outcomes)
}

/// Returns the case as the table shows it.
fn line(case: &Case, client: &Guest, server: &Guest) -> Case {
    let [client, server] = [client, server].map(|guest| &guest.setup().name);
    let options = Cow::Owned(format!("{}, {client} to {server}", case.options));
    Case { tool: case.tool, options }
}

fn run(case: &Case, client: &Guest, server: &Guest) -> anyhow::Result<Outcome> {
    with_sound_clocks(
        || between(server, client, case, TIMEOUT),
        |outcome| (outcome.code != 0).then(|| outcome.text.clone()),
    )
}
