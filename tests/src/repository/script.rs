//! The scripts of the repository, as their tests run them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use vrnic_qemu::machine::paths::Paths;
use vrnic_qemu::traffic::perftest::with_sound_clocks;

/// Returns the folder of the repository.
pub fn top() -> Result<PathBuf> {
    Ok(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?)
}

/// Runs a command without input.
pub fn run(command: &mut Command) -> Result<Output> {
    let output = command.stdin(Stdio::null()).output();
    output.with_context(|| format!("cannot run {command:?}"))
}

/// Runs a command, which must succeed. Returns its output.
pub fn succeed(command: &mut Command) -> Result<String> {
    let output = run(command)?;
    ensure!(output.status.success(), "{command:?}: {}", said(&output));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the status and the texts of a command that has ended.
pub fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// Calls `run` with a perftest, and again if perftest prints no figures because of the guest's
/// clocks.
pub fn with_figures(run: impl Fn() -> Result<Output>) -> Result<Output> {
    with_sound_clocks(run, |ran| (!ran.status.success()).then(|| said(ran)))
}

/// Unpacks the files of the guests' image into a new folder, without modules of the kernel.
pub fn base_root(into: &Path) -> Result<()> {
    fs::create_dir(into)?;
    let base = File::open(Paths::from_env()?.base_image())?;
    let mut cpio = Command::new("cpio");
    cpio.args(["--quiet", "-id", "--no-absolute-filenames"]).current_dir(into).stdin(base);
    let status = cpio.stdout(Stdio::null()).status().context("cannot run cpio")?;
    ensure!(status.success(), "{cpio:?}: {status}");
    Ok(fs::remove_dir_all(into.join("usr/lib/modules"))?)
}

/// Makes an archive of the contents of a folder, with further options of tar.
pub fn archive(folder: &Path, into: &Path, options: &[&str]) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(options).arg("-cf").arg(into).arg("-C").arg(folder).arg(".");
    succeed(&mut tar).map(drop)
}

/// Compiles a program, in Rust, that needs no library.
pub fn static_program(into: &Path, text: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let source = folder.path().join("program.rs");
    fs::write(&source, text)?;
    let flags = ["--edition", "2021", "-C", "target-feature=+crt-static", "-o"];
    succeed(Command::new("rustc").args(flags).arg(into).arg(&source)).map(drop)
}
