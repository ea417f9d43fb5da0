//! Network devices with other MACs than the adapter's: addresses that were changed, pods with a
//! macvlan device each, bridges and bonds.
//!
//! Shows: network

use anyhow::{Context, Result};
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::commands::{SHORT_TIMEOUT, works};
use vrnic_tests::harness::{Case, Suite};
use vrnic_tests::places::{self, Place, talk};

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let cases = vec![
        Case::new("the_mac_of_a_network_device_changes", changed),
        Case::new("an_address_on_a_bridge", places::bridged),
        Case::new("an_address_on_a_bond", places::bonded),
        Case::new("pods_with_macvlan_devices", places::pods),
        Case::new("beside_the_first_address", |pair| works(pair)),
    ];
    Suite::with_modules(&places::MODULES, Options::default(), cases)
}

/// Changes the MACs of the network devices of both guests, one after the other, and back.
fn changed(pair: &mut Pair) -> Result<()> {
    let modprobe = "modprobe rdma_ucm";
    pair.a.check(modprobe, SHORT_TIMEOUT)?;
    pair.b.check(modprobe, SHORT_TIMEOUT)?;
    let show = "cat /sys/class/net/eth0/address";
    let before = [pair.a.check(show, SHORT_TIMEOUT)?, pair.b.check(show, SHORT_TIMEOUT)?];
    let (a, b) = (Place::host(&pair.a), Place::host(&pair.b));
    let steps = [
        (&pair.a, "52:54:00:00:aa:01"),
        (&pair.b, "52:54:00:00:bb:01"),
        (&pair.a, before[0].trim()),
        (&pair.b, before[1].trim()),
    ];
    for (guest, mac) in steps {
        guest.check(&format!("ip link set eth0 address {mac}"), SHORT_TIMEOUT)?;
        for guest in [&pair.a, &pair.b] {
            guest.check("ip neigh flush all", SHORT_TIMEOUT)?;
        }
        pair.a.check(&format!("ping -c 2 -W 5 {}", b.ip), SHORT_TIMEOUT)?;
        let (server, client) =
            if std::ptr::eq(guest, &raw const pair.a) { (&a, &b) } else { (&b, &a) };
        talk(server, client, None).with_context(|| format!("after the change to {mac}"))?;
    }
    Ok(())
}
