//! Commands to a guest's QEMU (its machine protocol, QMP).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// Runs a command, which is JSON text.
///
/// # Errors
/// If QEMU refuses it or does not answer.
pub fn run(socket: &Path, command: &str) -> Result<()> {
    let mut stream =
        UnixStream::connect(socket).context("cannot connect to QEMU's control socket")?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    for command in [r#"{"execute":"qmp_capabilities"}"#, command] {
        stream.write_all(format!("{command}\n").as_bytes())?;
        // Greetings and events may come before the answer.
        let answer = lines
            .by_ref()
            .find(|line| {
                line.as_ref().is_ok_and(|line| {
                    line.starts_with(r#"{"return""#) || line.starts_with(r#"{"error""#)
                }) || line.is_err()
            })
            .context("QEMU closed its control socket")??;
        ensure!(answer.starts_with(r#"{"return""#), "QEMU refused {command}: {answer}");
    }
    Ok(())
}
