//! `vrnic check`: runs a program with the checker of verbs, which the loader puts into it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf, absolute};
use std::process::{Command, ExitCode};

use anyhow::{Context, ensure};

/// The file of the library, and the folder in which the package has it.
const NAME: &str = "libvrnic_check.so";
const INSTALLED: &str = "/usr/lib/x86_64-linux-gnu/vrnic";
/// The environment variable that names the library.
const LIBRARY: &str = "VRNIC_CHECK_LIBRARY";
/// The environment variable with the options of the checker.
const OPTIONS: &str = "VRNIC_CHECK";
/// The environment variable with the libraries that the loader puts into a program.
const PRELOAD: &str = "LD_PRELOAD";
/// Bytes at the begin of a program, which have its headers.
const HEAD: u64 = 4096;
/// The type of the header that names the loader.
const PT_INTERP: [u8; 4] = [3, 0, 0, 0];
/// Exit status if the program could not be started.
const USAGE: u8 = 2;
/// Exit status if the program cannot be executed, as that of env(1).
const NOT_EXECUTABLE: u8 = 126;
/// Exit status if the program does not exist.
const NOT_FOUND: u8 = 127;

/// What to run, and what is printed.
#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// End with status 66 if a program has made a mistake and would end with 0
    #[arg(long)]
    fail: bool,
    /// Print hints, too, which may be wrong
    #[arg(long)]
    hints: bool,
    /// Compare all bytes of buffers, and not samples of large ones
    #[arg(long)]
    strict: bool,
    /// Protect pages of buffers from writes while requests send them, so that a report has the line
    /// that changes them
    #[arg(long)]
    guard: bool,
    /// Add each report to a file, as a line of JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Add each report to a document of SARIF, which forges show next to the code
    #[arg(long, value_name = "FILE")]
    sarif: Option<PathBuf>,
    /// Do not print the reports that a file has lines for
    #[arg(long, value_name = "FILE")]
    suppressions: Vec<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Runs the program in place of this one. Returns an exit status if it cannot be started.
pub(crate) fn main(check: Check) -> ExitCode {
    let (options, library) = match check.options().and_then(|options| Ok((options, find()?))) {
        Ok(found) => found,
        Err(error) => {
            eprintln!("vrnic: {error:#}");
            return USAGE.into();
        }
    };
    let mut command = check.command.iter();
    // clap demands one.
    let program = command.next().cloned().unwrap_or_default();
    if place(&program).is_some_and(|file| is_static(&file)) {
        eprintln!(
            "vrnic: {} is linked statically, and can be checked only if it is linked with the \
             shared libibverbs",
            program.display()
        );
        return USAGE.into();
    }
    let error = Command::new(&program)
        .args(command)
        .env(OPTIONS, options)
        .env(PRELOAD, preload(&library, std::env::var_os(PRELOAD)))
        .exec();
    eprintln!("vrnic: {} cannot be executed: {error}", program.display());
    let is_missing = error.kind() == ErrorKind::NotFound;
    if is_missing { NOT_FOUND.into() } else { NOT_EXECUTABLE.into() }
}

impl Check {
    /// Returns the options of the checker. Programs of other folders must find the files.
    fn options(&self) -> anyhow::Result<String> {
        let words = [
            (self.fail, "fail"),
            (self.hints, "hints"),
            (self.strict, "strict"),
            (self.guard, "guard"),
        ];
        let words = words.into_iter().filter(|(is_set, _)| *is_set);
        let mut options: Vec<_> = words.map(|(_, word)| word.to_owned()).collect();
        let json = self.json.iter().map(|file| ("json", file));
        let json = json.chain(self.sarif.iter().map(|file| ("sarif", file)));
        let suppressions = self.suppressions.iter().map(|file| ("suppressions", file));
        for (word, file) in json.chain(suppressions) {
            let file = absolute(file)?;
            let name = file.to_str().filter(|name| !name.contains(','));
            let name = name.with_context(|| {
                format!("{} has a comma in its name, or is no UTF-8", file.display())
            })?;
            options.push(format!("{word}={name}"));
        }
        Ok(options.join(","))
    }
}

