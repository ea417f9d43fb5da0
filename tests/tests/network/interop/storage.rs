//! NVMe over Fabrics: the kernel's storage clients, with fast registration and invalidation.
//!
//! Shows: roce

use anyhow::{Result, ensure};
use vrnic_qemu::pair::Pair;
use vrnic_tests::commands::counter;
use vrnic_tests::harness::Case;
use vrnic_tests::storage::{attach, detach, write_and_read};

use super::both_ways;
use super::ends::Way;
use super::network::{set_mtu, with_losses};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    cases.extend(both_ways("NVMe", |pair, way| blocks(pair, way, 1500)));
    cases.extend(both_ways("MTU 4096: NVMe", |pair, way| blocks(pair, way, 9000)));
    cases.extend(both_ways("losses: NVMe", |pair, way| {
        let (_server, _client) = way.ends(pair)?;
        with_losses(pair, 30, || blocks(pair, way, 1500))
    }));
    cases
}

/// Attaches and uses a disk of the server.
fn blocks(pair: &Pair, way: Way, mtu: u32) -> Result<()> {
    let (target, initiator) = way.ends(pair)?;
    set_mtu(pair, mtu)?;
    let before = counter(&pair.a, "reg_wqes")?;
    attach(initiator, target)?;
    write_and_read(initiator, target, 4)?;
    detach(initiator)?;
    let registered = counter(&pair.a, "reg_wqes")? - before;
    // The target registers no memory, because it uses the initiator's keys.
    ensure!((registered > 30) == (way == Way::ToRxe), "{registered} fast registrations");
    Ok(())
}
