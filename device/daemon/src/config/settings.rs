//! The settings as a user gives them, on the command line and in the file. Each is one row of
//! `settings!`.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use vrnic_control_api::assignment::Amount;
use vrnic_control_api::{Address, FunctionConfig, LanesConfig, PortConfig, UplinkConfig};

use super::Config;
use super::error::ConfigError;
use super::ethernet::{Fabric, MpaCrc};
use super::limit::{limits_of_file, physical_of_file};
use vrnic_control::socket::access::{SocketGroup, SocketMode};

/// Declares the settings. The documentation of a row is the help of the option, and the row's name
/// is the key in the file and the name of the option, unless attributes rename it. `at restart`
/// marks a setting that a running daemon does not change, and names its field of [`Config`].
macro_rules! settings {
    ($(
        $(#[$about:meta])*
        $name:ident: $type:ty $(, at restart { $($value:tt)+ })?;
    )+) => {
        /// The settings that a user can give, in the file or on the command line.
        #[derive(Clone, Debug, Default, clap::Args, Deserialize)]
        #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
        pub struct Settings {
            $($(#[$about])* pub(super) $name: $type,)+
        }

        impl Settings {
            /// Returns these settings, and takes from `file` those that are not given here. Lists
            /// are joined, with the entries of `file` first.
            #[must_use]
            pub(super) fn or(self, file: Self) -> Self {
                Self { $($name: self.$name.or_of_file(file.$name),)+ }
            }
        }

        /// Returns the names of the settings that differ and that a running daemon does not change.
        pub(crate) fn changed_at_restart(start: &Config, new: &Config) -> Vec<String> {
            let mut changed = Vec::new();
            $($(
                if start.$($value)+ != new.$($value)+ {
                    changed.push(stringify!($name).replace('_', "-"));
                }
            )?)+
            changed
        }
    };
}

settings! {
    /// Add a function, the adapter of one guest: key=VALUE,key=VALUE and so on, with the keys
    /// below. Repeat the option for more functions
    ///
    ///   key=VALUE           meaning                                                   default
    ///   name=NAME           its name in logs and commands                             needed
    ///   mac=MAC             the MAC of its port, and of the guest's network card      needed
    ///   socket=PATH         the socket to which QEMU connects the adapter             needed
    ///   net=PATH            the socket of the guest's network card. Without it the    none
    ///                       function has none, and its link is always up
    ///   personality=NAME    the protocol: roce (RoCE version 2), or iwarp, which      roce
    ///                       needs a network card
    ///   source=CHECK        other source MACs that its guest's frames may have: own   strict
    ///                       (none), strict (those that its driver has named) or
    ///                       nested (any that no other guest uses)
    ///   addresses=MAC+MAC   more MACs of its guest, which no other guest can use      none
    ///   storm=N             frames per second that its guest can send to groups and   100000
    ///                       unknown addresses; 0 is no limit
    ///   vlan=N, vlan=N+N    its guest is in VLAN N, without tags; or it may use       all tags
    ///                       these tags
    ///   rate=BITS           bits of messages that its send queues begin in a          no limit
    ///                       second, such as 10G
    ///   ops=N               messages that they begin in a second, such as 500k        no limit
    ///   interrupts=N        interrupts of its event queues in a second, such as 20k   no limit
    ///   dcqcn=BITS          the rate of its link, such as 10G: its RoCE connections     windows
    ///                       have rates by DCQCN in place of windows (docs/lanes.md)
    ///   weight=N            its weight, from 1 to 1000, among all functions when      100
    ///                       they have more work than the workers have time for
    ///   floor=PERCENT       the part of the workers' time that it has at least when   none
    ///                       it has work, such as 20%
    ///   guest-faults=yes    its guest can inject faults into its own work             no
    ///                       (docs/faults.md)
    ///   resources=LIST      lower amounts of resources, such as qp:100/cq:50, with    those of
    ///                       the names of --resource                                   --limit
    #[arg(short, long = "function", value_name = "SETTINGS", verbatim_doc_comment)]
    #[serde(rename = "function")]
    functions: Vec<FunctionConfig>;

    /// Add a port to the Ethernet switch for a guest that has an ordinary network card and no
    /// adapter: name=NAME,net=PATH,storm=N,vlan=VLAN. N is the limit of frames to groups and
    /// unknown addresses, and VLAN is its VLAN or VLANs, as for functions. Repeat the option for
    /// more ports
    #[arg(long = "port", value_name = "SETTINGS")]
    #[serde(rename = "port")]
    ports: Vec<PortConfig>;

    /// Add an uplink, which connects the switch to another daemon or to a network of the host.
    /// name=NAME,listen=PATH or name=NAME,connect=PATH makes a trunk to another daemon, which uses
    /// the other one of these two settings with the same path. tls-listen=ADDRESS:PORT or
    /// tls-connect=ADDRESS:PORT, with key=FILE, makes a trunk to a daemon on another host.
    /// tap=INTERFACE or fd=N uses a TAP device, by its name or by a descriptor that the daemon
    /// inherits. packet=INTERFACE uses the network of an interface of the host. With transit=yes,
    /// frames from this uplink may leave by other uplinks that also have transit=yes. With
    /// follow=yes on one or more uplinks, the functions have a link only while at least one of
    /// these uplinks has one. Repeat the option for more uplinks
    #[arg(long = "uplink", value_name = "SETTINGS")]
    #[serde(rename = "uplink")]
    uplinks: Vec<UplinkConfig>;

    /// Give a port of the switch lanes: a queue for each of eight classes of service, and a rate
    /// (docs/lanes.md). port=NAME is a function, a port or an uplink. rate=BITS is its rate, such
    /// as 1G. strict=6+7 are the classes that go first, and shares=0:50+3:50 the shares of others
    /// in percent. limits=3:4M are the bytes that may wait. ecn=3:5k-200k-1 marks frames of class
    /// 3: from 5 kB, with 1 % at 200 kB, all above it. pfc=3:256k-192k pauses class 3 of the
    /// station behind the port above 256 kB, and lets it go on at 192 kB. dscp=26:3+48:6 are
    /// classes of DSCPs, and trust=priority takes the priority of VLAN tags instead. Repeat the
    /// option for more ports
    #[arg(long = "lanes", value_name = "SETTINGS")]
    lanes: Vec<LanesConfig>;

    /// Choose how functions of this daemon reach each other: by copying from memory to memory, or
    /// by packets, as functions of different daemons do. Packets are slower, but faults can be
    /// injected into them as on a network [default: copy]
    #[arg(long, value_enum, value_name = "WAY", env = "VRNIC_FABRIC", hide_env_values = true)]
    fabric: Option<Fabric>, at restart { ethernet.fabric };

    /// Choose when messages of iWARP have checksums (CRC-32C): always, or only if the peer asks for
    /// them. Without them, only TCP's weaker checksum detects damaged messages [default: always]
    #[arg(long, value_enum, value_name = "WHEN")]
    mpa_crc: Option<MpaCrc>, at restart { mpa_crc };

    /// Time without a segment of the peer after which an idle connection of iWARP probes its peer,
    /// in seconds; 0 means never. The connection ends if 9 probes are not answered. The time
    /// between them is 75 s, or this time if it is shorter [default: 7200]
    #[arg(long, value_name = "S")]
    keepalive: Option<u64>, at restart { keepalive };

    /// Set the log level (error, warn, info, debug or trace) or a filter such as
    /// info,vrnic_adapter=debug [default: info]
    #[arg(short, long, value_name = "FILTER")]
    log: Option<String>;

    /// Number of worker threads, which execute the work requests of all functions [default: one for
    /// every 4 CPUs, at least 1]
    #[arg(short, long, value_name = "N")]
    workers: Option<usize>, at restart { workers };

    /// Number of MSI-X vectors of each function. The first is for admin commands and asynchronous
    /// events, the others are completion vectors. In a guest with more CPUs, several CPUs share a
    /// vector [default: 65]
    #[arg(long, value_name = "N")]
    vectors: Option<u16>, at restart { vectors };

    /// Longest time for which an idle worker spins while CPUs are free, in µs [default: 50]
    #[arg(long, value_name = "US")]
    spin: Option<u64>, at restart { idle.spin };

    /// Time without work after which a worker sleeps until a doorbell wakes it, in µs [default:
    /// 2000]
    #[arg(long, value_name = "US")]
    sleep: Option<u64>, at restart { idle.sleep };

    /// Time after which a sleeping worker checks for work even if no doorbell has woken it, in ms;
    /// 0 means never [default: 200]
    #[arg(long, value_name = "MS")]
    look: Option<u64>, at restart { idle.look };

    /// Longest time that the daemon waits at its end for work requests that it has started, in ms;
    /// 0 means not to wait [default: 2000]
    #[arg(long, value_name = "MS")]
    drain: Option<u64>, at restart { drain };

    /// Pin worker n to the n-th of these CPUs, for example 2,3
    #[arg(long, value_name = "CPUS", value_delimiter = ',')]
    pin: Option<Vec<usize>>, at restart { pin };

    /// Lower the amount of a resource that each function has, unless its own resources are lower.
    /// NAME is contexts, pd, cq, cqe (entries of all CQs together), srq, qp, wr (entries of a work
    /// queue), mr (regions, windows and commands), mw (windows), ranges, mcast (groups), uar
    /// (doorbell pages) or flows (rules for raw packets). Repeat the option for more limits
    #[arg(long = "limit", value_name = "NAME=N")]
    #[serde(rename = "limit", deserialize_with = "limits_of_file")]
    limits: Vec<Amount>, at restart { object_limits() };

    /// Limit the amount of a resource that all functions have together, device-memory in MiB. A
    /// function for which less is left is refused. The names are those of --limit, and
    /// device-memory. Repeat the option for more resources [default: enough for all functions]
    #[arg(long = "resource", value_name = "NAME=N")]
    #[serde(rename = "resources", deserialize_with = "physical_of_file")]
    physical: Vec<Amount>;

    /// Device memory of each function, in MiB: an even number, at most 128, or 0 for none. Guests
    /// allocate it with ibv_alloc_dm, and other PCI devices of a guest can read and write it. The
    /// host allocates the memory when it is first used [default: 64]
    #[arg(long, value_name = "MIB")]
    device_memory: Option<u64>, at restart { limits.device_memory };

    /// Maximum amount of memory that each VMM may map for its adapter, in GiB [default: 4096; less
    /// if there are more than 16 functions, which share 64 TiB of address space]
    #[arg(long, value_name = "GIB")]
    guest_memory: Option<u64>, at restart { guest_memory() };

    /// Accept guest memory from files on any file system, and not only from memfds and files on
    /// tmpfs or hugetlbfs. A slow file system can then delay all guests that share a worker
    #[arg(long)]
    allow_any_file: bool, at restart { map_rules.any_file };

    /// Read and write memory that the VMM has not shared, such as BARs of other devices of the
    /// guest, by messages to the VMM. QEMU answers them from version 11.1 on. Other VMMs, and older
    /// versions of QEMU, may fail when they get one
    #[arg(long)]
    dma_messages: bool, at restart { map_rules.messages };

    /// Serve state and metrics over HTTP, on a socket file or a TCP address, for example
    /// /run/vrnic/monitor.sock or 127.0.0.1:9100. There is no authentication
    #[arg(short, long, value_name = "PATH|ADDRESS:PORT")]
    monitor: Option<Address>, at restart { monitor };

    /// Listen at this socket file for changes: `vrnic function`, `vrnic port` and `vrnic uplink`
    /// add and remove functions, ports and uplinks. Only the daemon's own user can connect
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>, at restart { control };

    /// Permissions of all other socket files. Every process that can write to a file can connect
    /// [default: 0660]
    #[arg(long, value_name = "MODE")]
    socket_mode: Option<SocketMode>, at restart { access.mode };

    /// Group of all socket files, by name or number, for example the group that QEMU runs in
    /// [default: the daemon's group]
    #[arg(long, value_name = "GROUP")]
    socket_group: Option<SocketGroup>, at restart { access.group };
}

/// A setting that can be given twice.
trait Twice {
    /// Combines this value, from the command line, with the value from the file.
    fn or_of_file(self, file: Self) -> Self;
}

impl<T> Twice for Option<T> {
    fn or_of_file(self, file: Self) -> Self {
        self.or(file)
    }
}

impl<T> Twice for Vec<T> {
    fn or_of_file(self, mut file: Self) -> Self {
        file.extend(self);
        file
    }
}

impl Twice for bool {
    fn or_of_file(self, file: Self) -> Self {
        self || file
    }
}

impl Settings {
    /// Reads a file.
    pub(super) fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
        toml::from_str(&text)
            .map_err(|error| ConfigError::Parse { path: path.to_owned(), error: Box::new(error) })
    }
}
