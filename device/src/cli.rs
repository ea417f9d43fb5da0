//! The command line.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Parser;

use crate::access::{SocketGroup, SocketMode};
use crate::config::{ConfigError, FunctionConfig, Limit};
use crate::monitor::Address;

/// Emulates vrnic RDMA adapters for QEMU over vfio-user.
///
/// Each function is one adapter in one guest: a vfio-user socket for the adapter itself and an
/// Ethernet socket for the guest's ordinary NIC of the same MAC. All functions are joined
/// by a learning Ethernet switch and, for RDMA, by memory-to-memory copies inside the daemon.
#[derive(Debug, Parser)]
#[command(name = "vrnicd", version, after_long_help = EXAMPLES)]
pub struct Args {
    /// A function: name=NAME,mac=MAC,socket=PATH,net=PATH (repeat for more)
    #[arg(short, long = "function", value_name = "SETTINGS")]
    pub functions: Vec<FunctionConfig>,

    /// Read settings from a TOML file; the command line adds functions and overrides the rest
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Log level or filter: error, warn, info, debug, trace, or e.g. info,vrnic_adapter=debug
    #[arg(short, long, value_name = "FILTER")]
    pub log: Option<String>,

    /// Worker threads; functions are spread over them [default: 1 per 4 processors, at least 1]
    #[arg(short, long, value_name = "N")]
    pub workers: Option<usize>,

    /// MSI-X vectors of each function, the one for asynchronous events included; a guest with more
    /// processors lets several share one [default: 65]
    #[arg(long, value_name = "N")]
    pub vectors: Option<u16>,

    /// Longest time that a worker without work spins, in µs, while processors are free [default: 50]
    #[arg(long, value_name = "US")]
    pub spin: Option<u64>,

    /// Length of a worker's naps in µs, taken instead of spinning when processors are scarce
    /// [default: 15]
    #[arg(long, value_name = "US")]
    pub nap: Option<u64>,

    /// Time without work after which a worker sleeps until it is kicked, in µs [default: 2000]
    #[arg(long, value_name = "US")]
    pub sleep: Option<u64>,

    /// How long a sleeping worker waits for a kick before it looks for work unasked, in ms; 0 for as long
    /// as it takes [default: 200]
    #[arg(long, value_name = "MS")]
    pub look: Option<u64>,

    /// Pin worker n to the n-th of these processors, e.g. 2,3
    #[arg(long, value_name = "CPUS", value_delimiter = ',')]
    pub pin: Option<Vec<usize>>,

    /// Give each adapter room for fewer objects than it could have, to see what a program does when they run
    /// out: contexts, pd, cq, srq, qp or mr (repeat for more)
    #[arg(long = "limit", value_name = "NAME=N")]
    pub limits: Vec<Limit>,

    /// Most memory that each VMM may map for its adapter, in GiB [default: 4096, or less with more than
    /// 16 functions, which share 64 TiB of address space]
    #[arg(long, value_name = "GIB")]
    pub guest_memory: Option<u64>,

    /// Let VMMs map files of any file system as guest memory, not only memfds and files on tmpfs or hugetlbfs: a
    /// file system that is slow, or waits for a server, keeps all guests of a worker waiting
    #[arg(long)]
    pub allow_any_file: bool,

    /// Tell watchers how things are, over HTTP on a socket file or an address: /run/vrnic/monitor.sock,
    /// 127.0.0.1:9100
    #[arg(short, long, value_name = "PATH|ADDRESS:PORT")]
    pub monitor: Option<Address>,

    /// Permissions of all socket files: who can write to one can connect [default: 0660]
    #[arg(long, value_name = "MODE")]
    pub socket_mode: Option<SocketMode>,

    /// Group of all socket files, by name or number, e.g. that of the QEMUs [default: the daemon's]
    #[arg(long, value_name = "GROUP")]
    pub socket_group: Option<SocketGroup>,

    /// Check the settings and exit
    #[arg(long)]
    pub check: bool,
}

const EXAMPLES: &str = "\
Example: two adapters for two guests

  vrnicd --function name=a,mac=52:54:00:00:00:0a,socket=/run/vrnic/a.sock,net=/run/vrnic/a.net \\
         --function name=b,mac=52:54:00:00:00:0b,socket=/run/vrnic/b.sock,net=/run/vrnic/b.net

The same as a file for --config:

  log = \"info\"
  workers = 1
  socket-mode = \"0660\"
  socket-group = \"kvm\"
  [[function]]
  name = \"a\"
  mac = \"52:54:00:00:00:0a\"
  socket = \"/run/vrnic/a.sock\"
  net = \"/run/vrnic/a.net\"
  [[function]]
  name = \"b\"
  ...

QEMU arguments of guest a (its memory must be a shared memfd):

  -machine q35,memory-backend=ram -object memory-backend-memfd,id=ram,size=2G,share=on
  -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"/run/vrnic/a.sock\"}}'
  -netdev stream,id=n0,server=off,addr.type=unix,addr.path=/run/vrnic/a.net
  -device virtio-net-pci,netdev=n0,mac=52:54:00:00:00:0a

SIGTERM and SIGINT end the daemon and remove its sockets.";

impl FromStr for Limit {
    type Err = ConfigError;

    /// Parses `qp=100`.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let parts = text.split_once('=').map(|(name, value)| (name.to_owned(), value.parse()));
        match parts {
            Some((name, Ok(value))) => Ok(Self { name, value }),
            _ => Err(ConfigError::Limit(text.to_owned())),
        }
    }
}

impl FromStr for FunctionConfig {
    type Err = ConfigError;

    /// Parses `name=a,mac=…,socket=…,net=…`.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let (mut name, mut mac, mut socket, mut net) = (None, None, None, None);
        for part in text.split(',') {
            let (key, value) =
                part.split_once('=').ok_or_else(|| ConfigError::NoValue(part.to_owned()))?;
            let slot = match key {
                "name" => &mut name,
                "mac" => &mut mac,
                "socket" => &mut socket,
                "net" => &mut net,
                _ => return Err(ConfigError::UnknownKey(key.to_owned())),
            };
            if slot.replace(value).is_some() {
                return Err(ConfigError::Twice(key.to_owned()));
            }
        }
        let need =
            |value: Option<&str>, key| value.map(str::to_owned).ok_or(ConfigError::Missing(key));
        Ok(Self {
            name: need(name, "name")?,
            mac: need(mac, "mac")?.parse().map_err(ConfigError::Mac)?,
            socket: need(socket, "socket")?.into(),
            net: net.map(PathBuf::from),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_well_formed() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }

    #[test]
    fn function_is_parsed() {
        let text = "name=a,mac=52:54:00:00:00:0a,socket=/run/a.sock,net=/run/a.net";
        let function: FunctionConfig = text.parse().expect("valid");
        assert_eq!(function.name, "a");
        assert_eq!(function.net, Some(PathBuf::from("/run/a.net")));
    }

    #[test]
    fn faults_of_a_function_are_named() {
        for (text, part) in [
            ("name=a,mac=52:54:00:00:00:0a", "socket"),
            ("name=a,mac=x,socket=/s", "'x'"),
            ("name=a,colour=red", "colour"),
            ("name=a,name=b", "twice"),
            ("name", "name"),
        ] {
            let error = text.parse::<FunctionConfig>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