/// Returns the library that a build has made next to this program, or that of the package.
fn beside() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().and_then(|path| path.canonicalize())?;
    let path = own.with_file_name(NAME);
    let installed = Path::new(INSTALLED).join(NAME);
    let found = [&path, &installed].into_iter().find(|path| path.exists());
    found.cloned().with_context(|| {
        format!(
            "the checker is neither {} nor {}. Install the package vrnic-check, build it with \
             `cargo build --release -p vrnic-check`, or set {LIBRARY} to its file",
            path.display(),
            installed.display()
        )
    })
}

/// Returns the library.
fn find() -> anyhow::Result<PathBuf> {
    let path = match std::env::var_os(LIBRARY).map(PathBuf::from) {
        Some(path) => path
            .canonicalize()
            .with_context(|| format!("{LIBRARY}={}: there is no such file", path.display()))?,
        None => beside()?,
    };
    // The loader takes a space or a colon for the end of a name.
    let name = path.to_string_lossy();
    ensure!(
        !name.contains([' ', ':']),
        "the loader cannot load {name}, whose name has a space or a colon"
    );
    Ok(path)
}

/// Returns the file of a program.
fn place(program: &OsStr) -> Option<PathBuf> {
    if Path::new(program).components().count() > 1 {
        return Some(program.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.exists())
}

/// Returns whether a file is a program that needs no loader, which could put a library into it.
fn is_static(file: &Path) -> bool {
    let mut bytes = Vec::new();
    let read = File::open(file).and_then(|file| file.take(HEAD).read_to_end(&mut bytes));
    read.is_ok() && has_no_loader(&bytes) == Some(true)
}

/// Returns whether no header of an ELF file of 64 bits names a loader (`PT_INTERP`); none for other
/// files.
fn has_no_loader(bytes: &[u8]) -> Option<bool> {
    bytes.strip_prefix(b"\x7fELF\x02\x01")?;
    let number = |at: usize| {
        let two = bytes.get(at..at.checked_add(2)?)?;
        Some(usize::from(u16::from_le_bytes(two.try_into().ok()?)))
    };
    let start = u64::from_le_bytes(bytes.get(32..40)?.try_into().ok()?);
    let (start, size, count) = (usize::try_from(start).ok()?, number(54)?, number(56)?);
    for header in 0..count {
        let at = start.checked_add(header.checked_mul(size)?)?;
        if bytes.get(at..at.checked_add(4)?)? == PT_INTERP {
            return Some(false);
        }
    }
    Some(true)
}

/// Returns the libraries that the loader puts into the program.
fn preload(library: &Path, others: Option<OsString>) -> OsString {
    let mut all = library.as_os_str().to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_words_with_commas() {
        let check = Check {
            fail: true,
            hints: false,
            strict: true,
            guard: false,
            json: Some("/tmp/out".into()),
            sarif: Some("/tmp/b".into()),
            suppressions: vec!["/etc/known".into()],
            command: Vec::new(),
        };
        let options = check.options().expect("options");
        assert_eq!(options, "fail,strict,json=/tmp/out,sarif=/tmp/b,suppressions=/etc/known");
        let check = Check { json: Some("a,b".into()), ..check };
        assert!(check.options().expect_err("a comma").to_string().contains("comma"));
    }

    #[test]
    fn static_programs_are_told_from_others() {
        let mut file = b"\x7fELF\x02\x01".to_vec();
        file.resize(64, 0);
        (file[32], file[54], file[56]) = (64, 56, 2);
        file.resize(64 + 2 * 56, 0);
        assert_eq!(has_no_loader(&file), Some(true));
        file[64 + 56] = 3;
        assert_eq!(has_no_loader(&file), Some(false));
        // A file that says it has more headers than it has.
        file[57] = 255;
        file[64 + 56] = 1;
        assert_eq!(has_no_loader(&file), None);
        assert_eq!(has_no_loader(b"#!/bin/sh"), None);
    }

    #[test]
    fn other_libraries_stay() {
        let library = Path::new("/lib/check.so");
        assert_eq!(preload(library, None), "/lib/check.so");
        assert_eq!(preload(library, Some("a.so".into())), "/lib/check.so:a.so");
    }
}
