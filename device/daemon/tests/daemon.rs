//! The tests of the daemon, as one program: linking a program for each of these modules would take
//! most of the time. `cargo test -p vrnic-device --test daemon MODULE` runs one of them. `hotpath`
//! is a program of its own, because its allocator counts what the whole process allocates.
//!
//! | module | what it tests |
//! | --- | --- |
//! | `addresses` | adapters with several MACs next to the stations of an Ethernet |
//! | `arming` | completion queues that are armed at random |
//! | `behind` | memory without a mapping, which the daemon reaches by messages to the VMM |
//! | `common` | the parts that the tests share |
//! | `containment` | faults of one VMM or one function, which affect that function only |
//! | `device_memory` | device memory: the part of BAR2 that work requests reach at its bus addresses |
//! | `direct` | direct transfers through the trapped window, BAR4 |
//! | `drain` | the end of a daemon whose guests have outstanding work requests |
//! | `ethernet` | frames between network cards, and the effects of bad frames |
//! | `fault_kinds` | faults by rules that are not for packets |
//! | `fault_rules` | faults by rules for packets |
//! | `hostile` | guests that make mistakes, or are hostile |
//! | `hosts` | hosts, which are network namespaces, each with a daemon |
//! | `huge_pages` | guest memory of huge pages |
//! | `interfaces` | uplinks to interfaces of the host's kernel |
//! | `lifecycle` | resets, lost VMMs and unmapped memory during transfers |
//! | `logs` | repeated actions, which do not fill the log |
//! | `lost_uplink` | an uplink that is lost and comes back |
//! | `messages` | messages of vfio-user that no correct VMM sends |
//! | `monitor` | the monitor, by the command `vrnic` and over HTTP |
//! | `pages` | guest memory that is mapped page by page |
//! | `pcap` | captures |
//! | `process` | the daemon as a process: its arguments, its sockets, its end |
//! | `raw` | raw packets |
//! | `reconfig` | changes to a running daemon through its control socket |
//! | `resources` | the table of resources |
//! | `segments` | RDMA between daemons through the host's kernel, to which they send joined frames |
//! | `service` | the files that the packages install |
//! | `stopped` | a daemon that is stopped while its guests end |
//! | `stream_faults` | faults by rules in iWARP connections |
//! | `stream_pcap` | captures of iWARP connections |
//! | `streams` | RDMA in TCP connections (iWARP) between functions of two daemons |
//! | `systemd` | the daemon as a service of systemd |
//! | `timeline` | the timeline of a queue pair |
//! | `tls` | trunks over TLS |
//! | `top` | `vrnic top` on a terminal |
//! | `transfer` | operations between two functions of one daemon |
//! | `uplinks` | trunks between daemons, and ports without a function |
//! | `vlans` | functions in VLANs |
//! | `vmm` | what a correct VMM gets, and what a hostile VMM gets |
//! | `wake` | doorbells for a worker that falls asleep |
//! | `wire` | RDMA as packets over a trunk between functions of two daemons |

mod addresses;
mod arming;
mod behind;
mod common;
mod containment;
mod device_memory;
mod direct;
mod drain;
mod ethernet;
mod fault_kinds;
mod fault_rules;
mod hostile;
mod hosts;
mod huge_pages;
mod interfaces;
mod lifecycle;
mod logs;
mod lost_uplink;
mod messages;
mod monitor;
mod pages;
mod pcap;
mod process;
mod raw;
mod reconfig;
mod resources;
mod segments;
mod service;
mod stopped;
mod stream_faults;
mod stream_pcap;
mod streams;
mod systemd;
mod timeline;
mod tls;
mod top;
mod transfer;
mod uplinks;
mod vlans;
mod vmm;
mod wake;
mod wire;
