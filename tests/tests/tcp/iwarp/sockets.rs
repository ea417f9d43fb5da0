//! TCP sockets that root in the guest ends (`ss -K`): sockets that the kernel keeps for connections
//! of the adapter, and sockets of listeners.
//!
//! Shows: iwarp

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use vrnic_qemu::agent::Running;
use vrnic_qemu::guest::Guest;
use vrnic_qemu::modules;
use vrnic_qemu::pair::Pair;
use vrnic_tests::commands::{SHORT_TIMEOUT, endless_pings, serve_pings, settles, stop};
use vrnic_tests::harness::Case;

use super::{empty, transfers};

/// The modules with which `ss` ends sockets.
pub(super) const MODULES: [&str; 2] = ["inet_diag", "tcp_diag"];

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("sockets_that_are_ended", ended),
        Case::new("clients_that_send_nothing_keep_no_others_away", idle),
    ]
}

/// Clients open as many TCP connections as may wait at a listener, and send nothing. Another client
/// is served before the listener closes those connections, which it does after 5 s.
///
/// Shows: iwarp: clients that connect and send nothing keep no others away
fn idle(pair: &mut Pair) -> Result<()> {
    let server = serve_pings(&pair.b)?;
    let hold = format!("exec vrnic-stress idle {} >/tmp/idle", pair.b.ip());
    let holder = pair.a.agent().start(&hold)?;
    settles(&pair.a, "grep -q open /tmp/idle", 20)?;
    let call = format!("modprobe rdma_ucm; sleep 0.6; exec rping -c -a {} -C 1", pair.b.ip());
    // A busy machine may let one of the clients wait.
    let mut took = Duration::MAX;
    for _try in 0..3 {
        let start = Instant::now();
        pair.a.check(&call, SHORT_TIMEOUT)?;
        took = took.min(start.elapsed());
    }
    ensure!(took < Duration::from_secs(4), "each client waited for {took:?} or more");
    stop(holder)?;
    stop(server)?;
    [&pair.a, &pair.b].into_iter().try_for_each(empty)
}

/// When the socket of one end is ended, both ends are notified. A listener whose socket is ended
/// still listens.
fn ended(pair: &mut Pair) -> Result<()> {
    modules::load(&pair.a, &MODULES)?;
    modules::load(&pair.b, &MODULES)?;
    let server = serve_pings(&pair.b)?;
    for (guest, sockets) in [(&pair.a, "dport = :7174"), (&pair.b, "sport = :7174")] {
        let client = client(pair)?;
        transfers(pair)?;
        end(guest, &format!("-t state established {sockets}"))?;
        client.wait(SHORT_TIMEOUT)?;
        empty(&pair.a)?;
        settles(&pair.b, "! rdma res show cm_id | grep -q 'state CONNECT'", 20)?;
    }
    end(&pair.b, "-tl sport = :7174")?;
    let client = client(pair)?;
    transfers(pair)?;
    stop(client)?;
    stop(server)?;
    [&pair.a, &pair.b].into_iter().try_for_each(empty)
}

/// Starts a client in a, which ends with its connection.
fn client(pair: &Pair) -> Result<Running> {
    let call = endless_pings(pair.b.ip());
    pair.a.agent().start(&call)
}

/// Ends the sockets that these options of `ss` select. Fails if there are none.
fn end(guest: &Guest, sockets: &str) -> Result<()> {
    let ended = guest.check(&format!("ss -HKn {sockets}"), SHORT_TIMEOUT)?;
    ensure!(ended.contains(":7174"), "no sockets were ended: {ended}");
    Ok(())
}
