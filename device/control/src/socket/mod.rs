//! Listening sockets at file-system paths.

pub mod access;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, lchown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use thiserror::Error;

use self::access::{Access, Peer};

/// Maximum number of clients that wait to be accepted.
const BACKLOG: i32 = 64;

/// The reason for which a socket path cannot be used.
#[derive(Debug, Error)]
pub enum BindError {
    /// Another process listens on it.
    #[error("socket {0}: another process is listening on it")]
    Taken(PathBuf),
    /// A file of another type has this name.
    #[error("socket {0}: a file of this name exists and is not a socket")]
    NotASocket(PathBuf),
    /// The folder does not exist.
    #[error("socket {0}: its folder does not exist")]
    NoFolder(PathBuf),
    /// Any user could replace the socket by another one.
    #[error(
        "socket {0}: everybody may write to its folder; change its mode, or set its sticky bit"
    )]
    OpenFolder(PathBuf),
    /// The kernel returned an error.
    #[error("socket {path}: {error}")]
    Os {
        /// The path of the socket.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
}

/// A listening socket. Its file is removed on drop.
#[derive(Debug)]
pub struct SocketFile {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file, so that no other file is removed.
    identity: (u64, u64),
}

impl SocketFile {
    /// Listens at `path`. `accept` on the socket never blocks. A socket file without a listener is
    /// replaced.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind(path: &Path, access: &Access) -> Result<Self, BindError> {
        Self::bind_kind(path, access, SocketType::STREAM)
    }

    /// Listens at `path` with a socket that preserves message boundaries (SOCK_SEQPACKET).
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind_messages(path: &Path, access: &Access) -> Result<Self, BindError> {
        Self::bind_kind(path, access, SocketType::SEQPACKET)
    }

    fn bind_kind(path: &Path, access: &Access, kind: SocketType) -> Result<Self, BindError> {
        let os = |error| BindError::Os { path: path.to_owned(), error };
        check_folder(path)?;
        let listener = match bind(path, kind) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                remove_stale(path, kind)?;
                bind(path, kind)
            }
            other => other,
        }
        .map_err(os)?;
        let meta = std::fs::symlink_metadata(path).map_err(os)?;
        let this = Self { listener, path: path.to_owned(), identity: (meta.dev(), meta.ino()) };
        // Clients can connect only after `listen`, so they find the final permissions.
        if let Some(group) = access.group {
            lchown(path, None, Some(group.0)).map_err(os)?;
        }
        let mode = std::fs::Permissions::from_mode(access.mode.0);
        std::fs::set_permissions(path, mode).map_err(os)?;
        rustix::net::listen(&this.listener, BACKLOG).map_err(|error| os(error.into()))?;
        Ok(this)
    }

    /// Returns the socket.
    #[must_use]
    pub fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Returns the path of the socket file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|meta| (meta.dev(), meta.ino()) == self.identity);
        if ours && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "the socket file cannot be removed");
        }
    }
}

