//! What host and guest agent say to each other, over one virtio-serial port.
//!
//! A frame is the length of the rest (u32, little endian), the length of the head (u32), the
//! head (JSON), and data. Many commands share the port; `id` tells them apart.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Name of the port, by which the guest finds it in `/sys/class/virtio-ports`.
pub const PORT: &str = "vrnic.agent";
/// Most data in a frame, in bytes.
pub const DATA_MAX: usize = 64 << 10;
/// Longest frame that is believed, in bytes.
const FRAME_MAX: usize = DATA_MAX + (64 << 10);

/// A command's number, chosen by the host.
pub type Id = u32;

/// From host to guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Start a program.
    Start {
        /// The new command's number.
        id: Id,
        /// Program and arguments.
        argv: Vec<String>,
        /// Variables set beside the agent's own.
        env: Vec<(String, String)>,
    },
    /// The data is for the program's standard input.
    Input(Id),
    /// Standard input ends.
    CloseInput(Id),
    /// Send a signal to the program and all it started.
    Signal {
        /// The command.
        id: Id,
        /// The signal's number.
        signal: i32,
    },
    /// End the guest at once.
    PowerOff,
}

/// From guest to host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The guest is up.
    Hello {
        /// Its kernel's release.
        release: String,
    },
    /// The data is from standard output.
    Stdout(Id),
    /// The data is from standard error.
    Stderr(Id),
    /// The program ended, and all its output was sent.
    Exited {
        /// The command.
        id: Id,
        /// How.
        status: Status,
    },
    /// The program could not be started.
    NotStarted {
        /// The command.
        id: Id,
        /// Why.
        error: String,
    },
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Status {
    /// Whether the code was 0.
    #[must_use]
    pub fn success(self) -> bool {
        self == Self::Code(0)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "{code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// Sends a frame.
///
/// # Errors
/// When the port fails, or `data` is longer than [`DATA_MAX`].
pub fn send<H: Serialize>(mut port: impl Write, head: &H, data: &[u8]) -> io::Result<()> {
    let head = serde_json::to_vec(head)?;
    let too_long = |_| io::Error::new(io::ErrorKind::InvalidInput, "frame too long");
    let rest = 4 + head.len() + data.len();
    if rest > FRAME_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "frame too long"));
    }
    let mut frame = Vec::with_capacity(4 + rest);
    frame.extend(u32::try_from(rest).map_err(too_long)?.to_le_bytes());
    frame.extend(u32::try_from(head.len()).map_err(too_long)?.to_le_bytes());
    frame.extend(head);
    frame.extend(data);
    port.write_all(&frame)?;
    port.flush()
}

/// Receives a frame.
///
/// # Errors
/// When the port ends or fails, or what comes is no frame.
pub fn receive<H: DeserializeOwned>(mut port: impl Read) -> io::Result<(H, Vec<u8>)> {
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "not a frame");
    let mut length = [0; 4];
    port.read_exact(&mut length)?;
    let rest = u32::from_le_bytes(length) as usize;
    if !(4..=FRAME_MAX).contains(&rest) {
        return Err(bad());
    }
    let mut frame = vec![0; rest];
    port.read_exact(&mut frame)?;
    let (length, body) = frame.split_first_chunk::<4>().ok_or_else(bad)?;
    let (head, data) =
        body.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(bad)?;
    Ok((serde_json::from_slice(head)?, data.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in() {
        let mut port = Vec::new();
        let start =
            Request::Start { id: 7, argv: vec!["true".into()], env: vec![("A".into(), "b".into())] };
        send(&mut port, &start, b"").expect("send");
        send(&mut port, &Request::Input(7), &[1; DATA_MAX]).expect("send");
        let mut port = port.as_slice();
        assert_eq!(receive::<Request>(&mut port).expect("first"), (start, vec![]));
        let second = receive::<Request>(&mut port).expect("second");
        assert_eq!(second, (Request::Input(7), vec![1; DATA_MAX]));
        assert!(port.is_empty());
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for bytes in [
            &[0u8, 0, 0, 0][..],
            &[0xff, 0xff, 0xff, 0xff, 0, 0],
            &[8, 0, 0, 0, 0xff, 0, 0, 0, b'{', b'}', 0, 0],
            &[6, 0, 0, 0, 2, 0, 0, 0, b'{', b'}'],
            &[1, 0],
        ] {
            assert!(receive::<Request>(bytes).is_err(), "{bytes:?}");
        }
        assert!(send(Vec::new(), &Request::PowerOff, &vec![0; FRAME_MAX]).is_err());
    }
}
