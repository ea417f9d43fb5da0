//! The perftest set: its runs, and the figures in its tables.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use anyhow::Context;

use crate::agent::{Output, Running};
use crate::guest::Guest;
use crate::machine::progress::step;
use crate::pair::Pair;

/// Time limit of a test. Under TCG on two cores, the longest test takes half of it.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// Port of the servers.
const PORT: u16 = 18515;

/// The program that sends messages in both directions, and checks them.
pub(crate) const PING: &str = "rping";

/// Number of tries for a run that perftest rejects because of its clocks.
const ATTEMPTS: u32 = 6;

/// A run of a perftest tool.
#[derive(Clone, Debug)]
pub struct Case {
    /// The name of the tool, such as `ib_write_bw`.
    pub tool: &'static str,
    /// The tool's options, the same on both sides.
    pub options: Cow<'static, str>,
}

/// Result of a case.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The case that was run.
    pub case: Case,
    /// Exit code of the client, or the server's when the client's is 0.
    pub code: i32,
    /// The client's table, or the output of both sides if the case has failed.
    pub text: String,
    /// The figure of the largest message.
    pub figure: Option<Figure>,
}

/// A figure of a perftest table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Figure {
    /// The figures of a test of bandwidth.
    Bandwidth {
        /// Message size in bytes.
        bytes: u64,
        /// MiB/s, average.
        average: f64,
        /// Million messages per second.
        rate: f64,
    },
    /// The figures of a test of latency.
    Latency {
        /// Message size in bytes.
        bytes: u64,
        /// µs, the most frequent value.
        typical: f64,
    },
    /// Number of messages that were sent there and back (rping).
    Rounds(usize),
}

/// Returns the case of a tool with these options.
#[must_use]
pub const fn case(tool: &'static str, options: &'static str) -> Case {
    Case { tool, options: Cow::Borrowed(options) }
}

/// The whole set: every tool without options, and with the options that it supports. Write tools
/// have no `-e`: a WRITE raises no event at its target. Those with immediate data may have it from
/// perftest 26.01 on.
pub const SET: &[Case] = &[
    case("ib_send_bw", "-a -n 200"),
    case("ib_send_bw", "-b -s 65536 -n 500"),
    case("ib_send_bw", "-q 8 -s 65536 -n 200"),
    case("ib_send_bw", "-e -s 65536 -n 500"),
    case("ib_send_bw", "-c UC -s 65536 -n 500"),
    case("ib_send_bw", "-c UD -n 1000"),
    case("ib_send_bw", "--use-srq -q 16 -s 4096 -n 500"),
    case("ib_send_bw", "-c UD --use-srq -s 1024 -n 500"),
    case("ib_send_bw", "-c XRC -s 4096 -n 500"),
    case("ib_send_lat", "-n 500"),
    case("ib_send_lat", "-c UD -n 500"),
    case("ib_send_lat", "-e -n 500"),
    case("ib_write_bw", "-s 65536 -n 2000"),
    case("ib_write_bw", "-a -n 200"),
    case("ib_write_bw", "-b -s 65536 -n 500"),
    case("ib_write_bw", "-q 8 -s 65536 -n 200"),
    case("ib_write_bw", "-c UC -s 65536 -n 1000"),
    case("ib_write_bw", "-c XRC -s 65536 -n 500"),
    case("ib_write_bw", "--write_with_imm -q 16 -s 65536 -n 200"),
    case("ib_write_lat", "-n 500"),
    case("ib_write_lat", "-c UC -n 500"),
    case("ib_read_bw", "-s 65536 -n 1000"),
    case("ib_read_bw", "-a -n 200"),
    case("ib_read_bw", "-b -s 65536 -n 500"),
    case("ib_read_bw", "-q 8 -s 65536 -n 200"),
    case("ib_read_bw", "-e -s 65536 -n 500"),
    case("ib_read_lat", "-n 500"),
    case("ib_read_lat", "-e -n 500"),
    case("ib_atomic_bw", "-n 1000"),
    case("ib_atomic_bw", "-A CMP_AND_SWAP -n 1000"),
    case("ib_atomic_bw", "-b -n 1000"),
    case("ib_atomic_bw", "-q 8 -n 500"),
    case("ib_atomic_bw", "-e -n 1000"),
    case("ib_atomic_lat", "-n 500"),
    case("ib_atomic_lat", "-e -n 500"),
];

