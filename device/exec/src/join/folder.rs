//! The folder in which runs find each other. Each member holds a lock on a file for each of its
//! addresses, which ends with the process, and listens at a socket that has the name of the first
//! one. Whoever joins connects to all that are there, under the lock of the folder, so there is one
//! connection between any two.

use std::fs::{DirBuilder, File, OpenOptions};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use vrnic_control::socket::access::{Access, SocketMode};
use vrnic_control::socket::{SocketFile, dial};

/// The name of the file whose lock a member holds while it joins or leaves.
const LOCK: &str = "lock";
/// The end of the names of sockets.
const SOCKET: &str = ".sock";
/// The time for which a member waits for another one that joins.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same at the end.
const PATIENCE_AT_END: Duration = Duration::from_secs(1);
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(5);
/// Number of addresses among which members that name none get theirs.
const CANDIDATES: usize = 4096;

/// A member.
#[derive(Debug)]
pub struct FolderMember {
    folder: PathBuf,
    /// The locks on the addresses, and their files.
    claims: Vec<(PathBuf, File)>,
    socket: Option<SocketFile>,
}

/// Creates a folder, if it does not exist, and returns its absolute path. Nobody else may put other
/// files in the place of those in it.
///
/// # Errors
/// Says why the folder cannot be used.
pub fn own_folder(folder: &Path) -> anyhow::Result<PathBuf> {
    let folder = std::path::absolute(folder)?;
    let what = || format!("the folder {} cannot be used", folder.display());
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).with_context(what)?;
    let metadata = folder.metadata().with_context(what)?;
    ensure!(
        metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o022 == 0,
        "the folder {} for sockets must belong to the user, and no other user may write to it",
        folder.display()
    );
    Ok(folder)
}

/// Returns the place of a network: a path that has a slash, or a name below the user's folder for
/// files of running programs.
#[must_use]
pub fn place(name: &Path) -> PathBuf {
    if name.components().count() > 1 || name.has_root() {
        return name.to_owned();
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    let user = rustix::process::geteuid().as_raw();
    let own = || std::env::temp_dir().join(format!("vrnic-{user}"));
    runtime.map_or_else(own, |folder| PathBuf::from(folder).join("vrnic")).join(name)
}

/// Opens a file and locks it. `None` if another process has the lock.
fn lock(path: &Path) -> anyhow::Result<Option<File>> {
    // CAST: a flag.
    let flags = OFlags::NOFOLLOW.bits() as i32;
    let what = || format!("{} cannot be locked", path.display());
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    let file = options.open(path).with_context(what)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error).with_context(what),
    }
}

/// Waits for the lock of a folder.
fn lock_folder(folder: &Path, patience: Duration) -> anyhow::Result<File> {
    let (start, path) = (Instant::now(), folder.join(LOCK));
    loop {
        if let Some(file) = lock(&path)? {
            return Ok(file);
        }
        ensure!(
            start.elapsed() < patience,
            "another run has been joining the network {} for too long; end it",
            folder.display()
        );
        std::thread::sleep(PAUSE);
    }
}

impl FolderMember {
    /// Joins the network of a folder with `count` addresses: `wanted` and those after it, or free
    /// ones from `first` on. Returns the addresses, and connections to all other members.
    ///
    /// # Errors
    /// Says which address another member has, or why the folder cannot be used.
    pub fn join(
        folder: &Path,
        wanted: Option<&[Ipv4Addr]>,
        first: Ipv4Addr,
        count: usize,
    ) -> anyhow::Result<(Self, Vec<Ipv4Addr>, Vec<OwnedFd>)> {
        let folder = own_folder(folder)?;
        let _locked = lock_folder(&folder, PATIENCE)?;
        let mut this = Self { folder, claims: Vec::new(), socket: None };
        let addresses = match wanted {
            Some(wanted) => {
                for address in wanted {
                    ensure!(
                        this.claim(*address)?,
                        "another run in the network {} has the address {address}; name another one \
                         by --as",
                        this.folder.display()
                    );
                }
                wanted.to_vec()
            }
            None => this.claim_free(first, count)?,
        };
        let own = addresses.first().context("a member needs an address")?;
        let path = this.folder.join(format!("{own}{SOCKET}"));
        // The lock was free, so a process that has left a socket of this name has ended.
        let _none = std::fs::remove_file(&path);
        let peers = this.peers()?;
        let access = Access { mode: SocketMode(0o600), ..Access::default() };
        this.socket = Some(SocketFile::bind_messages(&path, &access)?);
        Ok((this, addresses, peers))
    }

