//! One TCP stream between two guests: by queue pairs that the adapters run, and by sockets of the
//! guests' kernels over their virtio network cards, in turn.

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vrnic_qemu::adapter::Transport;
use vrnic_qemu::machine::progress::step;
use vrnic_qemu::pair::{Options, Pair};

use crate::machine::Machine;

/// Rounds, in each of which both are measured.
const ROUNDS: usize = 5;
/// Seconds for which a program sends.
const SECONDS: u32 = 4;
/// The time limit of a program.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The port of the program that receives.
const PORT: u16 = 7490;
/// The ratio that is aimed at.
const GOAL: f64 = 5.0;

/// The rates of a round in MB/s.
struct Round {
    queue_pairs: f64,
    sockets: f64,
}

/// Boots two guests and measures both in turn. Returns a page of Markdown.
///
/// # Errors
/// If a program fails.
pub(crate) fn measure() -> Result<String> {
    let mut machine = Machine::detect();
    step("booting two guests");
    let pair = Pair::boot(Options { personality: Transport::Iwarp, ..Options::default() })?;
    machine.guests(&pair)?;
    let mut rounds = Vec::new();
    for number in 1..=ROUNDS {
        let round = Round { queue_pairs: rate(&pair, "toe")?, sockets: rate(&pair, "tcp")? };
        let Round { queue_pairs, sockets } = &round;
        step(format!("round {number}: {queue_pairs} MB/s by queue pairs, {sockets} by sockets"));
        rounds.push(round);
    }
    Ok(page(&machine, &rounds))
}

/// Sends from guest a to guest b. Returns the rate in MB/s.
fn rate(pair: &Pair, how: &str) -> Result<f64> {
    let receiver = pair.b.agent().start(&format!("exec vrnic_flow {PORT} {how}"))?;
    let listens = format!("for n in $(seq 100); do ss -ltn | grep -q :{PORT} && exit 0");
    pair.b.check(&format!("{listens}; sleep 0.1; done; exit 1"), TIMEOUT)?;
    let sender = format!("vrnic_flow {} {PORT} {how} {SECONDS}", pair.b.ip());
    pair.a.check(&sender, TIMEOUT).with_context(|| pair.report())?;
    let received = receiver.wait(TIMEOUT)?;
    ensure!(received.ok(), "the receiver has failed: {}", received.stderr);
    let rate = received.stdout.trim().strip_suffix(" MB/s").context("there is no rate")?;
    Ok(rate.parse()?)
}

/// Returns the value in the middle.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn page(machine: &Machine, rounds: &[Round]) -> String {
    let Machine { processor, processors, load, guest_kernel, accelerator, .. } = machine;
    let mut text = format!(
        "# One TCP stream between two guests\n\n\
         - Machine: {processor} ({processors} processors), load average {load} at the start.\n\
         - Guests: two, each with one processor, Linux {guest_kernel}, under {accelerator}.\n\n\
         | MB/s | by queue pairs | by sockets over virtio-net | ratio |\n| --- | ---: | ---: | ---: |\n"
    );
    for (nth, Round { queue_pairs, sockets }) in (1..).zip(rounds) {
        let ratio = queue_pairs / sockets;
        let _ = writeln!(text, "| round {nth} | {queue_pairs:.1} | {sockets:.1} | {ratio:.1} |");
    }
    let ratio = median(rounds.iter().map(|round| round.queue_pairs / round.sockets));
    let reached = if ratio >= GOAL { "reached" } else { "not reached" };
    let _ = writeln!(text, "\nMedian of the ratios: {ratio:.1}. Goal: at least {GOAL}, {reached}.");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_the_ratios_is_compared_with_the_goal() {
        let round = |queue_pairs| Round { queue_pairs, sockets: 10.0 };
        let text = page(&Machine::default(), &[round(400.0), round(60.0), round(20.0)]);
        assert!(text.contains("| round 1 | 400.0 | 10.0 | 40.0 |"), "{text}");
        assert!(
            text.ends_with("Median of the ratios: 6.0. Goal: at least 5, reached.\n"),
            "{text}"
        );
        let text = page(&Machine::default(), &[round(40.0)]);
        assert!(text.ends_with("Median of the ratios: 4.0. Goal: at least 5, not reached.\n"));
    }
}
