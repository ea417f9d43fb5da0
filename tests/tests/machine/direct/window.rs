//! Direct transfers through the window: the disk's controller stores into BAR4 of the adapter, and
//! reads there, while the work requests wait. The packet memory is the adapter's blocks.
//!
//! Shows: direct

use anyhow::{Result, ensure};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::modules;
use vrnic_qemu::pair::Pair;
use vrnic_tests::commands::{SHORT_TIMEOUT, settles};

use super::ranges::{
    BAD_SECTOR, CHUNK, Server, cause, disk_number, moves as moves_all, moves_by, no_ranges, status,
};

/// Bytes that a transfer moves, of which QEMU takes 8 at a time to and from the window, by a
/// message each. They are enough to compare their pages with those that the server's kernel
/// allocates.
const BYTES: u32 = 2 << 20;
/// The same where pages are not counted.
const FEW_BYTES: u32 = 256 << 10;

/// Returns the line of the window: its place, and its blocks.
fn blocks(guest: &Guest) -> Result<String> {
    Ok(guest.check("cat /sys/kernel/debug/vrnic-*/window", SHORT_TIMEOUT)?.trim().to_owned())
}

/// Checks that no block is in use.
fn none_used(guest: &Guest) -> Result<()> {
    let found = blocks(guest)?;
    let expected = "base 0 length 131072 blocks 32 allocated 0 waiting 0 short 0";
    ensure!(found == expected, "{found}");
    no_ranges(guest)
}

/// The kernel's driver of the disk has the pages of the window in its requests, so that the
/// controller moves the data to and from there.
pub(super) fn moves(pair: &mut Pair) -> Result<()> {
    let server = Server::load_with(pair, "way=2")?.with_bytes(BYTES);
    for (parameters, moved) in [("write=1", "rx_read_requests"), ("", "rx_write_requests")] {
        let crc = moves_all(&server, parameters, moved)?;
        server.disk_has(crc)?;
        settles(&pair.a, "! grep -q . /sys/kernel/debug/vrnic-*/ranges", 10)?;
        none_used(&pair.a)?;
    }
    server.unload()
}

/// The controller reads all pieces of a READ at the same place, while they arrive: each of them
/// comes when it has read the piece before it.
pub(super) fn one_range(pair: &mut Pair) -> Result<()> {
    let server = Server::load_with(pair, "way=3")?.with_bytes(FEW_BYTES);
    let transfers = u64::from(FEW_BYTES / CHUNK);
    let crc = moves_by(&server, "write=1", "rx_read_requests", transfers)?;
    server.disk_has(crc)?;
    settles(&pair.a, "! grep -q . /sys/kernel/debug/vrnic-*/ranges", 10)?;
    none_used(&pair.a)?;
    server.unload()
}

/// Two controllers move every other block of the same transfer, at the same time. What a peer has
/// given comes back, and each disk has got half of it.
///
/// Shows: direct: two controllers store stripes of one transfer
pub(super) fn stripes(pair: &mut Pair) -> Result<()> {
    modules::load_nvme(&pair.a)?;
    pair.a.plug_disk()?;
    let spare = disk_number("spare");
    settles(&pair.a, &format!("[ -n \"{spare}\" ] && [ {spare} -gt 0 ]"), 30)?;
    let written = |pair: &Pair| -> Result<Vec<u64>> {
        let sum = "for disk in /sys/class/block/nvme?n1/stat; do \
                   read -r _ _ _ _ _ _ sectors rest < $disk; echo $sectors; done";
        let text = pair.a.check(sum, SHORT_TIMEOUT)?;
        text.split_whitespace().map(|word| Ok(word.parse()?)).collect()
    };
    let server = Server::load_with(pair, &format!("way=2 disk2={spare}"))?.with_bytes(FEW_BYTES);
    let before = written(pair)?;
    let given = server.crc_in(&server.ask("write=1")?)?;
    let half = u64::from(FEW_BYTES / 512 / 2);
    let grown: Vec<_> = written(pair)?.iter().zip(&before).map(|(now, then)| now - then).collect();
    ensure!(grown == [half, half], "{grown:?} sectors were written, and not {half} each");
    let taken = server.crc_in(&server.ask("")?)?;
    ensure!(given == taken, "a peer gave data with the CRC {given}, and another got {taken}");
    settles(&pair.a, "! grep -q . /sys/kernel/debug/vrnic-*/ranges", 10)?;
    none_used(&pair.a)?;
    server.unload()
}

/// The disk does not begin, or cannot read or write a sector: the work requests fail in time, and
/// the next peer is served.
pub(super) fn fails(pair: &mut Pair) -> Result<()> {
    let server = Server::load_with(pair, "way=2")?.with_bytes(FEW_BYTES);
    let bad = format!("sector={} limit_ms=60000", BAD_SECTOR - CHUNK / 512 / 2);
    let failures = [("silent=1 limit_ms=500", 13), (bad.as_str(), 15)];
    for (parameters, why) in failures {
        // A WRITE waits for its bytes, and a READ has got them before TRANSFER.
        for (write, failed) in [(0, status(4)), (1, status(6))] {
            pair.a.check("dmesg -C", SHORT_TIMEOUT)?;
            let asked = format!("bytes={CHUNK} chunk={CHUNK} {parameters} write={write}");
            let [client, log] = server.fail(&asked)?;
            for word in [&failed, &cause(why)] {
                ensure!(log.contains(word.as_str()), "no '{word}' in\n{log}");
            }
            ensure!(client.contains("ECONNRESET"), "{client}");
            settles(&pair.a, "! grep -q . /sys/kernel/debug/vrnic-*/ranges", 10)?;
            none_used(&pair.a)?;
        }
    }
    server.ask("")?;
    server.unload()
}
