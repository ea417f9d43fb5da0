//! The settings of an uplink.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::SettingError;
use crate::fields::Fields;

/// The settings that determine where an uplink leads.
const WAYS: &str = "listen, connect, tls-listen, tls-connect, tap, fd and packet";

/// All settings of an uplink.
const KEYS: [&str; 11] = [
    "name",
    "listen",
    "connect",
    "tls-listen",
    "tls-connect",
    "key",
    "tap",
    "fd",
    "packet",
    "transit",
    "follow",
];

/// An uplink: it connects the switch to another daemon or to a network of the host.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "Given", into = "Given")]
pub struct UplinkConfig {
    /// The name of the uplink, in commands and logs.
    pub name: String,
    /// The outer end of the uplink.
    pub way: Way,
    /// True if frames from this uplink may leave by other uplinks for which this is true.
    pub transit: bool,
    /// True if the functions follow this uplink: they have a link only while at least one of the
    /// uplinks that they follow has one.
    pub follow: bool,
}

/// The outer end of an uplink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// To a daemon that connects to this socket.
    Listen(PathBuf),
    /// To a daemon that listens at this socket.
    Connect(PathBuf),
    /// To a daemon on another host.
    Tls(TlsWay),
    /// To the TAP device of this name.
    Tap(String),
    /// To the TAP device that this descriptor of the daemon is attached to.
    Descriptor(i32),
    /// To the network of the interface of this name.
    Packet(String),
}

/// Address and role of a trunk to a daemon on another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsWay {
    /// True if this daemon listens, false if it connects.
    pub listens: bool,
    /// The address to listen at or to connect to.
    pub address: SocketAddr,
    /// The file with the key, which both daemons need.
    pub key: PathBuf,
}

impl TlsWay {
    fn new(listens: bool, address: &str, key: Option<&PathBuf>) -> Result<Self, SettingError> {
        let setting = if listens { "tls-listen" } else { "tls-connect" };
        // An address without a host part means the loopback address, which other hosts cannot
        // reach.
        let port = address.parse().map(|port: u16| SocketAddr::from(([127, 0, 0, 1], port)));
        let found = port.or_else(|_| address.parse()).map_err(|_| SettingError::Value {
            object: "uplink",
            key: setting,
            value: address.to_owned(),
            form: "ADDRESS:PORT, or the port on this host",
        })?;
        let key = key.ok_or(SettingError::Missing { object: "uplink", key: "key" })?;
        Ok(Self { listens, address: found, key: key.clone() })
    }
}

impl Way {
    /// Returns the path of the socket file that the daemon creates for it.
    #[must_use]
    pub fn own_socket(&self) -> Option<&Path> {
        match self {
            Self::Listen(path) => Some(path),
            _ => None,
        }
    }

    /// Returns the interface of the host that only this uplink may use.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::Tap(name) | Self::Packet(name) => Some(name),
            _ => None,
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(path) => write!(f, "listen={}", path.display()),
            Self::Connect(path) => write!(f, "connect={}", path.display()),
            Self::Tls(TlsWay { listens: true, address, .. }) => write!(f, "tls-listen={address}"),
            Self::Tls(TlsWay { address, .. }) => write!(f, "tls-connect={address}"),
            Self::Tap(name) => write!(f, "tap={name}"),
            Self::Descriptor(number) => write!(f, "fd={number}"),
            Self::Packet(name) => write!(f, "packet={name}"),
        }
    }
}

/// The settings of an uplink as they are in the file.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Given {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    listen: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connect: Option<PathBuf>,
    #[serde(rename = "tls-listen", skip_serializing_if = "Option::is_none")]
    tls_listen: Option<String>,
    #[serde(rename = "tls-connect", skip_serializing_if = "Option::is_none")]
    tls_connect: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tap: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fd: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    packet: Option<String>,
    #[serde(default)]
    transit: bool,
    #[serde(default)]
    follow: bool,
}

impl TryFrom<Given> for UplinkConfig {
    type Error = SettingError;

    fn try_from(given: Given) -> Result<Self, SettingError> {
        let Given { name, listen, connect, tls_listen, tls_connect, key, .. } = given;
        let Given { tap, fd, packet, transit, follow, .. } = given;
        let tls = |listens, address: Option<String>| {
            address.map(|address| TlsWay::new(listens, &address, key.as_ref())).transpose()
        };
        let ways = [
            listen.map(Way::Listen),
            connect.map(Way::Connect),
            tls(true, tls_listen)?.map(Way::Tls),
            tls(false, tls_connect)?.map(Way::Tls),
            tap.map(Way::Tap),
            fd.map(Way::Descriptor),
            packet.map(Way::Packet),
        ];
        let mut ways = ways.into_iter().flatten();
        match (ways.next(), ways.next()) {
            (Some(way), None) => Ok(Self { name, way, transit, follow }),
            _ => Err(SettingError::Way(WAYS)),
        }
    }
}

