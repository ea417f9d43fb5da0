//! TCP sockets that the guest's root ends (`ss -K`): those that the kernel keeps for connections
//! of the adapter, and those of listeners.

use anyhow::{Result, ensure};
use vrnic_qemu::agent::Running;
use vrnic_qemu::guest::Guest;
use vrnic_qemu::modules;
use vrnic_qemu::pair::Pair;
use vrnic_tests::commands::{SHORT, listens, settles, stop};
use vrnic_tests::harness::Case;

use super::{empty, transfers};

/// The modules that `ss` ends sockets by.
pub(super) const MODULES: [&str; 2] = ["inet_diag", "tcp_diag"];

pub(super) fn cases() -> Vec<Case> {
    vec![Case::new("sockets_that_are_ended", ended)]
}

/// Both ends learn of it when the socket of one end is ended. A listener whose socket is ended
/// listens on.
fn ended(pair: &mut Pair) -> Result<()> {
    modules::load(&pair.a, &MODULES)?;
    modules::load(&pair.b, &MODULES)?;
    let server = pair.b.agent().start("modprobe rdma_ucm; exec rping -s -P")?;
    listens(&pair.b)?;
    for (guest, sockets) in [(&pair.a, "dport = :7174"), (&pair.b, "sport = :7174")] {
        let client = client(pair)?;
        transfers(pair)?;
        end(guest, &format!("-t state established {sockets}"))?;
        client.wait(SHORT)?;
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
    let call = format!("modprobe rdma_ucm; exec rping -c -a {} -C 1000000", pair.b.ip());
    pair.a.agent().start(&call)
}

/// Ends the sockets that these options of `ss` choose, of which there must be some.
fn end(guest: &Guest, sockets: &str) -> Result<()> {
    let ended = guest.check(&format!("ss -HKn {sockets}"), SHORT)?;
    ensure!(ended.contains(":7174"), "no sockets were ended: {ended}");
    Ok(())
}
