//! Installation.
//!
//! Shows: tools: packages that apt installs, and the module that DKMS builds

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::{Pair, ready};
use vrnic_qemu::roots::system::KIT;
use vrnic_tests::commands::{SHORT_TIMEOUT, said, works};

/// Time limit of apt. Under TCG even depmod takes minutes: it unpacks each module of the kernel.
const APT: Duration = Duration::from_secs(600);

/// Installs the packages in all guests that lack them, at the same time, and loads the driver as
/// docs/packages.md says.
pub(crate) fn install(pair: &Pair) -> Result<()> {
    each(pair, |guest| {
        if need(guest, "vrnic-guest")? {
            guest.check("modprobe vrnic", SHORT_TIMEOUT)?;
            ready(guest)?;
        }
        Ok(())
    })
}

/// The module that DKMS has built from the package `vrnic-dkms` replaces the module that was built
/// with the guests' image. The two packages exclude each other.
pub(crate) fn dkms(pair: &mut Pair) -> Result<()> {
    install(pair)?;
    let guest = &pair.a;
    let refused = format!("dpkg --dry-run -i {KIT}/first/vrnic-dkms_*.deb");
    let refused = guest.agent().run(&refused, SHORT_TIMEOUT)?;
    ensure!(
        !refused.ok() && said(&refused).contains("conflicts with vrnic-kernel"),
        "{}",
        said(&refused)
    );
    guest.check(&format!("modprobe -r vrnic && insmod {KIT}/dkms/vrnic.ko"), SHORT_TIMEOUT)?;
    ready(guest)?;
    works(pair)?;
    guest.check("rmmod vrnic && modprobe vrnic", SHORT_TIMEOUT)?;
    ready(guest)
}

/// Installs a package from the first repository. Returns false if the guest already has the
/// package.
pub(crate) fn need(guest: &Guest, package: &str) -> Result<bool> {
    if guest.agent().run(&format!("dpkg -s {package}"), SHORT_TIMEOUT)?.ok() {
        return Ok(false);
    }
    choose(guest, "first")?;
    apt(guest, &format!("install {package}"))?;
    Ok(true)
}

/// Makes one of the repositories of the test the guest's only source of packages.
pub(crate) fn choose(guest: &Guest, repository: &str) -> Result<()> {
    let source = format!("deb [trusted=yes] file:{KIT}/{repository} ./");
    guest.check(&format!("echo '{source}' >/etc/apt/sources.list && apt-get update"), APT)?;
    Ok(())
}

/// Runs apt-get.
pub(crate) fn apt(guest: &Guest, what: &str) -> Result<()> {
    guest.check(&format!("DEBIAN_FRONTEND=noninteractive apt-get -y {what}"), APT).map(drop)
}

/// Calls `work` for both guests at the same time.
fn each(pair: &Pair, work: impl Fn(&Guest) -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = pair.guests().map(|guest| scope.spawn(|| work(guest))).collect();
        for thread in threads {
            match thread.join() {
                Ok(result) => result?,
                Err(_) => bail!("a thread panicked"),
            }
        }
        Ok(())
    })
}
