//! One RDMA device after the other in both guests, and perftest over it.
//!
//! Each device is alone while it is measured: they share the guests' NIC, and the connection
//! manager would take the first device that has the address.

use std::time::{Duration, Instant};

use anyhow::Context;
use vrnic_qemu::guest::Guest;
use vrnic_qemu::machine::progress::step;
use vrnic_qemu::pair::Pair;
use vrnic_qemu::traffic::perftest::{Case, Figure, TIMEOUT};

use crate::host;
use crate::plan::{Device, LATENCY_BYTES, Operation, Test};
use crate::results::{Bandwidth, Failure, Latency, Results};

/// Path of siw.ko in the guests.
pub(crate) const SIW_MODULE: &str = "/vrnic/siw.ko";
/// Time limit of a test over a software device. Such tests hang now and then, and are then tried
/// once more.
const SOFTWARE_TIMEOUT: Duration = Duration::from_secs(45);
/// A test is not started if less time than this is left.
const MIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Exit code of what was ended for its time, as of timeout(1).
const TIMED_OUT: i32 = 124;
/// The command that loads our driver.
const INSERT: &str = "[ -e /sys/module/vrnic ] || insmod /vrnic/vrnic.ko";
/// The command that unloads our driver.
const UNLOAD: &str = "[ ! -e /sys/module/vrnic ] || rmmod vrnic";
/// The time limit of a command that only configures something, on a loaded machine.
const CONFIG_TIMEOUT: Duration = Duration::from_secs(60);

/// The end of all tests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    /// Returns the one `span` from now.
    pub(crate) fn within(span: Duration) -> Self {
        Self(Instant::now() + span)
    }

    /// Returns `timeout`, or the time left if that is less, and `None` if that is too short for a
    /// test.
    pub(crate) fn limit(self, timeout: Duration) -> Option<Duration> {
        let left = self.0.saturating_duration_since(Instant::now());
        (left > MIN_TIMEOUT).then_some(timeout.min(left))
    }
}

/// Effort for each figure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Tries of each test, of which the best counts.
    pub(crate) repeats: usize,
    /// No test runs longer.
    pub(crate) deadline: Deadline,
}

impl Effort {
    /// Returns one try where the fewest messages that perftest sends take a software device many
    /// seconds.
    fn for_messages(self, device: Device, bytes: u64) -> Self {
        let slow = !device.is_ours() && bytes > 1 << 20;
        Self { repeats: if slow { 1 } else { self.repeats }, ..self }
    }
}

/// Makes `device` in both guests, runs `tests` with it and removes it. A test that fails is noted
/// among the results. What the host can do is measured between the tests of the first device.
pub(crate) fn measure(
    pair: &Pair,
    device: Device,
    tests: &[Test],
    effort: Effort,
    results: &mut Results,
) -> anyhow::Result<()> {
    if device == Device::Mixed {
        pair.a.check(&add(Device::Iwarp), CONFIG_TIMEOUT)?;
        pair.b.check(&format!("{UNLOAD}\n{}", add(Device::Siw)), CONFIG_TIMEOUT)?;
    } else {
        both(pair, &add(device))?;
    }
    if results.relay.is_empty() {
        results.relay = host::relays();
    }
    for &test in tests {
        match test {
            Test::Latency(operation) => latency(pair, device, operation, effort, results)?,
            Test::Bandwidth(operation, bytes) => {
                if results.memcpy(operation, bytes).is_none() {
                    results.memcpy.push(host::memcpy(operation, bytes));
                }
                let effort = effort.for_messages(device, bytes);
                bandwidth(pair, device, (operation, bytes), effort, results)?;
            }
        }
    }
    both(pair, remove(device))
}

/// Measures the latency of an operation.
fn latency(
    pair: &Pair,
    device: Device,
    operation: Operation,
    effort: Effort,
    results: &mut Results,
) -> anyhow::Result<()> {
    let figure = run(pair, device, &device.latency(operation), effort, results)?;
    if let Some(Figure::Latency { typical, .. }) = figure {
        let latency = Latency { device, operation, bytes: LATENCY_BYTES, typical_us: typical };
        results.latency.push(latency);
    }
    Ok(())
}

/// Measures the bandwidth of an operation with messages of this many bytes.
fn bandwidth(
    pair: &Pair,
    device: Device,
    (operation, bytes): (Operation, u64),
    effort: Effort,
    results: &mut Results,
) -> anyhow::Result<()> {
    let figure = run(pair, device, &device.bandwidth(operation, bytes), effort, results)?;
    if let Some(Figure::Bandwidth { average, rate, .. }) = figure {
        let point = Bandwidth::new(device, operation, bytes, average, rate);
        results.bandwidth.push(point);
    }
    Ok(())
}

