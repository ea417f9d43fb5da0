//! The settings as a user gives them, on the command line and in the file.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::error::ConfigError;
use super::ethernet::{Fabric, MpaCrc};
use super::function::FunctionConfig;
use super::limit::{Limit, limits_of_file};
use super::port::PortConfig;
use super::uplink::UplinkConfig;
use crate::access::{SocketGroup, SocketMode};
use crate::socket::Address;

/// The settings that a user can give, in the file or on the command line.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Settings {
    /// Add a function: name=NAME,mac=MAC,socket=PATH,net=PATH,personality=PERSONALITY. Repeat the
    /// option for more functions. Without net the function has no network card, and its link is
    /// always up. The personality is the protocol of its RDMA device: roce (RoCE version 2, the
    /// default), or iwarp, which needs a network card
    #[arg(short, long = "function", value_name = "SETTINGS")]
    #[serde(rename = "function")]
    pub(super) functions: Vec<FunctionConfig>,

    /// Add a port to the Ethernet switch for a guest that has an ordinary network card and no
    /// adapter: name=NAME,net=PATH. Repeat the option for more ports
    #[arg(long = "port", value_name = "SETTINGS")]
    #[serde(rename = "port")]
    pub(super) ports: Vec<PortConfig>,

    /// Add an uplink, which connects the switch to another daemon or to a network of the host.
    /// name=NAME,listen=PATH or name=NAME,connect=PATH makes a trunk to another daemon, which uses
    /// the other of the two with the same path. tls-listen=ADDRESS:PORT or
    /// tls-connect=ADDRESS:PORT, with key=FILE, makes a trunk to a daemon on another host.
    /// tap=INTERFACE or fd=N uses a TAP device, by its name or by a descriptor that the daemon
    /// inherits. packet=INTERFACE uses the network of an interface of the host. With transit=yes,
    /// frames from this uplink may leave by other uplinks that also have transit=yes. With
    /// follow=yes on one or more uplinks, the functions have a link only while at least one of
    /// these uplinks has one. Repeat the option for more uplinks
    #[arg(long = "uplink", value_name = "SETTINGS")]
    #[serde(rename = "uplink")]
    pub(super) uplinks: Vec<UplinkConfig>,

    /// Choose how functions of this daemon reach each other: by copying from memory to memory, or
    /// by packets, as functions of different daemons do, which is slower but can be captured and
    /// disturbed like a network [default: copy]
    #[arg(long, value_enum, value_name = "WAY", env = "VRNIC_FABRIC", hide_env_values = true)]
    pub(super) fabric: Option<Fabric>,

    /// Choose when messages of iWARP have checksums (CRC-32C): always, or only if the peer asks for
    /// them. Without them, TCP's weaker checksum alone finds damaged messages [default: always]
    #[arg(long, value_enum, value_name = "WHEN")]
    pub(super) mpa_crc: Option<MpaCrc>,

    /// Set the log level (error, warn, info, debug or trace) or a filter such as
    /// info,vrnic_adapter=debug [default: info]
    #[arg(short, long, value_name = "FILTER")]
    pub(super) log: Option<String>,

    /// Number of worker threads, which execute the work requests of all functions [default: one for
    /// every 4 CPUs, at least 1]
    #[arg(short, long, value_name = "N")]
    pub(super) workers: Option<usize>,

    /// Number of MSI-X vectors of each function. The first is for admin commands and asynchronous
    /// events, the others are completion vectors. In a guest with more CPUs, several share a vector
    /// [default: 65]
    #[arg(long, value_name = "N")]
    pub(super) vectors: Option<u16>,

    /// Longest time for which an idle worker spins while CPUs are free, in µs [default: 50]
    #[arg(long, value_name = "US")]
    pub(super) spin: Option<u64>,

    /// Length of the naps that an idle worker takes instead of spinning when all CPUs are busy, in
    /// µs [default: 15]
    #[arg(long, value_name = "US")]
    pub(super) nap: Option<u64>,

    /// Time without work after which a worker sleeps until a doorbell wakes it, in µs [default:
    /// 2000]
    #[arg(long, value_name = "US")]
    pub(super) sleep: Option<u64>,

    /// Time after which a sleeping worker checks for work even if no doorbell has woken it, in ms;
    /// 0 means never [default: 200]
    #[arg(long, value_name = "MS")]
    pub(super) look: Option<u64>,

    /// Longest time for which a daemon that ends waits for work requests that it has begun, in ms;
    /// 0 means not to wait [default: 2000]
    #[arg(long, value_name = "MS")]
    pub(super) drain: Option<u64>,

    /// Pin worker n to the n-th of these CPUs, for example 2,3
    #[arg(long, value_name = "CPUS", value_delimiter = ',')]
    pub(super) pin: Option<Vec<usize>>,

    /// Lower the number of objects that each adapter can have, to test what programs do when they
    /// run out. NAME is contexts, pd, cq, srq, qp or mr. Repeat the option for more limits
    #[arg(long = "limit", value_name = "NAME=N")]
    #[serde(rename = "limit", deserialize_with = "limits_of_file")]
    pub(super) limits: Vec<Limit>,

    /// Device memory of each function, in MiB: an even number, at most 128, or 0 for none. Guests
    /// allocate it with ibv_alloc_dm, and other PCI devices of a guest can read and write it. The
    /// host allocates the memory when it is first used [default: 64]
    #[arg(long, value_name = "MIB")]
    pub(super) device_memory: Option<u64>,

    /// Maximum amount of memory that each VMM may map for its adapter, in GiB [default: 4096; less
    /// if there are more than 16 functions, which share 64 TiB of address space]
    #[arg(long, value_name = "GIB")]
    pub(super) guest_memory: Option<u64>,

    /// Accept guest memory from files on any file system, not only memfds and files on tmpfs or
    /// hugetlbfs. A slow file system then delays all guests that share a worker
    #[arg(long)]
    pub(super) allow_any_file: bool,

    /// Serve state and metrics over HTTP, on a socket file or a TCP address, for example
    /// /run/vrnic/monitor.sock or 127.0.0.1:9100. There is no authentication
    #[arg(short, long, value_name = "PATH|ADDRESS:PORT")]
    pub(super) monitor: Option<Address>,

    /// Listen at this socket file for changes: `vrnic function`, `vrnic port` and `vrnic uplink`
    /// add and remove what the options of these names describe. Only the daemon's own user can
    /// connect
    #[arg(long, value_name = "PATH")]
    pub(super) control: Option<PathBuf>,

    /// Permissions of all other socket files. Every process that can write to a file can connect
    /// [default: 0660]
    #[arg(long, value_name = "MODE")]
    pub(super) socket_mode: Option<SocketMode>,

    /// Group of all socket files, by name or number, for example the group that QEMU runs in
    /// [default: the daemon's group]
    #[arg(long, value_name = "GROUP")]
    pub(super) socket_group: Option<SocketGroup>,
}

