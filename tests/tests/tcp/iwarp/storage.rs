//! Kernel clients: NVMe over Fabrics (`nvmet-rdma` and `nvme-rdma`), and the driver's own client.
//! On iWARP they also register the memory of READs, and READs invalidate its keys.
//!
//! Shows: iwarp

use std::net::Ipv4Addr;

use anyhow::{Result, ensure};
use vrnic_qemu::pair::Pair;
use vrnic_tests::commands::{LONG_TIMEOUT, SHORT_TIMEOUT, counter};
use vrnic_tests::harness::Case;
use vrnic_tests::storage::{attach, attach_in_turn, detach, with_shared_receives, write_and_read};

use super::empty;

/// Rounds of the driver's kernel client over each of its connections.
const ROUNDS: u32 = 50;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("kernel_clients", kernel_clients),
        Case::new("nvme", |pair| blocks(pair, 8)),
        Case::new("nvme_by_shared_receives", |pair| {
            with_shared_receives(pair, |pair| blocks(pair, 8))
        }),
        Case::new("nvme_five_connections_in_turn", |pair| attach_in_turn(pair, 5)),
    ]
}

/// Kernel clients of both guests move data by fast registration, READ, WRITE and SEND with
/// invalidation. They end their connections by the connection manager, or by the functions of
/// `direct.h` before.
fn kernel_clients(pair: &mut Pair) -> Result<()> {
    for (client, server, closes) in [(&pair.a, &pair.b, 0), (&pair.b, &pair.a, 1)] {
        server.check("insmod /vrnic/vrnic_kping.ko", SHORT_TIMEOUT)?;
        let peer: Ipv4Addr = server.ip().parse()?;
        let options = format!("peer={} rounds={ROUNDS} closes={closes}", u32::from(peer));
        let load = format!("insmod /vrnic/vrnic_kping.ko {options}");
        let said = client
            .check(&format!("dmesg -C; {load}; r=$?; dmesg | grep kping; exit $r"), LONG_TIMEOUT)?;
        ensure!(said.matches("rounds with completions by").count() == 3, "it says: {said}");
        client.check("rmmod vrnic_kping", SHORT_TIMEOUT)?;
        server.check("rmmod vrnic_kping", SHORT_TIMEOUT)?;
        empty(client)?;
        empty(server)?;
    }
    Ok(())
}

/// Written data is on the target's disk and is read back. The target READs into memory that it has
/// registered, and invalidates the keys of the initiator.
fn blocks(pair: &mut Pair, megabytes: u32) -> Result<()> {
    attach(&pair.a, &pair.b)?;
    let registered = |guest| counter(guest, "reg_wqes");
    let before = (registered(&pair.a)?, registered(&pair.b)?);
    let keys = counter(&pair.a, "remote_invalidations")?;
    write_and_read(&pair.a, &pair.b, megabytes)?;
    let initiator = registered(&pair.a)? - before.0;
    let target = registered(&pair.b)? - before.1;
    let keys = counter(&pair.a, "remote_invalidations")? - keys;
    ensure!(initiator > 50 && keys == initiator, "{keys} of {initiator} keys were invalidated");
    ensure!(target >= 16, "the target has registered memory only {target} times");
    detach(&pair.a)
}