/// The set for iWARP adapters, whose QPs only the RDMA connection manager connects.
///
/// Over iWARP, `ib_send_bw` sends no message without a credit, and its peer grants credits by RDMA
/// WRITEs, which raise no event. A sender that waits for events (`-e`) and has used all its credits
/// sleeps for ever if the WRITE comes too late. At the start, a sender has one credit less than the
/// receive queue has entries. perftest gives the queue as many entries as there are messages,
/// rounded up to an even number, so an odd number of messages needs no further credit.
pub const IWARP_SET: &[Case] = &[
    case(PING, "-V -C 100"),
    case(PING, "-V -C 20 -S 60000"),
    case("ib_send_bw", "-R -a -n 100"),
    case("ib_send_bw", "-R -b -s 65536 -n 200"),
    case("ib_send_bw", "-R -q 8 -s 65536 -n 100"),
    case("ib_send_bw", "-R -b -e -s 65536 -n 199"),
    case("ib_send_lat", "-R -n 200"),
    case("ib_send_lat", "-R -e -n 200"),
    case("ib_write_bw", "-R -a -n 100"),
    case("ib_write_bw", "-R -b -s 65536 -n 200"),
    case("ib_write_bw", "-R -q 8 -s 65536 -n 100"),
    case("ib_write_lat", "-R -n 200"),
    case("ib_read_bw", "-R -a -n 100"),
    case("ib_read_bw", "-R -q 8 -s 65536 -n 100"),
    case("ib_read_lat", "-R -n 200"),
    case("ib_write_bw", "-R --write_with_imm -q 8 -s 65536 -n 100"),
    case("ib_atomic_bw", "-R -q 8 -n 200"),
    case("ib_atomic_lat", "-R -n 200"),
];

/// Returns the first case of each tool.
#[must_use]
pub fn first_of_each_tool(set: &[Case]) -> Vec<Case> {
    let is_first = |(number, case): &(usize, &Case)| {
        !set.iter().take(*number).any(|earlier| earlier.tool == case.tool)
    };
    set.iter().enumerate().filter(is_first).map(|(_, case)| case.clone()).collect()
}

impl Pair {
    /// Runs `case` with its server in guest b and its client in guest a.
    ///
    /// # Errors
    /// If a guest has ended. A test that fails is an [`Outcome`].
    pub fn perftest(&self, case: &Case) -> anyhow::Result<Outcome> {
        self.perftest_within(case, TIMEOUT)
    }

    /// Like [`Self::perftest`]. Kills the client after `timeout`.
    ///
    /// # Errors
    /// The errors of [`Self::perftest`].
    pub fn perftest_within(&self, case: &Case, timeout: Duration) -> anyhow::Result<Outcome> {
        with_sound_clocks(
            || between(&self.b, &self.a, case, timeout),
            |outcome| (outcome.code != 0).then(|| outcome.text.clone()),
        )
    }
}

/// Runs a perftest tool. Runs it again if it fails and reports that it gives no figures because the
/// clocks of its machine, which it compares (`sample_get_cpu_mhz` in its `get_clock.c`), disagree.
/// This happens in a guest whose virtual processor had to wait, and another run may succeed.
/// `failure` returns the output of a run that has failed.
///
/// # Errors
/// The errors of `run`. A test that fails is a result, not an error.
pub fn with_sound_clocks<R>(
    run: impl Fn() -> anyhow::Result<R>,
    failure: impl Fn(&R) -> Option<String>,
) -> anyhow::Result<R> {
    let mut done = run()?;
    for _ in 1..ATTEMPTS {
        if !failure(&done).is_some_and(|text| text.contains("Correlation coefficient r^2")) {
            break;
        }
        done = run()?;
    }
    Ok(done)
}

/// Runs `case` with its server and its client in these guests. Kills the client after `timeout`.
///
/// # Errors
/// If a guest has ended. A test that fails is an [`Outcome`].
pub fn between(
    server: &Guest,
    client: &Guest,
    case: &Case,
    timeout: Duration,
) -> anyhow::Result<Outcome> {
    if case.tool == PING {
        return ping(server, client, case, timeout);
    }
    let Case { tool, options } = case;
    let serving = server.agent().start(&format!("exec {tool} {options}"))?;
    // If the server has ended at once, its exit code shows it.
    let _listens = server.listens_on(PORT);
    let ip = server.ip();
    let ran = client.agent().run(&format!("exec {tool} {options} {ip}"), timeout);
    Ok(outcome(case, ran, serving))
}

/// Runs rping.
fn ping(server: &Guest, client: &Guest, case: &Case, timeout: Duration) -> anyhow::Result<Outcome> {
    let (Case { tool, options }, ip) = (case, server.ip());
    let serving = server.agent().start(&format!("exec {tool} {options} -s -a {ip}"))?;
    // If the server has ended at once, its exit code shows it.
    let _listens = server.check(
        "for n in $(seq 300); do rdma res show cm_id | grep -q 'state LISTEN' && exit 0; \
         sleep 0.1; done; exit 1",
        Duration::from_secs(120),
    );
    let ran = client.agent().run(&format!("exec {tool} {options} -v -c -a {ip}"), timeout);
    let mut outcome = outcome(case, ran, serving);
    let rounds = outcome.text.lines().filter(|line| line.starts_with("ping data:")).count();
    outcome.figure = (outcome.code == 0 && rounds > 0).then_some(Figure::Rounds(rounds));
    Ok(outcome)
}

