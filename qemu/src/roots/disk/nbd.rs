//! The contents of an image that a QEMU without a guest has opened. It hands them out by the NBD
//! protocol.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::console::tail;
use crate::machine::paths::Paths;
use crate::machine::process::Killed;
use crate::machine::rundir::RunDir;
use crate::qmp;
use crate::roots::disk::contents::DiskContents;

/// Time limit for QEMU to open an image. It allows for a loaded machine.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Time in which a QEMU that has closed its control socket ends, and the time between two looks.
const END_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The name of the disk in QEMU, and of its export.
const NAME: &str = "disk";

/// The first words of the server, and of a client's option.
const GREETING: &[u8; 8] = b"NBDMAGIC";
const OPTION: &[u8; 8] = b"IHAVEOPT";
/// The client's flags: the usual handshake, without padding.
const FLAGS: u32 = 3;
/// The option that chooses an export.
const EXPORT: u32 = 1;
/// The first bytes of a request and of its answer.
const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;
/// The request to read, without flags.
const READ: u32 = 0;

/// An open image. QEMU ends when this is dropped.
#[derive(Debug)]
pub struct Nbd {
    stream: UnixStream,
    size: u64,
    _qemu: Killed,
    _dir: RunDir,
}

impl Nbd {
    /// Starts QEMU, which opens an image of the format qcow2.
    ///
    /// # Errors
    /// If QEMU refuses the image. The text has QEMU's words.
    pub fn open(paths: &Paths, file: &Path) -> Result<Self> {
        let dir = RunDir::new()?;
        let at = |name: &str| dir.path().join(name);
        let (control, export, log) = (at("qmp"), at("nbd"), at("log"));
        // In QEMU's options, commas are doubled.
        let image = file.display().to_string().replace(',', ",,");
        let mut command = paths.qemu_command();
        command
            .args(["-machine", "none", "-nodefaults", "-display", "none", "-S", "-qmp"])
            .arg(format!("unix:{},server=on,wait=off", control.display()))
            .arg("-blockdev")
            .arg(format!(
                "driver=qcow2,node-name={NAME},read-only=on,file.driver=file,file.filename={image}"
            ))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?);
        let mut qemu = Killed::start(command).context("cannot start QEMU")?;
        match hand_out(&mut qemu, &control, &export) {
            Ok((stream, size)) => Ok(Self { stream, size, _qemu: qemu, _dir: dir }),
            // QEMU opens its control socket before the image, so it may end at any of the steps.
            Err(_) if ends(&mut qemu) => bail!("{}", reason(&tail(&log, 1))),
            Err(error) => Err(error),
        }
    }
}

/// Lets QEMU hand out the image. Returns the connection and the size of the disk.
fn hand_out(qemu: &mut Killed, control: &Path, export: &Path) -> Result<(UnixStream, u64)> {
    let end = Instant::now() + OPEN_TIMEOUT;
    while !control.exists() || UnixStream::connect(control).is_err() {
        ensure!(qemu.alive(), "QEMU has ended");
        ensure!(Instant::now() < end, "QEMU did not start within {} s", OPEN_TIMEOUT.as_secs());
        std::thread::sleep(POLL_INTERVAL);
    }
    let address = format!(r#"{{"type": "unix", "data": {{"path": "{}"}}}}"#, export.display());
    let command =
        format!(r#"{{"execute": "nbd-server-start", "arguments": {{"addr": {address}}}}}"#);
    qmp::run(control, &command)?;
    let arguments = format!(r#"{{"type": "nbd", "id": "{NAME}", "node-name": "{NAME}"}}"#);
    let command = format!(r#"{{"execute": "block-export-add", "arguments": {arguments}}}"#);
    qmp::run(control, &command)?;
    let mut stream = UnixStream::connect(export).context("QEMU does not hand it out")?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let size = greet(&mut stream)?;
    Ok((stream, size))
}

/// Returns whether QEMU ends soon.
fn ends(qemu: &mut Killed) -> bool {
    let end = Instant::now() + END_TIMEOUT;
    while qemu.alive() && Instant::now() < end {
        std::thread::sleep(POLL_INTERVAL);
    }
    !qemu.alive()
}

/// Returns QEMU's words about an image without the name of the program and of its option.
fn reason(line: &str) -> String {
    let said = line.split_once("-blockdev ").map_or(line, |(_, rest)| rest);
    let said = said.split_once(": ").map_or(said, |(_, rest)| rest);
    format!("QEMU says: {}", said.trim())
}

/// Chooses the export. Returns the size of the disk.
fn greet(stream: &mut (impl Read + Write)) -> Result<u64> {
    let mut hello = [0; 18];
    stream.read_exact(&mut hello)?;
    let expected = [&GREETING[..], OPTION].concat();
    ensure!(hello.starts_with(&expected), "QEMU does not speak the NBD protocol");
    let length = u32::try_from(NAME.len())?.to_be_bytes();
    let option = [&OPTION[..], &EXPORT.to_be_bytes(), &length, NAME.as_bytes()].concat();
    stream.write_all(&[&FLAGS.to_be_bytes()[..], &option].concat())?;
    // The size, and flags that do not matter here.
    let mut answer = [0; 10];
    stream.read_exact(&mut answer)?;
    let [size @ .., _, _] = answer;
    Ok(u64::from_be_bytes(size))
}

impl DiskContents for Nbd {
    fn read(&mut self, at: u64, len: u32) -> Result<Vec<u8>> {
        let left = self.size.saturating_sub(at);
        let len = u32::try_from(left).map_or(len, |left| left.min(len));
        if len == 0 {
            return Ok(Vec::new());
        }
        let handle = [0; 8];
        let (command, offset) = (READ.to_be_bytes(), at.to_be_bytes());
        let request =
            [&REQUEST.to_be_bytes()[..], &command, &handle, &offset, &len.to_be_bytes()].concat();
        self.stream.write_all(&request)?;
        let mut answer = [0; 16];
        self.stream.read_exact(&mut answer)?;
        let [a, b, c, d, e, f, g, h, ..] = answer;
        ensure!(u32::from_be_bytes([a, b, c, d]) == REPLY, "QEMU's answer has another form");
        let error = u32::from_be_bytes([e, f, g, h]);
        ensure!(error == 0, "QEMU cannot read it (error {error})");
        let mut data = vec![0; usize::try_from(len)?];
        self.stream.read_exact(&mut data)?;
        Ok(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qemus_words_are_shown_without_its_options() {
        let line = "qemu-system-x86_64: -blockdev driver=qcow2,file.filename=/x: Could not open \
                    backing file: No such file or directory\n";
        assert_eq!(
            reason(line),
            "QEMU says: Could not open backing file: No such file or directory"
        );
    }
}
