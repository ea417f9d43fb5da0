//! Listening sockets at file-system paths.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a socket path cannot be used.
#[derive(Debug, Error)]
pub enum BindError {
    /// Somebody listens there.
    #[error("{0}: another process is listening on this socket")]
    Taken(PathBuf),
    /// Something else is there.
    #[error("{0}: exists and is not a socket")]
    NotASocket(PathBuf),
    /// The folder is missing.
    #[error("{0}: the folder does not exist")]
    NoFolder(PathBuf),
    /// The kernel refused.
    #[error("{path}: {error}")]
    Os {
        /// The path.
        path: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
}

/// A listening socket whose file goes away with it.
#[derive(Debug)]
pub struct SocketFile {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file, so that only our own is removed.
    identity: (u64, u64),
}

impl SocketFile {
    /// Listens at `path`, without blocking in accept. A socket that nobody listens on any more is replaced.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        let os = |error| BindError::Os { path: path.to_owned(), error };
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                remove_stale(path)?;
                UnixListener::bind(path)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(BindError::NoFolder(path.to_owned()));
            }
            other => other,
        }
        .map_err(os)?;
        listener.set_nonblocking(true).map_err(os)?;
        let meta = std::fs::symlink_metadata(path).map_err(os)?;
        Ok(Self { listener, path: path.to_owned(), identity: (meta.dev(), meta.ino()) })
    }

    /// The socket.
    #[must_use]
    pub fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Where it is.
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
            tracing::warn!(path = %self.path.display(), %error, "socket not removed");
        }
    }
}

/// Removes the socket file of a process that is gone.
fn remove_stale(path: &Path) -> Result<(), BindError> {
    let os = |error| BindError::Os { path: path.to_owned(), error };
    if !std::fs::symlink_metadata(path).map_err(os)?.file_type().is_socket() {
        return Err(BindError::NotASocket(path.to_owned()));
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(BindError::Taken(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::info!(path = %path.display(), "removing the socket of a process that is gone");
            std::fs::remove_file(path).map_err(os)
        }
        Err(error) => Err(os(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("temporary folder")
    }

    #[test]
    fn live_socket_is_taken_and_stale_one_replaced() {
        let folder = folder();
        let path = folder.path().join("s");
        let first = SocketFile::bind(&path).expect("free path");
        assert!(matches!(SocketFile::bind(&path), Err(BindError::Taken(_))));
        // A listener that ends without removing its file leaves a stale socket.
        let stale = folder.path().join("stale");
        drop(UnixListener::bind(&stale).expect("bind"));
        SocketFile::bind(&stale).expect("stale socket is replaced");
        drop(first);
        assert!(!path.exists());
    }

    #[test]
    fn other_files_and_missing_folders_are_named() {
        let folder = folder();
        let path = folder.path().join("f");
        std::fs::write(&path, b"data").expect("write");
        assert!(matches!(SocketFile::bind(&path), Err(BindError::NotASocket(_))));
        assert_eq!(std::fs::read(&path).expect("still there"), b"data");
        let missing = folder.path().join("none/s");
        assert!(matches!(SocketFile::bind(&missing), Err(BindError::NoFolder(_))));
    }

    #[test]
    fn a_successor_s_socket_is_left_alone() {
        let folder = folder();
        let path = folder.path().join("s");
        let first = SocketFile::bind(&path).expect("bind");
        std::fs::remove_file(&path).expect("remove");
        let _second = UnixListener::bind(&path).expect("bind again");
        drop(first);
        assert!(path.exists());
    }
}