impl Settings {
    /// Returns these settings, and takes from `file` those that are not given here. Lists are
    /// joined, with the entries of `file` first.
    #[must_use]
    pub(super) fn or(self, file: Self) -> Self {
        Self {
            functions: file.functions.into_iter().chain(self.functions).collect(),
            ports: file.ports.into_iter().chain(self.ports).collect(),
            uplinks: file.uplinks.into_iter().chain(self.uplinks).collect(),
            fabric: self.fabric.or(file.fabric),
            mpa_crc: self.mpa_crc.or(file.mpa_crc),
            log: self.log.or(file.log),
            workers: self.workers.or(file.workers),
            vectors: self.vectors.or(file.vectors),
            spin: self.spin.or(file.spin),
            nap: self.nap.or(file.nap),
            sleep: self.sleep.or(file.sleep),
            look: self.look.or(file.look),
            drain: self.drain.or(file.drain),
            pin: self.pin.or(file.pin),
            limits: file.limits.into_iter().chain(self.limits).collect(),
            device_memory: self.device_memory.or(file.device_memory),
            guest_memory: self.guest_memory.or(file.guest_memory),
            allow_any_file: self.allow_any_file || file.allow_any_file,
            monitor: self.monitor.or(file.monitor),
            control: self.control.or(file.control),
            socket_mode: self.socket_mode.or(file.socket_mode),
            socket_group: self.socket_group.or(file.socket_group),
        }
    }

    /// Reads a file.
    pub(super) fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
        toml::from_str(&text)
            .map_err(|error| ConfigError::Parse { path: path.to_owned(), error: Box::new(error) })
    }
}
