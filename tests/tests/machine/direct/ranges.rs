//! Direct transfers by a kernel client (`driver/tests/kdirect`): guest b asks the server in guest a
//! for blocks of a's disk, or gives blocks to it.
//!
//! Shows: direct

use std::net::Ipv4Addr;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::modules;
use vrnic_qemu::pair::Pair;
use vrnic_qemu::traffic::transfers::allocated;
use vrnic_tests::commands::{LONG_TIMEOUT, SHORT_TIMEOUT, counter, said, settles, works};
use vrnic_tests::object_counts::ObjectCounts;

use super::{MEMORY, number};

/// Bytes that a transfer moves.
const BYTES: u32 = 8 << 20;
/// Pages that the server's kernel may allocate for itself and for the programs of the test.
const OWN_PAGES: u64 = 512;
/// Bytes of a request, and of the server's packet memory.
pub(super) const CHUNK: u32 = 32 << 10;
/// Bytes of a range, and of a page.
pub(super) const RANGE: u32 = 4096;
/// The first block in use, and its sector.
const FIRST: u32 = 100;
const SECTOR: u32 = FIRST * RANGE / 512;
/// A sector after the sectors of all other cases. It cannot be read or written.
pub(super) const BAD_SECTOR: u32 = 130_000;
/// Shell words that name the server's disk.
const DISK: &str = "$(ls /dev/nvme?n1)";

/// Returns shell words that become the number of the disk of the controller with this serial
/// number, as the server's module takes it.
pub(super) fn disk_number(serial: &str) -> String {
    format!(
        "$(c=$(basename $(dirname $(grep -l ^{serial} /sys/class/nvme/nvme*/serial))); \
         IFS=: read major minor < /sys/class/block/${{c}}n1/dev; echo $(( (major << 20) + minor )))"
    )
}

/// The server's kernel client, with the counts of both guests before it was loaded.
pub(super) struct Server<'a> {
    pair: &'a Pair,
    before: [ObjectCounts; 2],
    /// Bytes that a transfer moves.
    bytes: u32,
}

impl<'a> Server<'a> {
    fn load(pair: &'a Pair) -> Result<Self> {
        Self::load_with(pair, "")
    }

    pub(super) fn load_with(pair: &'a Pair, parameters: &str) -> Result<Self> {
        modules::load_nvme(&pair.a)?;
        let before = [ObjectCounts::take(pair, &pair.a)?, ObjectCounts::take(pair, &pair.b)?];
        let load = format!(
            "set -e; dmesg -C; insmod /vrnic/vrnic_kdirect.ko disk={} {parameters}",
            disk_number("vrnic")
        );
        pair.a.check(&load, SHORT_TIMEOUT)?;
        Ok(Self { pair, before, bytes: BYTES })
    }

    /// Makes transfers move this many bytes.
    pub(super) fn with_bytes(self, bytes: u32) -> Self {
        Self { bytes, ..self }
    }

    /// Returns the command by which guest b sends its request.
    fn call(&self, parameters: &str) -> Result<String> {
        let peer: Ipv4Addr = self.pair.a.ip().parse()?;
        let peer = u32::from(peer);
        // A parameter must not be given twice.
        let sector = match parameters.contains("sector=") {
            true => String::new(),
            false => format!("sector={SECTOR}"),
        };
        Ok(format!("insmod /vrnic/vrnic_kdirect.ko peer={peer} {sector} {parameters}"))
    }

    /// Asks for all bytes. Returns the client's message about them.
    pub(super) fn ask(&self, parameters: &str) -> Result<String> {
        let call = self.call(&format!("bytes={} chunk={CHUNK} {parameters}", self.bytes))?;
        let ask = format!(
            "dmesg -C; {call}; r=$?; dmesg | grep kdirect; [ $r = 0 ] && rmmod vrnic_kdirect"
        );
        self.pair.b.check(&ask, LONG_TIMEOUT).with_context(|| self.pair.a.kernel_log(20))
    }

