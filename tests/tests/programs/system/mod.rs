//! The packages in ordinary Debian systems: two guests with systemd, which install everything with
//! apt from a repository on this machine. The tests set only the guests' addresses and sources of
//! packages.
//!
//! Shows: tools
//!
//! | module | contents |
//! | --- | --- |
//! | [`packages`] | installation |
//! | [`power`] | a reboot from inside the guest, and sleep |
//! | [`service`] | the daemon as a service of systemd |
//! | [`changes`] | later versions of the packages, and their removal |

mod changes;
mod packages;
mod power;
mod service;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::commands::{SHORT_TIMEOUT, both, connect, settles, works};
use vrnic_tests::harness::{Case, Suite};

use packages::install;

/// Time limit of all cases. Systems boot slowly under TCG, and each installation runs depmod.
const LIMIT: Duration = Duration::from_secs(90 * 60);

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let Some(tree) = std::env::var_os("VRNIC_REPOSITORIES").map(PathBuf::from) else {
        let why = "VRNIC_REPOSITORIES names no folder; scripts/test system makes the repositories";
        return Ok(Suite::skipped(why));
    };
    let cases = vec![
        Case::new("a_system_without_the_packages", bare),
        Case::new("perftest_and_rping", traffic),
        Case::new("a_module_that_dkms_built", packages::dkms),
        Case::new("a_guest_starts_again", power::starts),
        Case::new("a_guest_sleeps", power::sleeps),
        Case::new("the_service_under_systemd", service::service),
        Case::new("upgrade_under_traffic", changes::upgrade),
        Case::new("a_daemon_that_hangs", service::watchdog),
        Case::new("purge_of_the_service", service::purge),
        Case::new("removal_and_purge_in_a_guest", changes::removal),
    ];
    let tree = Some(tree);
    let options = Options { system: true, module: false, tree, ..Options::default() };
    Ok(Suite::new(options, cases).within(LIMIT))
}

/// The image has neither the driver nor the plugin, and rdma-core finds no device.
fn bare(pair: &mut Pair) -> Result<()> {
    for guest in pair.guests() {
        guest.check("! modinfo vrnic && ! ls /sys/class/infiniband/*", SHORT_TIMEOUT)?;
        guest.check("! find / -xdev -iname '*vrnic*' | grep .", SHORT_TIMEOUT)?;
    }
    Ok(())
}

/// Programs of Debian, between devices that rdma-core has named after their slots.
fn traffic(pair: &mut Pair) -> Result<()> {
    install(pair)?;
    for guest in pair.guests() {
        guest.check("ls /sys/class/infiniband | grep -x 'rocep.*'", SHORT_TIMEOUT)?;
        // rdma-core's rules for udev start rdma-ndd, which describes the node by the host's name.
        settles(guest, "systemctl is-active rdma-ndd", 30)?;
        settles(guest, "grep -w \"$(hostname)\" /sys/class/infiniband/*/node_desc", 30)?;
    }
    works(pair)?;
    both(&pair.b, &pair.a, "ib_write_bw -s 65536 -n 1000", 18515)?;
    let call = format!("rping -c -v -V -C 10 -a {}", pair.b.ip());
    let said = connect((&pair.b, "rping -s -v -V -C 10"), (&pair.a, &call))?;
    ensure!(said.contains("ping data: rdma-ping-9"), "rping exchanged nothing: {said}");
    Ok(())
}