    /// Claims an address. Returns false if another member has it.
    fn claim(&mut self, address: Ipv4Addr) -> anyhow::Result<bool> {
        let path = self.folder.join(address.to_string());
        let claimed = lock(&path)?.map(|file| (path, file));
        let is_free = claimed.is_some();
        self.claims.extend(claimed);
        Ok(is_free)
    }

    /// Claims free addresses.
    fn claim_free(&mut self, first: Ipv4Addr, count: usize) -> anyhow::Result<Vec<Ipv4Addr>> {
        let mut free = Vec::new();
        for number in (u32::from(first)..).take(CANDIDATES) {
            if free.len() == count {
                return Ok(free);
            }
            let address = Ipv4Addr::from(number);
            if self.claim(address)? {
                free.push(address);
            }
        }
        bail!("the network {} has too many members", self.folder.display())
    }

    /// Connects to all other members. Removes sockets of processes that have ended.
    fn peers(&self) -> anyhow::Result<Vec<OwnedFd>> {
        let what = || format!("the folder {} cannot be read", self.folder.display());
        let mut peers = Vec::new();
        for entry in std::fs::read_dir(&self.folder).with_context(what)? {
            let path = entry.with_context(what)?.path();
            if !path.to_string_lossy().ends_with(SOCKET) {
                continue;
            }
            match dial(&path) {
                Ok(socket) => peers.push(socket),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                    let _removed = std::fs::remove_file(&path);
                }
                Err(error) => {
                    let what = format!("the member at {} cannot be reached", path.display());
                    return Err(error).context(what);
                }
            }
        }
        Ok(peers)
    }

    /// Returns the socket at which other members connect.
    #[must_use]
    pub fn socket(&self) -> Option<&SocketFile> {
        self.socket.as_ref()
    }
}

impl Drop for FolderMember {
    /// Removes the files. Without the lock they stay, and the next member removes or uses them.
    fn drop(&mut self) {
        drop(self.socket.take());
        if let Ok(_locked) = lock_folder(&self.folder, PATIENCE_AT_END) {
            for (path, _) in &self.claims {
                let _removed = std::fs::remove_file(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Ipv4Addr = Ipv4Addr::LOCALHOST;

    fn join(folder: &Path, count: usize) -> (FolderMember, Vec<Ipv4Addr>, usize) {
        let (member, addresses, peers) =
            FolderMember::join(folder, None, FIRST, count).expect("free");
        (member, addresses, peers.len())
    }

    #[test]
    fn members_have_different_addresses_and_connections_to_all_before_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("network");
        let (first, addresses, peers) = join(&folder, 2);
        assert_eq!((addresses, peers), (vec![[127, 0, 0, 1].into(), [127, 0, 0, 2].into()], 0));
        let (second, addresses, peers) = join(&folder, 1);
        assert_eq!((addresses, peers), (vec![[127, 0, 0, 3].into()], 1));
        drop(first);
        let (_third, addresses, peers) = join(&folder, 1);
        assert_eq!((addresses, peers), (vec![[127, 0, 0, 1].into()], 1));
        drop(second);
    }

    #[test]
    fn a_taken_address_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let wanted = [Ipv4Addr::new(127, 0, 1, 7)];
        let join = || FolderMember::join(folder.path(), Some(&wanted), FIRST, 1);
        let first = join().expect("free");
        let refused = join().expect_err("taken").to_string();
        assert!(refused.contains("has the address 127.0.1.7; name another one"), "{refused}");
        drop(first);
        join().expect("free again");
    }

    #[test]
    fn what_ended_processes_leave_does_not_matter() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["127.0.0.1", "lock"] {
            std::fs::write(folder.path().join(name), "").expect("a file");
        }
        for name in ["127.0.0.1.sock", "127.0.0.9.sock"] {
            drop(std::os::unix::net::UnixListener::bind(folder.path().join(name)).expect("bind"));
        }
        let (_member, addresses, peers) = join(folder.path(), 1);
        assert_eq!((addresses, peers), (vec![FIRST], 0));
    }

    #[test]
    fn only_the_lock_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        drop([join(folder.path(), 1), join(folder.path(), 1)]);
        let names: Vec<_> = std::fs::read_dir(folder.path()).expect("a folder").collect();
        assert!(names.len() == 1 && folder.path().join(LOCK).exists(), "{names:?}");
    }

    #[test]
    fn names_are_below_the_users_folder() {
        assert_eq!(place(Path::new("/run/x")), Path::new("/run/x"));
        assert_eq!(place(Path::new("./x")), Path::new("./x"));
        assert!(place(Path::new("x")).has_root());
    }
}