    /// Returns the CRC in a client's message.
    pub(super) fn crc_in(&self, text: &str) -> Result<u32> {
        let said = format!("{} bytes with the CRC ", self.bytes);
        let (_, rest) = text.split_once(&said).with_context(|| text.to_owned())?;
        Ok(rest.split_whitespace().next().context("a CRC")?.parse()?)
    }

    /// Sends a request that fails. Returns the logs of client and server.
    pub(super) fn fail(&self, parameters: &str) -> Result<[String; 2]> {
        let call = self.call(parameters)?;
        let refused = self.pair.b.agent().run(&format!("dmesg -C; {call}"), LONG_TIMEOUT)?;
        ensure!(!refused.ok(), "a request succeeded: {}", said(&refused));
        settles(&self.pair.a, "dmesg | grep -q 'serving a client failed'", 30)?;
        let log = |guest: &Guest| guest.check("dmesg | grep -E 'kdirect|kclient'", SHORT_TIMEOUT);
        Ok([log(&self.pair.b)?, log(&self.pair.a)?])
    }

    /// Checks that the disk has the data that a peer got or gave. Compares its CRC and length,
    /// which gzip prints.
    pub(super) fn disk_has(&self, crc: u32) -> Result<()> {
        let sum = format!(
            "dd if={DISK} bs={RANGE} skip={FIRST} count={} iflag=direct 2>/dev/null | \
             gzip -1 | tail -c 8 | od -An -tu4",
            self.bytes / RANGE
        );
        let text = self.pair.a.check(&sum, LONG_TIMEOUT)?;
        let (found, length) = text.trim().split_once(char::is_whitespace).context(text.clone())?;
        let there: (u32, u32) = (found.parse()?, length.trim().parse()?);
        ensure!(
            there == (crc, self.bytes),
            "the peer has data with the CRC {crc}; the disk: {there:?}"
        );
        Ok(())
    }

    /// Unloads the server's client, and checks that no objects are left. Then both guests work.
    pub(super) fn unload(self) -> Result<()> {
        self.pair.a.check("rmmod vrnic_kdirect", SHORT_TIMEOUT)?;
        self.gone()
    }

    /// Checks that no objects of an unloaded client are left.
    fn gone(self) -> Result<()> {
        no_ranges(&self.pair.a)?;
        let left = number(&self.pair.a, "available")?;
        ensure!(left == MEMORY, "only {left} bytes of device memory came back");
        for (before, guest) in self.before.iter().zip([&self.pair.a, &self.pair.b]) {
            before.unchanged(self.pair, guest)?;
        }
        works(self.pair)
    }
}

/// Checks that no address range has an owner.
pub(super) fn no_ranges(guest: &Guest) -> Result<()> {
    let owners = guest.check("cat /sys/kernel/debug/vrnic-*/ranges", SHORT_TIMEOUT)?;
    ensure!(owners.is_empty(), "ranges are in use: {owners}");
    Ok(())
}

/// Moves the data, and checks that all of it went through ranges, and that the server's kernel
/// allocated few pages for it. Returns the CRC.
///
/// Shows: direct: a disk's controller stores into the window, in both directions
pub(super) fn moves(server: &Server<'_>, parameters: &str, moved: &str) -> Result<u32> {
    moves_by(server, parameters, moved, u64::from(server.bytes / RANGE))
}

