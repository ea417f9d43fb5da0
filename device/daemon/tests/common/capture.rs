//! Captures by the command `vrnic pcap`, and the packets in their files.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use vrnic_roce::wire::Frame;
use vrnic_testdriver::wait;

use super::world::World;

/// A capture in progress. It is killed on drop.
pub(crate) struct Capture {
    pub(crate) child: Child,
    pub(crate) file: PathBuf,
}

impl Capture {
    /// Starts a capture, and waits until the daemon has begun it.
    pub(crate) fn start(world: &World, args: &str) -> Self {
        let file = world.folder.path("out.pcapng");
        let mut command = Command::new(env!("CARGO_BIN_EXE_vrnic"));
        command.arg("--control").arg(world.folder.path("control")).arg("pcap");
        command.arg("-w").arg(&file).args(args.split_whitespace());
        let log = std::fs::File::create(world.folder.path("pcap.log")).expect("a file");
        let child = command.stderr(log).stdout(Stdio::null()).spawn().expect("vrnic runs");
        wait::until("the capture", || {
            let log = std::fs::read_to_string(world.folder.path("pcap.log")).expect("the log");
            log.contains("capturing").then_some(())
        });
        Self { child, file }
    }

    /// Ends the capture as Ctrl-C does. Returns the packets.
    pub(crate) fn end(mut self) -> Vec<Packet> {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a process");
        kill_process(pid, Signal::INT).expect("a signal");
        self.wait();
        packets(&std::fs::read(&self.file).expect("the file"))
    }

    /// Waits until the command has ended.
    pub(crate) fn wait(&mut self) {
        let status = wait::until("its end", || self.child.try_wait().expect("a child"));
        assert!(status.success(), "{status}");
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) && self.child.kill().is_ok() {
            let _status = self.child.wait();
        }
    }
}

/// A packet of a file.
#[derive(Debug)]
pub(crate) struct Packet {
    /// The name of the interface.
    pub(crate) interface: String,
    /// The length of the packet before it was cut.
    pub(crate) length: u32,
    pub(crate) bytes: Vec<u8>,
    pub(crate) comments: Vec<String>,
}

impl Packet {
    /// Returns the opcode of RoCE and the payload. Checks the CRC.
    pub(crate) fn roce(&self) -> Option<(String, Vec<u8>)> {
        let frame = Frame::parse(&self.bytes).expect("right headers")?;
        let packet = frame.packet().expect("a right CRC");
        let (opcode, psn) = frame.operation().expect("an opcode");
        assert_eq!(psn, packet.head.psn);
        Some((opcode.to_string(), packet.payload.to_vec()))
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

/// Reads the comments among the options of a block, which end with its length.
fn comments(mut options: &[u8]) -> Vec<String> {
    let mut comments = Vec::new();
    while options.len() > 4 {
        let (code, length) = (word(options, 0) & 0xffff, (word(options, 0) >> 16) as usize);
        if code == 1 {
            let text = options[4..4 + length].to_vec();
            comments.push(String::from_utf8(text).expect("text"));
        }
        options = &options[4 + length.next_multiple_of(4)..];
    }
    comments
}

/// Reads a pcapng file. Checks that its last block reports no dropped packets.
pub(crate) fn packets(mut file: &[u8]) -> Vec<Packet> {
    let (mut interfaces, mut packets, mut ended) = (Vec::new(), Vec::new(), false);
    assert_eq!(word(file, 0), 0x0a0d_0d0a, "a section first");
    while !file.is_empty() {
        let length = word(file, 4) as usize;
        let (block, rest) = file.split_at(length);
        assert_eq!(word(block, length - 4) as usize, length);
        assert!(!ended, "blocks behind the statistics");
        match word(block, 0) {
            1 => {
                assert_eq!(word(block, 16) & 0xffff, 2, "the name");
                let name = &block[20..20 + (word(block, 16) >> 16) as usize];
                interfaces.push(String::from_utf8(name.to_vec()).expect("text"));
            }
            6 => packets.push(Packet {
                interface: interfaces[word(block, 8) as usize].clone(),
                length: word(block, 24),
                bytes: block[28..28 + word(block, 20) as usize].to_vec(),
                comments: comments(&block[28 + word(block, 20).next_multiple_of(4) as usize..]),
            }),
            5 => {
                assert_eq!(block[24..32], [0; 8], "packets were dropped");
                ended = true;
            }
            _ => {}
        }
        file = rest;
    }
    packets
}

/// Runs tshark with a capture. Returns its output, or `None` if it is not installed.
pub(crate) fn tshark(file: &Path, args: &[&str]) -> Option<String> {
    let Ok(output) = Command::new("tshark").arg("-r").arg(file).args(args).output() else {
        eprintln!("skipped: tshark is not installed");
        return None;
    };
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}