/// Returns the best figure of several tries; others on the machine can only make one worse.
fn run(
    pair: &Pair,
    device: Device,
    case: &Case,
    effort: Effort,
    results: &mut Results,
) -> anyhow::Result<Option<Figure>> {
    let (mut best, mut failures) = (None, 0);
    for _ in 0..effort.repeats {
        match once(pair, device, case, effort.deadline, results)? {
            Some(figure) => best = Some(best.map_or(figure, |best| better(best, figure))),
            None => failures += 1,
        }
        // A failure of ours is a fault to be seen, not to be tried again.
        if failures > usize::from(!device.is_ours()) {
            break;
        }
    }
    Ok(best)
}

fn better(a: Figure, b: Figure) -> Figure {
    let rank = |figure: Figure| match figure {
        // Perftest rounds one of them to nothing for small messages, the other for slow devices.
        Figure::Bandwidth { average, rate, .. } => average.max(rate),
        Figure::Latency { typical, .. } => -typical,
        Figure::Rounds(rounds) => rounds as f64,
    };
    if rank(b) > rank(a) { b } else { a }
}

fn once(
    pair: &Pair,
    device: Device,
    case: &Case,
    deadline: Deadline,
    results: &mut Results,
) -> anyhow::Result<Option<Figure>> {
    let test = format!("{} {}", case.tool, case.options);
    let timeout = if device.is_ours() { TIMEOUT } else { SOFTWARE_TIMEOUT };
    let Some(timeout) = deadline.limit(timeout) else {
        let text = "not run: the time for all tests was over".to_owned();
        results.failures.push(Failure { device, test, code: TIMED_OUT, text });
        return Ok(None);
    };
    let outcome = pair.perftest_within(case, timeout).with_context(|| pair.report())?;
    match outcome.figure {
        Some(figure) if outcome.code == 0 => {
            step(format!("{test}: {figure}"));
            Ok(Some(figure))
        }
        _ => {
            step(format!("{test}: failed with {}", outcome.code));
            results.failures.push(Failure { device, test, code: outcome.code, text: outcome.text });
            Ok(None)
        }
    }
}

fn both(pair: &Pair, script: &str) -> anyhow::Result<()> {
    let on = |guest: &Guest| guest.check(script, CONFIG_TIMEOUT).map(|_| ());
    on(&pair.a)?;
    on(&pair.b)
}

/// Returns a script that makes the device and waits until its port is active and, for RoCE, has its
/// IPv4 GID.
fn add(device: Device) -> String {
    let name = device.ibdev();
    let make = match device {
        // The pair was booted with it; another one may have been measured since.
        Device::Vrnic | Device::Iwarp => INSERT.to_owned(),
        Device::Rxe => {
            format!("modprobe -a rdma_ucm rdma_rxe && rdma link add {name} type rxe netdev eth0")
        }
        Device::Siw | Device::Mixed => format!(
            "modprobe -a rdma_ucm\n[ -e /sys/module/siw ] || insmod {SIW_MODULE}\n\
             rdma link add {name} type siw netdev eth0"
        ),
    };
    let gid = if device.is_iwarp() { "" } else { "0000:0000:0000:0000:0000:ffff" };
    format!(
        "set -e\n{make}\nport=/sys/class/infiniband/{name}/ports/1\n\
         for n in $(seq 200); do \
           grep -qs ACTIVE $port/state && grep -qs '{gid}' $port/gids/* && exit 0; sleep 0.1; \
         done\n\
         echo {name} did not become active; rdma link; exit 1"
    )
}

fn remove(device: Device) -> &'static str {
    match device {
        Device::Vrnic | Device::Iwarp => "rmmod vrnic",
        Device::Rxe => "rdma link delete rxe0",
        Device::Siw => "rdma link delete siw0",
        Device::Mixed => {
            "if [ -e /sys/module/vrnic ]; then rmmod vrnic; else rdma link delete siw0; fi"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_better_figure_counts() {
        let latency = |typical| Figure::Latency { bytes: 8, typical };
        assert_eq!(better(latency(3.0), latency(2.0)), latency(2.0));
        let rate = |average, rate| Figure::Bandwidth { bytes: 8, average, rate };
        assert_eq!(better(rate(9.0, 0.1), rate(8.0, 0.1)), rate(9.0, 0.1));
        assert_eq!(better(rate(0.0, 0.1), rate(0.0, 0.2)), rate(0.0, 0.2));
    }

    #[test]
    fn no_test_outlives_the_deadline() {
        let deadline = Deadline::within(Duration::from_secs(30));
        assert_eq!(deadline.limit(Duration::from_secs(10)), Some(Duration::from_secs(10)));
        assert!(deadline.limit(Duration::from_secs(60)).is_some_and(|left| left.as_secs() < 31));
        assert_eq!(Deadline::within(Duration::ZERO).limit(Duration::from_secs(60)), None);
    }
}
