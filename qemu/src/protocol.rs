//! Messages between harness and agent over a virtio-serial port: a length (4 bytes, little-endian),
//! then a message in postcard's encoding.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Maximum length of a message in bytes. Files are moved in pieces of [`PIECE`].
pub const MESSAGE_MAX: usize = 4 << 20;
/// Length of a piece of a file in bytes.
pub const PIECE: usize = 1 << 20;

/// A request of the harness. It chooses `id`, which names the command in all later messages.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Runs a shell command.
    Exec {
        /// The command's name in later messages.
        id: u32,
        /// Text for `sh -c`.
        script: String,
    },
    /// Sends SIGKILL to the command's process group.
    Kill {
        /// The command.
        id: u32,
    },
    /// Appends to a file. The first piece, at offset 0, creates or truncates the file.
    Put {
        /// Path of the file.
        path: String,
        /// Offset of this piece.
        offset: u64,
        /// Mode of the file.
        mode: u32,
        /// The piece.
        data: Vec<u8>,
    },
    /// Unpacks a cpio archive, which is a file of the guest, and removes it.
    Unpack {
        /// Path of the archive.
        path: String,
    },
    /// Asks for [`Event::Ready`], after the agent has come to another machine with its guest.
    Greet,
}

/// A message of the agent.
#[derive(Debug, Serialize, Deserialize)]
pub enum Event {
    /// The agent listens.
    Ready,
    /// Output of a command.
    Output {
        /// The command.
        id: u32,
        /// True if it was written to standard error.
        stderr: bool,
        /// The bytes.
        data: Vec<u8>,
    },
    /// A command ended.
    Exit {
        /// The command.
        id: u32,
        /// Exit code, or 128 + signal, or 127 if it could not be started.
        code: i32,
    },
    /// The result of writing a piece of a file, or of unpacking an archive.
    Stored {
        /// The error, or empty if there was none.
        error: String,
    },
}

/// Writes a message.
///
/// # Errors
/// If the message is too long or the port fails.
pub fn send<T: Serialize>(port: &mut impl Write, message: &T) -> io::Result<()> {
    let body = postcard::to_stdvec(message).map_err(io::Error::other)?;
    let len = u32::try_from(body.len()).map_err(io::Error::other)?;
    let mut frame = len.to_le_bytes().to_vec();
    frame.extend(body);
    port.write_all(&frame)?;
    port.flush()
}

/// Reads a message.
///
/// # Errors
/// If the port ends or carries something else than messages.
pub fn receive<T: DeserializeOwned>(port: &mut impl Read) -> io::Result<T> {
    let mut len = [0; 4];
    port.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > MESSAGE_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("message of {len} bytes")));
    }
    let mut body = vec![0; len];
    port.read_exact(&mut body)?;
    postcard::from_bytes(&body).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_wire() -> io::Result<()> {
        let mut wire = Vec::new();
        send(&mut wire, &Request::Exec { id: 7, script: "uname -r".into() })?;
        send(&mut wire, &Request::Kill { id: 7 })?;
        let mut reader = wire.as_slice();
        assert!(
            matches!(receive(&mut reader)?, Request::Exec { id: 7, script } if script == "uname -r")
        );
        assert!(matches!(receive(&mut reader)?, Request::Kill { id: 7 }));
        assert!(receive::<Request>(&mut reader).is_err());
        Ok(())
    }

    #[test]
    fn a_huge_length_is_refused_without_allocating() {
        let wire = u32::MAX.to_le_bytes();
        let error = receive::<Event>(&mut wire.as_slice()).map(|_| ()).map_err(|e| e.kind());
        assert_eq!(error, Err(io::ErrorKind::InvalidData));
    }
}
