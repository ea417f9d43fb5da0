//! Permissions of the daemon's sockets, and the identity of their clients.

use std::fmt;
use std::os::fd::AsFd;
use std::str::FromStr;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::Group;
use serde::Deserialize;

/// The file mode and group of every socket file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Permissions: who can write can connect.
    pub mode: SocketMode,
    /// The group of the files. Without one, the kernel assigns the daemon's group, or the folder's
    /// group if the folder has the set-group-ID bit.
    pub group: Option<SocketGroup>,
}

/// Permissions of a socket file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct SocketMode(pub u32);

impl Default for SocketMode {
    /// Returns the permissions of the owner and of the group to read and write.
    fn default() -> Self {
        Self(0o660)
    }
}

impl FromStr for SocketMode {
    type Err = String;

    /// Parses octal permissions: `0660`.
    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.bytes().all(|digit| digit.is_ascii_digit());
        u32::from_str_radix(text, 8)
            .ok()
            .filter(|mode| digits && *mode <= 0o777)
            .map(Self)
            .ok_or_else(|| format!("'{text}' is not a file mode from 0000 to 0777"))
    }
}

impl TryFrom<String> for SocketMode {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Number of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct SocketGroup(pub u32);

impl FromStr for SocketGroup {
    type Err = String;

    /// Parses a name or a number.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(number) = text.parse() {
            return Ok(Self(number));
        }
        match Group::from_name(text) {
            Ok(Some(group)) => Ok(Self(group.gid.as_raw())),
            Ok(None) => Err(format!("there is no group '{text}'")),
            Err(error) => Err(format!("group '{text}': {error}")),
        }
    }
}

impl TryFrom<String> for SocketGroup {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// The process at the other end of a socket, for the log.
#[derive(Clone, Copy, Debug)]
pub struct Peer(Option<nix::sys::socket::UnixCredentials>);

impl Peer {
    /// Returns the process that has connected `socket`.
    #[must_use]
    pub fn of(socket: &impl AsFd) -> Self {
        Self(getsockopt(socket, PeerCredentials).ok())
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(peer) => {
                write!(f, "process {}, user {}, group {}", peer.pid(), peer.uid(), peer.gid())
            }
            None => f.write_str("unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_and_groups_are_parsed() {
        assert_eq!("0660".parse(), Ok(SocketMode::default()));
        assert_eq!("777".parse(), Ok(SocketMode(0o777)));
        for text in ["", "0o660", "888", "1777", "+660", "rw-rw----"] {
            let error = text.parse::<SocketMode>().expect_err(text);
            assert!(error.contains("file mode"), "{error}");
        }
        assert_eq!("1234".parse(), Ok(SocketGroup(1234)));
        assert_eq!("root".parse(), Ok(SocketGroup(0)));
        let error = "no-such-group".parse::<SocketGroup>().expect_err("no group");
        assert!(error.contains("no-such-group"), "{error}");
    }
}
