//! The kernel's software iWARP (siw) in place of a guest's adapter.

use std::path::Path;

use anyhow::{Context, Result};
use vrnic_qemu::guest::Guest;

use crate::commands::{LONG_TIMEOUT, SHORT_TIMEOUT};

/// Path of siw.ko in the guests.
const MODULE: &str = "/vrnic/siw.ko";

/// Returns siw.ko as a file of guests; `None` if the variable `VRNIC_SIW` names no module, which
/// `scripts/test` builds.
pub fn file() -> Result<Option<(String, Vec<u8>)>> {
    let Some(file) = std::env::var_os("VRNIC_SIW") else { return Ok(None) };
    let path = Path::new(&file);
    let module = std::fs::read(path).with_context(|| path.display().to_string())?;
    Ok(Some((MODULE.to_owned(), module)))
}

/// Sizes of TCP's send buffers, which are then never full. With a full one, siw sometimes sends
/// wrong FPDUs.
const BUFFERS: &str = "16777216 16777216 67108864";

/// Unloads the driver of a guest's adapter and creates siw on its network card, if it has none.
pub fn create(guest: &Guest) -> Result<()> {
    if guest.agent().run("rdma dev show siw0", SHORT_TIMEOUT)?.ok() {
        return Ok(());
    }
    guest.check("rmmod vrnic; modprobe rdma_ucm", SHORT_TIMEOUT)?;
    guest.check(&format!("insmod {MODULE}"), SHORT_TIMEOUT)?;
    guest.check(&format!("echo {BUFFERS} >/proc/sys/net/ipv4/tcp_wmem"), SHORT_TIMEOUT)?;
    guest.check("rdma link add siw0 type siw netdev eth0", LONG_TIMEOUT).map(drop)
}