/// Moves the data as [`moves`] does, by this number of TRANSFERs.
pub(super) fn moves_by(
    server: &Server<'_>,
    parameters: &str,
    moved: &str,
    transfers: u64,
) -> Result<u32> {
    let Server { pair, bytes, .. } = server;
    let counts =
        || Ok::<_, anyhow::Error>([counter(&pair.a, "transfer_wqes")?, counter(&pair.b, moved)?]);
    let before = (counts()?, allocated(&pair.a)?);
    let begun = Instant::now();
    let text = server.ask(parameters)?;
    let time = begun.elapsed().as_millis();
    let pages = allocated(&pair.a)? - before.1;
    let after = counts()?;
    let each = u64::from(bytes / RANGE);
    println!("{bytes} bytes in {time} ms: the server's kernel allocated {pages} pages of {each}");
    let limit = (each / 2).max(OWN_PAGES);
    ensure!(pages < limit, "the server's kernel allocated {pages} pages");
    let grown = [after[0] - before.0[0], after[1] - before.0[1]];
    ensure!(grown == [transfers; 2], "TRANSFERs, and {moved}: {grown:?}, and not {transfers}");
    server.crc_in(&text)
}

/// The blocks of a disk are sent by TRANSFERs that were posted before the disk got its command. The
/// blocks are never in the server's RAM: its kernel allocates few pages during the transfer, and
/// many pages when it reads the same blocks itself.
pub(super) fn blocks_leave(pair: &mut Pair) -> Result<()> {
    let server = Server::load(pair)?;
    let fill = format!(
        "dd if=/dev/urandom of={DISK} bs={RANGE} seek={FIRST} count={} oflag=direct 2>/dev/null",
        BYTES / RANGE
    );
    pair.a.check(&fill, LONG_TIMEOUT)?;
    let here = moves(&server, "", "rx_write_requests")?;
    let buffered = format!(
        "echo 3 > /proc/sys/vm/drop_caches; \
         dd if={DISK} of=/dev/null bs={RANGE} skip={FIRST} count={} 2>/dev/null",
        BYTES / RANGE
    );
    let before = allocated(&pair.a)?;
    pair.a.check(&buffered, LONG_TIMEOUT)?;
    let buffered = allocated(&pair.a)? - before;
    println!("pages that it allocates to read the same by its page cache: {buffered}");
    ensure!(buffered >= u64::from(BYTES / RANGE), "the page cache took {buffered} pages only");
    server.disk_has(here)?;
    server.unload()
}

/// The blocks that a peer gives are on the disk when the answer is sent.
pub(super) fn blocks_come(pair: &mut Pair) -> Result<()> {
    let server = Server::load(pair)?;
    let sent = moves(&server, "write=1", "rx_read_requests")?;
    server.disk_has(sent)?;
    server.unload()
}

/// The same in both directions with marks: the disk's command ends with a store, and a READ does
/// not need the state of a range. If a disk fails, or never ends its command, the transfers fail.
///
/// Shows: direct: blocks leave and come by marks
pub(super) fn marked(pair: &mut Pair) -> Result<()> {
    let server = Server::load_with(pair, "way=1")?;
    for (parameters, moved) in [("write=1", "rx_read_requests"), ("", "rx_write_requests")] {
        let crc = moves(&server, parameters, moved)?;
        server.disk_has(crc)?;
        no_ranges(&pair.a)?;
    }
    let bad = format!("sector={} limit_ms=60000", BAD_SECTOR - CHUNK / 512 / 2);
    let failures = [("silent=1 limit_ms=500", 13), (bad.as_str(), 15)];
    for (parameters, why) in failures {
        for write in [0, 1] {
            pair.a.check("dmesg -C", SHORT_TIMEOUT)?;
            let asked = format!("bytes={CHUNK} chunk={CHUNK} {parameters} write={write}");
            let [client, log] = server.fail(&asked)?;
            for word in [status(6), cause(why)] {
                ensure!(log.contains(&word), "no '{word}' in\n{log}");
            }
            ensure!(client.contains("ECONNRESET"), "{client}");
        }
    }
    server.ask("")?;
    server.unload()
}

