//! Addresses of the monitor.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::Deserialize;

/// An address to listen at: a socket file, or a TCP port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Address {
    /// A socket file.
    Path(PathBuf),
    /// An address and a port.
    Tcp(SocketAddr),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('/') {
            return Ok(Self::Path(text.into()));
        }
        let tcp = text.parse().map(Self::Tcp);
        tcp.map_err(|_| format!("'{text}' is neither a path (with a '/') nor ADDRESS:PORT"))
    }
}

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        assert_eq!("/run/m".parse(), Ok(Address::Path("/run/m".into())));
        assert_eq!("./m".parse(), Ok(Address::Path("./m".into())));
        assert!(matches!("127.0.0.1:9100".parse(), Ok(Address::Tcp(_))));
        assert!(matches!("[::1]:9100".parse(), Ok(Address::Tcp(_))));
        assert!("localhost".parse::<Address>().expect_err("no").contains("localhost"));
    }
}
