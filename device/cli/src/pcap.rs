//! Captures of the traffic of a running daemon.

use std::io::{ErrorKind, IsTerminal, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use vrnic_control_api::request::{Place, Reply, Request};

use crate::change::send;
use crate::files::{Files, Ring};

/// Time between two checks of whether the user has ended the capture.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Length of the longest block, which has room for a frame and a comment.
const BLOCK_MAX: usize = 1 << 20;
/// Types of blocks.
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;

/// The place of the capture, and the file to write.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("place").required(true)))]
pub(crate) struct Pcap {
    /// Capture what this function sends and receives
    #[arg(short, long, value_name = "NAME", group = "place")]
    function: Option<String>,
    /// Capture the frames of this uplink
    #[arg(short, long, value_name = "NAME", group = "place")]
    uplink: Option<String>,
    /// Capture the frames of this port without a function
    #[arg(short, long, value_name = "NAME", group = "place")]
    port: Option<String>,
    /// Write to this file; - stands for standard output
    #[arg(short, long, value_name = "FILE")]
    write: PathBuf,
    /// Write at most this many bytes of each frame
    #[arg(short, long, value_name = "BYTES", default_value_t = 0, hide_default_value = true)]
    snaplen: u32,
    /// End after this many frames
    #[arg(short, long, value_name = "FRAMES")]
    count: Option<u64>,
    /// Write a ring of this many files, and overwrite the oldest when all are full
    #[arg(long, value_name = "FILES", requires = "size", value_parser = clap::value_parser!(u32).range(1..))]
    ring: Option<u32>,
    /// Maximum number of bytes of each file of a ring
    #[arg(long, value_name = "BYTES", requires = "ring")]
    size: Option<u64>,
}

/// Captures until the count is reached, or until the user or the daemon ends the capture.
pub(crate) fn run(control: &Path, pcap: &Pcap) -> anyhow::Result<()> {
    let Pcap { function, uplink, port, write, snaplen, count, ring, size } = pcap;
    let at = match (function, uplink, port) {
        (Some(name), _, _) => Place::Function(name.clone()),
        (_, Some(name), _) => Place::Uplink(name.clone()),
        (_, _, Some(name)) => Place::Port(name.clone()),
        _ => bail!("--function, --uplink or --port is missing"),
    };
    let to_terminal = write.as_os_str() == "-" && std::io::stdout().is_terminal();
    ensure!(!to_terminal, "a capture cannot be written to a terminal");
    ensure!(
        ring.is_none() || write.as_os_str() != "-",
        "--ring needs the name of a file, not standard output"
    );
    let ring = ring.zip(*size).map(|(files, size)| Ring { files, size, at: 0 });
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let (reply, stream) = send(control, &Request::Capture { at, snap_length: *snaplen })?;
    match reply {
        Reply::Done => {}
        Reply::Refused(why) => bail!("the daemon refused this: {why}"),
        other => bail!("unexpected reply from the daemon: {other:?}"),
    }
    let files = Files::create(write, ring)?;
    stream.get_ref().set_read_timeout(Some(POLL_INTERVAL))?;
    let mut reading = Reading { stream, files, stop, left: *count, frames: 0, asked: false };
    let dropped = reading.follow()?;
    let frames = reading.frames;
    match dropped {
        Some(dropped) => eprintln!("{frames} frames; {dropped} records were dropped"),
        None => eprintln!("{frames} frames; the daemon has ended"),
    }
    Ok(())
}

/// A capture that is being read.
struct Reading {
    stream: std::io::BufReader<UnixStream>,
    files: Files,
    stop: Arc<AtomicBool>,
    /// Number of frames that are still to be written.
    left: Option<u64>,
    frames: u64,
    /// True if the daemon has been asked to end the capture.
    asked: bool,
}

impl Reading {
    /// Writes all blocks to files. Returns how many records the daemon has dropped, if it has sent
    /// this number.
    fn follow(&mut self) -> anyhow::Result<Option<u64>> {
        let mut block = Vec::new();
        let mut dropped = None;
        let mut begun = false;
        while self.block(&mut block)? {
            // The daemon sends the first block when the capture has begun.
            if !std::mem::replace(&mut begun, true) {
                eprintln!("capturing; Ctrl-C ends it");
            }
            match word(&block, 0) {
                Some(PACKET) if self.left == Some(0) => {}
                Some(PACKET) => {
                    self.files.packet(&block).context("the capture cannot be written")?;
                    self.frames += 1;
                    self.left = self.left.map(|left| left - 1);
                }
                Some(STATISTICS) => {
                    let number = block.get(24..).and_then(|number| number.first_chunk());
                    dropped = number.map(|number| u64::from_le_bytes(*number));
                    self.files.packet(&block)?;
                }
                _ => self.files.head(&block)?,
            }
            if self.left == Some(0) {
                self.end()?;
            }
        }
        self.files.flush().context("the capture cannot be written")?;
        Ok(dropped)
    }

    /// Asks the daemon to end the capture. Further calls have no effect.
    fn end(&mut self) -> anyhow::Result<()> {
        if !std::mem::replace(&mut self.asked, true) {
            self.stream.get_ref().shutdown(Shutdown::Write)?;
        }
        Ok(())
    }

    /// Reads a block. Returns false at the end.
    fn block(&mut self, block: &mut Vec<u8>) -> anyhow::Result<bool> {
        block.clear();
        if !self.fill(block, 8)? {
            return Ok(false);
        }
        let length = word(block, 4).and_then(|length| usize::try_from(length).ok());
        let length = length.filter(|length| (12..=BLOCK_MAX).contains(length));
        let length = length.context("the daemon has sent data that is not a capture")?;
        self.fill(block, length)
    }

    /// Reads until `block` has this length. Returns false at the end.
    fn fill(&mut self, block: &mut Vec<u8>, length: usize) -> anyhow::Result<bool> {
        let mut at = block.len();
        block.resize(length, 0);
        while let Some(rest) = block.get_mut(at..).filter(|rest| !rest.is_empty()) {
            match self.stream.read(rest) {
                Ok(0) => return Ok(false),
                Ok(count) => at += count,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    self.files.flush().context("the capture cannot be written")?;
                    if self.stop.load(Ordering::Relaxed) {
                        self.end()?;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("the connection to the daemon is lost"),
            }
            if self.stop.load(Ordering::Relaxed) {
                self.end()?;
            }
        }
        Ok(true)
    }
}

fn word(block: &[u8], at: usize) -> Option<u32> {
    block.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
}