impl From<UplinkConfig> for Given {
    fn from(uplink: UplinkConfig) -> Self {
        let UplinkConfig { name, way, transit, follow } = uplink;
        let given = Self { name, transit, follow, ..Self::default() };
        match way {
            Way::Listen(path) => Self { listen: Some(path), ..given },
            Way::Connect(path) => Self { connect: Some(path), ..given },
            Way::Tls(TlsWay { listens, address, key }) => {
                let (address, key) = (Some(address.to_string()), Some(key));
                if listens {
                    Self { tls_listen: address, key, ..given }
                } else {
                    Self { tls_connect: address, key, ..given }
                }
            }
            Way::Tap(name) => Self { tap: Some(name), ..given },
            Way::Descriptor(fd) => Self { fd: Some(fd), ..given },
            Way::Packet(name) => Self { packet: Some(name), ..given },
        }
    }
}

impl FromStr for UplinkConfig {
    type Err = SettingError;

    /// Parses `name=up,listen=…` and the like.
    fn from_str(text: &str) -> Result<Self, SettingError> {
        let fields = Fields::parse("uplink", &KEYS, text)?;
        Self::try_from(Given {
            name: fields.need("name")?.to_owned(),
            listen: fields.get("listen").map(PathBuf::from),
            connect: fields.get("connect").map(PathBuf::from),
            tls_listen: fields.get("tls-listen").map(str::to_owned),
            tls_connect: fields.get("tls-connect").map(str::to_owned),
            key: fields.get("key").map(PathBuf::from),
            tap: fields.get("tap").map(str::to_owned),
            fd: fields.read("fd", "the number of a descriptor", str::parse)?,
            packet: fields.get("packet").map(str::to_owned),
            transit: fields.flag("transit")?,
            follow: fields.flag("follow")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_and_the_file_say_the_same() {
        for (text, file) in [
            ("name=u,listen=/t", "name = 'u'\nlisten = '/t'\n"),
            ("name=u,connect=/t,transit=no", "name = 'u'\nconnect = '/t'\n"),
            ("name=u,connect=/t,transit=yes", "name = 'u'\nconnect = '/t'\ntransit = true\n"),
            ("name=u,connect=/t,follow=yes", "name = 'u'\nconnect = '/t'\nfollow = true\n"),
            (
                "name=u,tls-listen=127.0.0.1:4790,key=/k",
                "name = 'u'\ntls-listen = '4790'\nkey = '/k'\n",
            ),
            (
                "name=u,tls-connect=[2001:db8::1]:4790,key=/k",
                "name = 'u'\ntls-connect = '[2001:db8::1]:4790'\nkey = '/k'\n",
            ),
            ("name=u,tap=vr0", "name = 'u'\ntap = 'vr0'\n"),
            ("name=u,fd=7", "name = 'u'\nfd = 7\n"),
            ("name=u,packet=eth1", "name = 'u'\npacket = 'eth1'\n"),
        ] {
            let given: UplinkConfig = text.parse().expect(text);
            let file: UplinkConfig = toml::from_str(file).expect(file);
            assert_eq!(given, file);
            assert!(text.contains(&given.way.to_string()), "{text}");
            let again = toml::to_string(&given).expect("text");
            assert_eq!(toml::from_str::<UplinkConfig>(&again).expect("the same"), given);
        }
    }

    #[test]
    fn faults_are_named() {
        for (text, part) in [
            ("name=u", "exactly one"),
            ("name=u,listen=/a,connect=/b", "exactly one"),
            ("name=u,tap=a,packet=b", "exactly one"),
            ("name=u,tls-listen=4790", "'key' is missing"),
            ("name=u,tls-listen=nowhere,key=/k", "ADDRESS:PORT"),
            ("name=u,tls-listen=1,tls-connect=2,key=/k", "exactly one"),
            ("name=u,fd=x", "number of a descriptor"),
            ("listen=/a", "name"),
            ("name=u,listen=/a,transit=maybe", "maybe"),
            ("name=u,listen=/a,follow=1", "follow"),
            ("name=u,colour=red", "colour"),
        ] {
            let error = text.parse::<UplinkConfig>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