/// The server does not use its disk: the transfers fail when their time limit ends.
pub(super) fn never_done(pair: &mut Pair) -> Result<()> {
    let server = Server::load(pair)?;
    for parameters in ["", "write=1"] {
        pair.a.check("dmesg -C", SHORT_TIMEOUT)?;
        let [client, log] = server.fail(&format!("silent=1 limit_ms=500 {parameters}"))?;
        for word in [status(6), cause(13)] {
            ensure!(log.contains(&word), "no '{word}' in\n{log}");
        }
        ensure!(client.contains("ECONNRESET"), "{client}");
        ensure!(!parameters.is_empty() || client.contains("not zero: 0\n"), "{client}");
        settles(&pair.a, "! grep -q . /sys/kernel/debug/vrnic-*/ranges", 10)?;
    }
    server.unload()
}

/// The disk cannot read or write a sector: the requests that wait for it fail at once. A client
/// that asks for blocks gets none, since the single command for all of them has failed. If a client
/// gives blocks, the blocks before the sector are on the disk.
///
/// Shows: direct: disks that cannot read or write a block
pub(super) fn disk_fails(pair: &mut Pair) -> Result<()> {
    let server = Server::load(pair)?;
    let sector = BAD_SECTOR - CHUNK / 512 / 2;
    for (parameters, refusal) in [("", "refused a read"), ("write=1", "refused a write")] {
        pair.a.check("dmesg -C", SHORT_TIMEOUT)?;
        let asked = format!("sector={sector} bytes={CHUNK} chunk={CHUNK} limit_ms=60000");
        let [client, log] = server.fail(&format!("{asked} {parameters}"))?;
        for word in [refusal, &status(6), &cause(15)] {
            ensure!(log.contains(word), "no '{word}' in\n{log}");
        }
        ensure!(client.contains("ECONNRESET"), "{client}");
        ensure!(!parameters.is_empty() || client.contains("not zero: 0\n"), "{client}");
        settles(&pair.a, "! grep -q . /sys/kernel/debug/vrnic-*/ranges", 10)?;
    }
    // Other sectors can be read.
    server.ask("")?;
    server.unload()
}

/// The client ends while transfers wait: the server destroys its QP, and with it all of its ranges.
pub(super) fn peer_goes(pair: &mut Pair) -> Result<()> {
    let server = Server::load(pair)?;
    let [client, _] = server.fail("silent=1 limit_ms=60000 timeout_ms=1000")?;
    ensure!(client.contains("ETIMEDOUT"), "{client}");
    settles(&pair.a, "! grep -q . /sys/kernel/debug/vrnic-*/ranges", 10)?;
    // The next client is served with the same ranges.
    server.ask("")?;
    server.unload()
}

/// The server's module is removed while its transfers wait, and while they move data.
pub(super) fn server_goes(pair: &mut Pair) -> Result<()> {
    for parameters in ["silent=1 limit_ms=60000", "bytes=60000000", "bytes=60000000 write=1"] {
        let server = Server::load(pair)?;
        let asking = pair.b.agent().start(&server.call(parameters)?)?;
        settles(&pair.a, "[ $(cat /sys/kernel/debug/vrnic-*/ranges | wc -l) = 8 ]", 20)?;
        let left = number(&pair.a, "available")?;
        ensure!(left == MEMORY - u64::from(CHUNK), "{left} bytes of device memory are left");
        std::thread::sleep(std::time::Duration::from_millis(200));
        pair.a.check("rmmod vrnic_kdirect", SHORT_TIMEOUT)?;
        let refused = asking.wait(LONG_TIMEOUT)?;
        ensure!(!refused.ok(), "{parameters}: the client got everything: {}", said(&refused));
        server.gone().with_context(|| parameters.to_owned())?;
    }
    Ok(())
}

/// Returns the words of the log about a completion with this status.
pub(super) fn status(status: u32) -> String {
    format!("a request completed with Status({status})")
}

/// Returns the words of the log about this cause of a failed TRANSFER.
pub(super) fn cause(vendor: u32) -> String {
    format!("vendor error of the device: {vendor}\n")
}
