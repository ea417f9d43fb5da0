//! The two ends of the suite: guest a with its adapter, guest b with siw.

use anyhow::Result;
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::Pair;
use vrnic_tests::commands::connect;
use vrnic_tests::siw;

/// The guest that runs the server.
#[derive(Clone, Copy)]
pub(crate) enum Server {
    Vrnic,
    Siw,
}

impl Server {
    /// Returns the guests of server and client, after siw was created in guest b.
    pub(crate) fn ends(self, pair: &Pair) -> Result<(&Guest, &Guest)> {
        siw::create(&pair.b)?;
        Ok(match self {
            Self::Vrnic => (&pair.a, &pair.b),
            Self::Siw => (&pair.b, &pair.a),
        })
    }
}

/// Runs a tool in both guests. Its client takes the server's address as the last argument.
pub(crate) fn run(pair: &Pair, server: Server, serve: &str, call: &str) -> Result<()> {
    let (server, client) = server.ends(pair)?;
    connect((server, serve), (client, &format!("{call} {}", server.ip()))).map(drop)
}
