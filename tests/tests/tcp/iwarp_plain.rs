//! iWARP connections without CRCs: between two daemons, and with siw, which does not ask for CRCs.
//!
//! Shows: iwarp

use anyhow::Result;
use vrnic_qemu::adapter::Transport;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::commands::connect;
use vrnic_tests::harness::{Case, Suite};
use vrnic_tests::siw;

/// A server, and a client that also gets the server's address.
const TOOLS: [(&str, &str); 4] = [
    ("rping -V -C 10 -S 60000 -s", "rping -V -C 10 -S 60000 -c -a"),
    ("ib_send_bw -R -F -n 200", "ib_send_bw -R -F -n 200"),
    ("ib_write_bw -R -F -n 200", "ib_write_bw -R -F -n 200"),
    ("ib_read_bw -R -F -n 200", "ib_read_bw -R -F -n 200"),
];

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let files = Vec::from_iter(siw::file()?);
    let mut cases = vec![Case::new("between_daemons", |pair: &mut Pair| {
        TOOLS.into_iter().try_for_each(|tool| run(pair, tool, false))
    })];
    if !files.is_empty() {
        cases.push(Case::new("to_siw", |pair: &mut Pair| {
            siw::create(&pair.b)?;
            TOOLS.into_iter().try_for_each(|tool| run(pair, tool, false))
        }));
        // The client of perftest does not work on siw.
        cases.push(Case::new("from_siw", |pair: &mut Pair| {
            siw::create(&pair.b)?;
            run(pair, TOOLS[0], true)
        }));
    }
    let daemon = ["--mpa-crc", "asked"].map(str::to_owned).to_vec();
    let personality = Transport::Iwarp;
    Ok(Suite::new(Options { personality, apart: true, files, daemon, ..Options::default() }, cases))
}

/// Runs a tool with its server in guest b, or in guest a.
fn run(pair: &Pair, (serve, call): (&str, &str), back: bool) -> Result<()> {
    let (server, client) = if back { (&pair.a, &pair.b) } else { (&pair.b, &pair.a) };
    connect((server, serve), (client, &format!("{call} {}", server.ip()))).map(drop)
}
