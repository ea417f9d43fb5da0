//! Transfers between the disk of guest a and the memory of guest b, in each way that the module
//! `vrnic_kdirect` knows, and their table.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::guest::Guest;
use crate::pair::Pair;

/// Bytes of each transfer.
const BYTES: u32 = 8 << 20;
/// Bytes of a page.
const PAGE_LEN: u32 = 4096;
/// Maximum time for a command.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The module's ways, by its parameter `way`.
const WAYS: [&str; 4] =
    ["mapped, RANGE_DONE", "mapped, marks", "through the window", "by one range of it"];

/// Moves data in all ways and both directions. Returns a table of the rates, and of the pages that
/// the kernel of guest a has allocated meanwhile.
///
/// # Errors
/// If a transfer fails.
pub fn table(pair: &Pair) -> Result<String> {
    let pages = BYTES / PAGE_LEN;
    let mut text = format!(
        "{BYTES} bytes between the disk of guest a and guest b, which are {pages} pages\n{:<22} {:>18} {:>18} {:>12}\n",
        "way of the bytes", "disk to peer, MB/s", "peer to disk, MB/s", "RAM pages"
    );
    for (way, name) in WAYS.into_iter().enumerate() {
        let load = format!(
            "set -e; IFS=: read major minor < $(ls -d /sys/class/block/nvme?n1)/dev
            insmod /vrnic/vrnic_kdirect.ko way={way} disk=$(( (major << 20) + minor ))"
        );
        pair.a.check(&load, TIMEOUT)?;
        let before = allocated(&pair.a)?;
        let rates = [transfer(pair, 0)?, transfer(pair, 1)?];
        let allocated = allocated(&pair.a)? - before;
        pair.a.check("rmmod vrnic_kdirect", TIMEOUT)?;
        writeln!(text, "{name:<22} {:>18.1} {:>18.1} {allocated:>12}", rates[0], rates[1])?;
    }
    Ok(text)
}

/// Moves the data to guest b, or with `write` from there. Returns the rate in MB/s.
fn transfer(pair: &Pair, write: u8) -> Result<f64> {
    let peer: Ipv4Addr = pair.a.ip().parse()?;
    let peer = u32::from(peer);
    let call = format!(
        "insmod /vrnic/vrnic_kdirect.ko peer={peer} bytes={BYTES} chunk=32768 write={write} && \
         rmmod vrnic_kdirect"
    );
    let begun = Instant::now();
    pair.b.check(&call, TIMEOUT).with_context(|| pair.a.kernel_log(20))?;
    Ok(f64::from(BYTES) / begun.elapsed().as_secs_f64() / 1e6)
}

/// Returns how many pages the guest's kernel has allocated since it booted.
///
/// # Errors
/// If the guest does not answer.
pub fn allocated(guest: &Guest) -> Result<u64> {
    let count = "cat /proc/sys/vm/stat_refresh; \
                 awk '/^pgalloc_/ { n += $2 } END { print n }' /proc/vmstat";
    Ok(guest.check(count, TIMEOUT)?.trim().parse()?)
}
