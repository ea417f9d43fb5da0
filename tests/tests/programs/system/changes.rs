//! Later versions of the packages, and their removal, in guest a.
//!
//! Shows: tools

use anyhow::{Result, ensure};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::{Pair, ready};
use vrnic_tests::commands::{LONG_TIMEOUT, SHORT_TIMEOUT, listens, receives, settles, stop, works};

use super::packages::{apt, choose, install, need};

/// The packages that a guest with an adapter has, as patterns of dpkg and apt.
const GUESTS: &str = "vrnic-guest 'vrnic-modules-*' ibverbs-provider-vrnic";

/// Connections and the daemon go on while apt installs later versions. Whatever is started after
/// that has the later version.
pub(crate) fn upgrade(pair: &mut Pair) -> Result<()> {
    install(pair)?;
    let guest = &pair.a;
    need(guest, "vrnicd")?;
    let run = |script: &str| guest.check(script, LONG_TIMEOUT);
    run("systemctl restart vrnicd")?;
    let pid = run("systemctl show -P MainPID vrnicd")?;
    let server = pair.b.agent().start("exec rping -s -P")?;
    listens(&pair.b)?;
    let client = guest.agent().start(&format!("exec rping -c -V -a {}", pair.b.ip()))?;
    receives(guest)?;

    choose(guest, "second")?;
    apt(guest, "upgrade")?;
    sound(guest)?;
    let versions = format!("dpkg-query -W -f '${{Version}}\n' vrnicd {GUESTS}");
    let versions = run(&versions)?;
    ensure!(versions.lines().count() == 4, "not all packages: {versions}");
    ensure!(versions.lines().all(|version| version.ends_with("+later")), "{versions}");

    receives(guest)?;
    run("pgrep -x rping")?;
    works(pair)?;
    for program in [client, server] {
        stop(program)?;
    }
    ensure!(run("systemctl show -P MainPID vrnicd")? == pid, "the daemon was started again");
    run("vrnic show function && systemctl restart vrnicd && vrnic show function")?;
    ensure!(run("systemctl show -P MainPID vrnicd")? != pid, "it is the former daemon");
    // The loaded module comes from the former package until it is loaded again.
    run("modprobe -r vrnic && ! ls /sys/class/infiniband/* && modprobe vrnic")?;
    ready(guest)?;
    works(pair)
}

/// Checks that dpkg finds no package that is half installed or half configured.
fn sound(guest: &Guest) -> Result<()> {
    let audit = guest.check("dpkg --audit", SHORT_TIMEOUT)?;
    ensure!(audit.trim().is_empty(), "dpkg finds packages that are not whole: {audit}");
    Ok(())
}

/// The loaded driver stays when its package is removed, and can be unloaded. After a purge no file
/// is left.
pub(crate) fn removal(pair: &mut Pair) -> Result<()> {
    install(pair)?;
    let guest = &pair.a;
    apt(guest, &format!("remove {GUESTS}"))?;
    sound(guest)?;
    guest.check("test -e /etc/libibverbs.d/vrnic.driver && ! modinfo vrnic", SHORT_TIMEOUT)?;
    guest.check("rdma link | grep ACTIVE && rmmod vrnic", SHORT_TIMEOUT)?;
    settles(guest, "! ls /sys/class/infiniband/* 2>/dev/null", 10)?;
    apt(guest, &format!("purge {GUESTS}"))?;
    sound(guest)?;
    let kept = "! -path '/var/log/*' ! -path '/var/lib/apt/*'";
    guest.check(&format!("! find / -xdev -iname '*vrnic*' {kept} | grep ."), LONG_TIMEOUT)?;
    guest.check("! grep vrnic /lib/modules/*/modules.*", LONG_TIMEOUT)?;
    Ok(())
}