/// Accepts a client, if one waits. Returns its connection and its identity.
///
/// # Errors
/// Returns the error of `accept`.
pub fn accept(listener: &UnixListener) -> io::Result<Option<(UnixStream, Peer)>> {
    match listener.accept() {
        Ok((stream, _)) => {
            let peer = Peer::of(&stream);
            Ok(Some((stream, peer)))
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Connects to a socket that preserves message boundaries (SOCK_SEQPACKET). Neither this call nor
/// the use of the socket waits.
///
/// # Errors
/// Returns the kernel's error.
pub fn dial(path: &Path) -> io::Result<OwnedFd> {
    Ok(connect(path, SocketType::SEQPACKET)?)
}

fn connect(path: &Path, kind: SocketType) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Binds a socket to `path`. The socket does not listen yet.
fn bind(path: &Path, kind: SocketType) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

/// Refuses a folder in which any user could replace the socket. If only a single other user or a
/// group could do this, it logs a warning, because that may be intended.
fn check_folder(path: &Path) -> Result<(), BindError> {
    const STICKY: u32 = 0o1000;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let meta = std::fs::metadata(folder).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => BindError::NoFolder(path.to_owned()),
        _ => BindError::Os { path: path.to_owned(), error },
    })?;
    let writable = |who| meta.mode() & who != 0 && meta.mode() & STICKY == 0;
    if writable(0o002) {
        return Err(BindError::OpenFolder(path.to_owned()));
    }
    let owner = meta.uid();
    let ours = owner == 0 || owner == rustix::process::geteuid().as_raw();
    if !ours || writable(0o020) {
        tracing::warn!(
            folder = %folder.display(),
            "other users can replace sockets in this folder: owner {owner}, group {}, mode {:o}",
            meta.gid(),
            meta.mode() & 0o7777
        );
    }
    Ok(())
}

/// Removes the socket file of a process that has ended.
fn remove_stale(path: &Path, kind: SocketType) -> Result<(), BindError> {
    let os = |error| BindError::Os { path: path.to_owned(), error };
    if !std::fs::symlink_metadata(path).map_err(os)?.file_type().is_socket() {
        return Err(BindError::NotASocket(path.to_owned()));
    }
    match connect(path, kind) {
        // The socket's queue of clients may be full, or it may be a socket of the other type.
        Ok(_) | Err(Errno::AGAIN | Errno::PROTOTYPE) => Err(BindError::Taken(path.to_owned())),
        Err(Errno::CONNREFUSED) => {
            tracing::info!(path = %path.display(), "removing the socket file of a process that has ended");
            std::fs::remove_file(path).map_err(os)
        }
        Err(error) => Err(os(error.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::access::{SocketGroup, SocketMode};
    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("temporary folder")
    }

    fn bind_file(path: &Path) -> Result<SocketFile, BindError> {
        SocketFile::bind(path, &Access::default())
    }

    #[test]
    fn mode_and_group_are_those_asked_for() {
        let folder = folder();
        let path = folder.path().join("s");
        for mode in [0o660, 0o600, 0o666] {
            let group = std::fs::metadata(folder.path()).expect("folder").gid();
            let access = Access { mode: SocketMode(mode), group: Some(SocketGroup(group)) };
            let socket = SocketFile::bind(&path, &access).expect("bind");
            let meta = std::fs::metadata(&path).expect("socket");
            assert_eq!((meta.mode() & 0o7777, meta.gid()), (mode, group));
            let client = UnixStream::connect(&path).expect("connect");
            let (_, peer) = accept(socket.listener()).expect("accept").expect("a client");
            let us = format!("process {}, user", std::process::id());
            assert!(peer.to_string().starts_with(&us), "{peer}");
            drop(client);
        }
    }

    #[test]
    fn a_folder_open_to_everybody_is_refused() {
        let folder = folder();
        let path = folder.path().join("s");
        for (mode, good) in [(0o777, false), (0o1777, true), (0o770, true), (0o707, false)] {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(folder.path(), mode).expect("chmod");
            match bind_file(&path) {
                Ok(_) => assert!(good),
                Err(error) => {
                    assert!(!good && matches!(error, BindError::OpenFolder(_)), "{error}")
                }
            }
        }
    }

    #[test]
    fn live_socket_is_taken_and_stale_one_replaced() {
        let folder = folder();
        let path = folder.path().join("s");
        let first = bind_file(&path).expect("free path");
        assert!(matches!(bind_file(&path), Err(BindError::Taken(_))));
        // A listener that ends without removing its file leaves a stale socket.
        let stale = folder.path().join("stale");
        drop(UnixListener::bind(&stale).expect("bind"));
        bind_file(&stale).expect("stale socket is replaced");
        drop(first);
        assert!(!path.exists());
    }

    #[test]
    fn other_files_and_missing_folders_are_named() {
        let folder = folder();
        let path = folder.path().join("f");
        std::fs::write(&path, b"data").expect("write");
        assert!(matches!(bind_file(&path), Err(BindError::NotASocket(_))));
        assert_eq!(std::fs::read(&path).expect("still there"), b"data");
        let missing = folder.path().join("none/s");
        assert!(matches!(bind_file(&missing), Err(BindError::NoFolder(_))));
    }

    #[test]
    fn a_successor_s_socket_is_left_alone() {
        let folder = folder();
        let path = folder.path().join("s");
        let first = bind_file(&path).expect("bind");
        std::fs::remove_file(&path).expect("remove");
        let _second = UnixListener::bind(&path).expect("bind again");
        drop(first);
        assert!(path.exists());
    }
}
