//! Runs a command in guest a, and optionally a server in every other guest, for programs from
//! outside of this project.

use std::fs;
use std::io::{self, Seek, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::agent::{Running, Stream};
use crate::guest::Guest;
use crate::overlay::TREE;
use crate::pair::Pair;
use crate::progress::step;

/// Folder of the guests for files that are kept.
const OUTPUT: &str = "/output";
/// Exit status of a command that was ended because of its time limit. `timeout` uses the same.
const TIMED_OUT: i32 = 124;
/// Time in which a peer's command must listen. After this time the command of guest a is started in
/// any case.
const LISTENING: Duration = Duration::from_secs(30);
/// Time in which a peer's command must end after the command of guest a has ended.
const ENDING: Duration = Duration::from_secs(5);
/// Time between two checks of a peer's command.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Time limit of the copy of a guest's files.
const COPYING: Duration = Duration::from_secs(300);

/// Succeeds if a program listens on a TCP port or with the RDMA connection manager. In guests with
/// the minimal image no other program does.
const LISTENS: &str = "grep -qs ' 0A ' /proc/net/tcp /proc/net/tcp6 || \
                       rdma res show cm_id | grep -q 'state LISTEN'";

/// The commands, texts for `sh -c`.
#[derive(Clone, Debug)]
pub struct Job {
    /// Command of guest a.
    pub command: String,
    /// Command of all other guests, which is started first.
    pub peer: Option<String>,
    /// Time limit of the command of guest a.
    pub limit: Duration,
}

/// Runs the commands of a job, and prints their output as it arrives. The output of the peers goes
/// to standard error, with the guest's name before each line.
///
/// Returns the exit status of guest a's command. If that is 0, returns the status of the first peer
/// whose command has ended by itself with another status. Commands of peers that do not end are
/// killed.
///
/// # Errors
/// If a guest has ended.
pub fn run(pair: &Pair, job: &Job) -> Result<i32> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut peers = Vec::new();
        if let Some(command) = &job.peer {
            for guest in pair.guests().skip(1) {
                let running = guest.agent().start(&script(pair, guest, command))?;
                let name = guest.setup().name.as_str();
                let over = &over;
                peers.push((guest, scope.spawn(move || serve(name, &running, over))));
            }
            for (guest, thread) in &peers {
                wait_for_listener(guest, || thread.is_finished())?;
            }
        }
        let done = client(pair, job);
        over.store(true, Ordering::Relaxed);
        let mut code = done?;
        for (guest, thread) in peers {
            let Ok(ended) = thread.join() else { bail!("the thread of a peer panicked") };
            match ended? {
                Some(status) if status != 0 => {
                    step(format!("guest {}: the command ended with {status}", guest.setup().name));
                    code = if code == 0 { status } else { code };
                }
                _ => {}
            }
        }
        Ok(code)
    })
}

/// Runs the command of guest a. Returns its exit status.
fn client(pair: &Pair, job: &Job) -> Result<i32> {
    let running = pair.a.agent().start(&script(pair, &pair.a, &job.command))?;
    let code = running.follow(job.limit, |stream, data| {
        match stream {
            Stream::Stdout => show(io::stdout(), data),
            Stream::Stderr => show(io::stderr(), data),
        }
        .context("cannot write the output of the command")
    })?;
    if let Some(code) = code {
        return Ok(code);
    }
    step(format!("the command did not end within {} s and was killed", job.limit.as_secs()));
    running.kill()?;
    Ok(TIMED_OUT)
}

fn show(mut to: impl Write, data: &[u8]) -> io::Result<()> {
    to.write_all(data)?;
    to.flush()
}

/// Prints the output of a peer's command until it ends, or until it is killed some time after
/// `over`. Returns its status if it has ended by itself.
fn serve(name: &str, running: &Running, over: &AtomicBool) -> Result<Option<i32>> {
    let mut last = None;
    loop {
        let mut lines = Vec::new();
        let code = running.follow(POLL_INTERVAL, |_, data| {
            lines.extend_from_slice(data);
            Ok(())
        })?;
        for line in String::from_utf8_lossy(&lines).lines() {
            eprintln!("{name}: {line}");
        }
        if code.is_some() {
            return Ok(code);
        }
        if over.load(Ordering::Relaxed) {
            let end = *last.get_or_insert_with(|| Instant::now() + ENDING);
            if Instant::now() >= end {
                running.kill()?;
                return Ok(None);
            }
        }
    }
}

/// Waits until a program of the guest listens, until its command has ended, or for [`LISTENING`].
fn wait_for_listener(guest: &Guest, ended: impl Fn() -> bool) -> Result<()> {
    let end = Instant::now() + LISTENING;
    while !ended() && Instant::now() < end {
        if guest.agent().run(LISTENS, LISTENING)?.ok() {
            return Ok(());
        }
        thread::sleep(POLL_INTERVAL);
    }
    if !ended() {
        step(format!(
            "guest {}: the command does not listen on a port yet; the command of guest a starts anyway",
            guest.setup().name
        ));
    }
    Ok(())
}