/// Returns the outcome of a case whose client has ended. Waits for its server, which is killed if
/// the client has failed.
fn outcome(case: &Case, client: anyhow::Result<Output>, serving: Running) -> Outcome {
    let client = ended(client);
    if !client.ok() {
        let _ended = serving.kill();
    }
    let server = ended(serving.wait(Duration::from_secs(20)));
    let text = if client.ok() && server.ok() {
        client.stdout.clone()
    } else {
        let Output { stdout, stderr, .. } = &client;
        format!("client:\n{stdout}{stderr}\nserver:\n{}{}", server.stdout, server.stderr)
    };
    let code = if client.ok() { server.code } else { client.code };
    Outcome { case: case.clone(), code, text, figure: figure(&client.stdout) }
}

/// Returns the output of a program. If the program has not ended, the exit code is 124.
fn ended(output: anyhow::Result<Output>) -> Output {
    output.unwrap_or_else(|error| Output {
        code: 124,
        stdout: String::new(),
        stderr: format!("{error:#}"),
    })
}

/// Returns the figure in the last row of a table.
#[must_use]
pub fn figure(table: &str) -> Option<Figure> {
    let latency = table.contains("t_typical");
    let mut rows = table.lines().filter_map(|line| {
        let numbers: Option<Vec<f64>> =
            line.split_whitespace().map(|word| word.parse().ok()).collect();
        numbers.filter(|numbers| numbers.len() >= 5)
    });
    let row = rows.next_back()?;
    let bytes = line_bytes(*row.first()?);
    if latency {
        Some(Figure::Latency { bytes, typical: *row.get(4)? })
    } else {
        Some(Figure::Bandwidth { bytes, average: *row.get(3)?, rate: *row.get(4)? })
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn line_bytes(number: f64) -> u64 {
    number as u64
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bandwidth { bytes, average, rate } => {
                write!(f, "{average:>10.1} MiB/s  {:>9.0} msg/s  at {bytes} B", rate * 1e6)
            }
            Self::Latency { bytes, typical } => {
                write!(f, "{typical:>10.2} µs typical  at {bytes} B")
            }
            Self::Rounds(rounds) => write!(f, "{rounds:>10} messages there and back"),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, code, figure, .. } = self;
        let figure = figure.map_or_else(|| "no table".to_owned(), |figure| figure.to_string());
        write!(f, "{:<15} {:<38} {code:>3}  {figure}", case.tool, case.options)
    }
}

impl Outcome {
    /// Returns whether the test has succeeded with a figure.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.code == 0 && self.figure.is_some()
    }
}

/// Returns the table of a set's outcomes.
#[must_use]
pub fn summary(outcomes: &[Outcome]) -> String {
    let mut text = format!("{:<15} {:<38} {:>3}  figure\n", "tool", "options", "rc");
    for outcome in outcomes {
        text += &format!("{outcome}\n");
    }
    text
}

/// Runs a set and prints a line for each test when it has ended. Prints the output of each failed
/// test, or of every test if `verbose` is true.
///
/// # Errors
/// If a guest has ended.
pub fn run_set(pair: &Pair, set: &[Case], verbose: bool) -> anyhow::Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for (n, case) in (1..).zip(set) {
        let outcome = pair.perftest(case).with_context(|| pair.report())?;
        step(format!("{n:>2}/{} {outcome}", set.len()));
        if verbose || !outcome.passed() {
            println!("{}", outcome.text.trim_end());
        }
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_table_has_each_tool_once() {
        let tools = |set| first_of_each_tool(set).into_iter().map(|case| case.tool);
        let kinds = ["send", "write", "read", "atomic"];
        let names = kinds.map(|kind| [format!("ib_{kind}_bw"), format!("ib_{kind}_lat")]);
        assert!(tools(SET).eq(names.concat()));
        let mut with_rping: Vec<_> = tools(IWARP_SET).collect();
        with_rping.sort_unstable();
        assert_eq!(with_rping.len(), 9);
        assert!(with_rping.is_sorted_by(|a, b| a < b), "{with_rping:?}");
    }

    #[test]
    fn bandwidth_and_latency_tables_are_read() {
        let table = " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n \
                     2          200            1.00               2.50                 0.25\n \
                     65536      200            9.00               8.50                 0.000136\n---\n";
        assert_eq!(
            figure(table),
            Some(Figure::Bandwidth { bytes: 65536, average: 8.5, rate: 0.000_136 })
        );
        let table = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]\n \
                     2       500          1.00           9.00         2.50              2.60             0.10            3.00                    4.00\n";
        assert_eq!(figure(table), Some(Figure::Latency { bytes: 2, typical: 2.5 }));
        assert_eq!(figure("Couldn't connect\n"), None);
    }

    /// Shows: tools: no sender of perftest over iWARP waits for a credit that raises no event
    #[test]
    fn no_sender_over_iwarp_waits_for_a_credit_that_raises_no_event() {
        let has = |case: &Case, option| case.options.split(' ').any(|word| word == option);
        let messages = |case: &Case| case.options.split_once("-n ")?.1.parse::<u32>().ok();
        let sends = IWARP_SET.iter().filter(|case| case.tool == "ib_send_bw");
        let mut with_events = sends.filter(|case| has(case, "-e")).peekable();
        assert!(with_events.peek().is_some());
        assert!(with_events.all(|case| messages(case).is_some_and(|count| count % 2 == 1)));
    }
}
