//! More programs over iWARP than `iwarp` runs.

use std::process::ExitCode;

use anyhow::Result;
use vrnic_qemu::adapter::Transport;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::harness::{self, Case};
use vrnic_tests::talk::connect;

/// What the server runs. The client runs the same and `-s ADDRESS`.
const TALKERS: [&str; 3] = ["ucmatose", "ucmatose -c 20 -C 5", "rstream -S all -C 20"];

/// Options of perftest's programs; the client has the server's address behind them.
const PERFTEST: [&str; 4] = [
    "ib_write_bw -R -q 32 -s 4096 -n 50",
    "ib_read_bw -R -e -s 65536 -n 200",
    "ib_read_bw -R -b -s 65536 -n 200",
    "ib_write_bw -R -s 8388608 -n 5",
];

fn main() -> ExitCode {
    let mut cases = Vec::new();
    for command in TALKERS {
        let run = move |pair: &mut Pair| talk(pair, command, "-s");
        cases.push(Case::new(command, run));
    }
    for command in PERFTEST {
        let run = move |pair: &mut Pair| talk(pair, &format!("{command} -F"), "");
        cases.push(Case::new(command, run));
    }
    harness::main(Options { personality: Transport::Iwarp, ..Options::default() }, cases)
}

/// Runs a server in b, and in a the same with more options.
fn talk(pair: &Pair, command: &str, option: &str) -> Result<()> {
    let call = format!("{command} {option} {}", pair.b.ip());
    connect((&pair.b, command), (&pair.a, &call)).map(drop)
}
