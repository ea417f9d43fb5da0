//! The driver's own client of the kernel (`driver/tests/kping`).

use std::net::Ipv4Addr;

use anyhow::{Result, ensure};
use vrnic_qemu::pair::Pair;
use vrnic_tests::bench::Case;
use vrnic_tests::talk::{LONG, SHORT, settles};

/// Rounds over each of its connections.
const ROUNDS: u32 = 50;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("kernel_clients", kernel_clients)]
}

/// Kernel clients of both guests move data by fast registration, READ, WRITE and SEND with
/// invalidation.
fn kernel_clients(pair: &mut Pair) -> Result<()> {
    for (client, server) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
        server.check("insmod /vrnic/vrnic_kping.ko", SHORT)?;
        let peer: Ipv4Addr = server.ip().parse()?;
        let load = format!("insmod /vrnic/vrnic_kping.ko peer={} rounds={ROUNDS}", u32::from(peer));
        let said =
            client.check(&format!("dmesg -C; {load}; r=$?; dmesg | grep kping; exit $r"), LONG)?;
        ensure!(said.matches("rounds with completions by").count() == 3, "it says: {said}");
        for guest in [client, server] {
            guest.check("rmmod vrnic_kping", SHORT)?;
            settles(guest, "[ -z \"$(rdma res show cm_id)$(rdma res show qp)\" ]", 20)?;
        }
    }
    Ok(())
}
