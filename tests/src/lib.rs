//! Whole-system tests: a daemon, two guests with a stock kernel, and what users run in them.
//!
//! They need everything that `scripts/setup` and a build make, and print what is missing;
//! `scripts/test` provides it. A test binary boots one pair of guests for all its cases, because
//! booting takes most of the time. After a failure it boots a new pair.
//!
//! | module | what |
//! | --- | --- |
//! | [`burst`] | many completion events at once |
//! | [`object_counts`] | counts of objects in use: equal counts before and after show that nothing is left |
//! | [`harness`] | the pair of guests that all cases use, and the code that runs and reports cases |
//! | [`forge`] | the runner of a forge, which runs the steps of our action |
//! | [`health`] | checks after every case: no kernel fault, no panic, a daemon that runs |
//! | [`conformance`] | running vrnic-verify |
//! | [`commands`] | commands in guests: a server in one guest and a client in the other, and the results of both |
//! | [`events`] | the handlers of completion events in a guest |
//! | [`kverbs`] | the driver's own kernel client, which tests the devices of its guest |
//! | [`shell`] | the shell on a guest's serial line, which still works after a sleep |
//! | [`nfs`] | files of one guest that another guest mounts, by NFS over RDMA |
//! | [`siw`] | the kernel's software iWARP in place of a guest's adapter |
//! | [`places`] | network namespaces with macvlan devices, bridges and bonds, and programs that connect there |
//! | [`rails`] | one of several devices of a guest |
//! | [`rules`] | rules of the daemon for fault injection |
//! | [`script`] | the scripts of the repository |
//! | [`storage`] | a disk of one guest that the other uses |
//!
//! | test binary | what it shows |
//! | --- | --- |
//! | `tools` | that the usual tools show a correct device: ibv_devinfo, rdma, counters, pingpong |
//! | `inspect` | the device and its objects in `rdma` and the driver's debugfs files |
//! | `cm` | management datagrams and the RDMA connection manager |
//! | `perftest` | that every perftest tool and variant runs and its figures are plausible |
//! | `verify` | all of vrnic-verify, with send queues in guest and in device memory |
//! | `raw` | Ethernet frames by verbs: perftest's tools for them, a packet generator, a sniffer; by name only |
//! | `smp` | the groups of vrnic-verify that test concurrency, in guests with two processors |
//! | `events` | completion events in guests with four processors: their handlers and processors |
//! | `module` | loading and unloading the kernel module, idle and in use |
//! | `port` | that the port follows its network device, and what a port that is down stops |
//! | `pairing` | the choice of the network device with which the port is paired |
//! | `vlan` | addresses and traffic on VLANs |
//! | `addresses` | network devices with MACs of their own: macvlan, bridges, changed addresses |
//! | `interop` | an adapter and the kernel's software device (rxe), in both directions |
//! | `iwarp` | iWARP adapters, and programs that connect by their TCP |
//! | `iwarp_more` | more programs over iWARP, and many connections; by name only |
//! | `iwarp_races` | connections of iWARP that many threads begin and end, in guests with two processors |
//! | `iwarp_numbers` | QP numbers that are used again at once |
//! | `iwarp_plain` | iWARP without CRCs, between daemons and with siw; by name only |
//! | `siw` | iWARP adapters and the kernel's software iWARP, in both directions; by name only |
//! | `iwarp_nfs` | NFS over iWARP, between adapters and with siw; in the image of `apps` |
//! | `hotplug` | adapters and memory that are plugged into running guests |
//! | `vfio` | memory of other devices of the guest, which VFIO exports and takes back |
//! | `iommu` | adapters that access memory through an IOMMU |
//! | `hosts` | guests on three hosts, through the kernel's network devices |
//! | `rails` | two adapters in each guest |
//! | `limits` | as many objects as a daemon with low limits allows, and no more |
//! | `processes` | processes that are killed with all of their objects |
//! | `containers` | network namespaces, and limits of control groups |
//! | `nvme` | a disk of one guest used by the other, by NVMe over Fabrics |
//! | `direct` | transfers between an NVMe controller and the memory of an adapter |
//! | `faults` | the end of a guest, of the daemon, of a process, in the middle of a transfer |
//! | `image` | that `scripts/lab` needs nothing but the image of `scripts/image` |
//! | `layouts` | the plugin with every libibverbs that can be fetched, without guests; by name only |
//! | `libraries` | programs in guests that bring a libibverbs; by name only (`layouts`) |
//! | `lab` | that `scripts/lab` runs a command in guests, and returns its status and files |
//! | `system` | the packages in whole Debian systems |
//! | `apps` | existing RDMA programs |
//! | `tree` | the source tree: lines, tables of modules, cycles, `unsafe`; it needs no guest |
#![forbid(unsafe_code)]

pub mod burst;
pub mod commands;
pub mod conformance;
pub mod events;
pub mod forge;
pub mod harness;
pub mod health;
pub mod kverbs;
pub mod nfs;
pub mod object_counts;
pub mod places;
pub mod rails;
pub mod rules;
pub mod script;
pub mod shell;
pub mod siw;
pub mod storage;