/// Returns a command with its environment.
fn script(pair: &Pair, guest: &Guest, command: &str) -> String {
    let name = &guest.setup().name;
    let others = pair.guests().filter(|other| other.setup().name != *name);
    let peers: Vec<_> = others.map(Guest::ip).collect();
    let (address, peer, peers) = (guest.ip(), peers.first().unwrap_or(&""), peers.join(" "));
    let accel = pair.accel().name();
    format!(
        "export VRNIC_NAME={name} VRNIC_ADDRESS={address} VRNIC_PEER={peer} VRNIC_PEERS='{peers}'\n\
         export VRNIC_DEVICE=$(ls /sys/class/infiniband | head -n 1) VRNIC_OUTPUT={OUTPUT}\n\
         export VRNIC_ACCEL={accel}\n\
         mkdir -p {OUTPUT} && cd {TREE} || exit\n\
         {command}"
    )
}

/// Copies the contents of `$VRNIC_OUTPUT` into the folder `into`, with a folder for each guest, and
/// writes the logs of the daemon and of the kernels to `report.txt`. Copies only regular files and
/// folders.
///
/// # Errors
/// If a guest has ended, or files cannot be written here.
pub fn collect(pair: &Pair, into: &Path) -> Result<()> {
    let failure = || format!("cannot write to {}", into.display());
    fs::create_dir_all(into).with_context(failure)?;
    // The logs come first: they are on this machine, while a guest may have ended.
    fs::write(into.join("report.txt"), pair.report()).with_context(failure)?;
    let copied = pair.guests().map(|guest| {
        let folder = into.join(&guest.setup().name);
        fs::create_dir_all(&folder).with_context(failure)?;
        unpack(guest, &folder)
    });
    // Copies the files of all guests, even if one of them has ended.
    copied.collect::<Vec<_>>().into_iter().collect()
}

/// Unpacks an archive of the guest's files.
fn unpack(guest: &Guest, folder: &Path) -> Result<()> {
    let failure = || format!("cannot copy the files of guest {}", guest.setup().name);
    let mut file = tempfile::tempfile().with_context(failure)?;
    let script = format!("mkdir -p {OUTPUT} && tar -C {OUTPUT} -c .");
    let running = guest.agent().start(&script)?;
    let code = running.follow(COPYING, |stream, data| match stream {
        Stream::Stdout => file.write_all(data).with_context(failure),
        Stream::Stderr => {
            eprint!("{}: {}", guest.setup().name, String::from_utf8_lossy(data));
            Ok(())
        }
    })?;
    if code != Some(0) {
        let _gone = running.kill();
        bail!("{}: tar ended with {code:?}", failure());
    }
    file.rewind()?;
    unpack_archive(file, folder).with_context(failure)
}

/// Unpacks the regular files and folders of an archive, which may be hostile. Writes nothing
/// outside of `folder`.
fn unpack_archive(archive: impl io::Read, folder: &Path) -> io::Result<()> {
    for entry in tar::Archive::new(archive).entries()? {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        if kind.is_file() || kind.is_dir() {
            entry.unpack_in(folder)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds an entry to an archive, with any name.
    fn entry(archive: &mut tar::Builder<Vec<u8>>, name: &str, kind: tar::EntryType, data: &[u8]) {
        let mut header = tar::Header::new_gnu();
        let bytes = &mut header.as_gnu_mut().expect("a GNU header").name;
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_size(data.len() as u64);
        header.set_mode(0o4755);
        if kind.is_symlink() {
            header.set_link_name("/etc").expect("a link's target");
        }
        header.set_cksum();
        archive.append(&header, data).expect("an entry");
    }

    #[test]
    fn a_hostile_archive_writes_only_files_into_its_folder() -> Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let outer = tempfile::tempdir()?;
        let folder = outer.path().join("inner");
        fs::create_dir(&folder)?;
        let mut archive = tar::Builder::new(Vec::new());
        entry(&mut archive, "./", tar::EntryType::Directory, b"");
        entry(&mut archive, "./sub/", tar::EntryType::Directory, b"");
        entry(&mut archive, "./sub/good", tar::EntryType::Regular, b"text");
        entry(&mut archive, "../outside", tar::EntryType::Regular, b"text");
        entry(&mut archive, "link", tar::EntryType::Symlink, b"");
        entry(&mut archive, "disk", tar::EntryType::Block, b"");
        unpack_archive(archive.into_inner()?.as_slice(), &folder)?;
        let names = |folder: &Path| -> Result<Vec<_>> {
            Ok(fs::read_dir(folder)?
                .map(|entry| entry.map(|it| it.file_name()))
                .collect::<Result<_, _>>()?)
        };
        assert_eq!(names(outer.path())?, ["inner"]);
        assert_eq!(names(&folder)?, ["sub"]);
        let good = folder.join("sub/good");
        assert_eq!(fs::read(&good)?, b"text");
        assert_eq!(fs::metadata(good)?.permissions().mode() & 0o7000, 0);
        Ok(())
    }
}
