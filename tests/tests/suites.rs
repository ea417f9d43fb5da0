//! All suites of whole-system tests, as one program: a suite is a module, and a row of
//! `tests/suites.toml`. `scripts/test NAME` runs `cargo test -p vrnic-tests --test suites -- NAME`.
#![forbid(unsafe_code)]

mod addresses;
mod apps;
mod cm;
mod containers;
mod direct;
mod events;
mod faults;
mod hosts;
mod hotplug;
mod image;
mod injected;
mod injected_packets;
mod inspect;
mod interop;
mod iommu;
mod iscsi;
mod iwarp;
mod iwarp_gateway;
mod iwarp_more;
mod iwarp_nfs;
mod iwarp_numbers;
mod iwarp_plain;
mod iwarp_races;
mod lab;
mod layouts;
mod libraries;
mod limits;
mod module;
mod nvme;
mod paging;
mod pairing;
mod perftest;
mod port;
mod ports;
mod processes;
mod rails;
mod raw;
mod readme;
mod siw;
mod smp;
mod snapshot;
mod system;
mod toe;
mod tools;
mod verify;
mod vfio;
mod vlan;

use std::process::ExitCode;

use vrnic_tests::harness::{self, Entry};

/// The suites, in the order in which they run.
const SUITES: &[Entry] = &[
    // The first one, because it compares the first connections of guests.
    ("snapshot", snapshot::suite),
    ("tools", tools::suite),
    ("inspect", inspect::suite),
    ("cm", cm::suite),
    ("port", port::suite),
    ("addresses", addresses::suite),
    ("vlan", vlan::suite),
    ("nvme", nvme::suite),
    ("containers", containers::suite),
    ("perftest", perftest::suite),
    ("raw", raw::suite),
    ("processes", processes::suite),
    ("interop", interop::suite),
    ("faults", faults::suite),
    ("verify", verify::suite),
    ("paging", paging::suite),
    ("limits", limits::suite),
    ("module", module::suite),
    ("injected", injected::suite),
    ("injected_packets", injected_packets::suite),
    ("events", events::suite),
    ("smp", smp::suite),
    ("rails", rails::suite),
    ("hotplug", hotplug::suite),
    ("pairing", pairing::suite),
    ("iommu", iommu::suite),
    ("vfio", vfio::suite),
    ("direct", direct::suite),
    ("hosts", hosts::suite),
    ("iwarp", iwarp::suite),
    ("toe", toe::suite),
    ("iscsi", iscsi::suite),
    ("iwarp_races", iwarp_races::suite),
    ("iwarp_numbers", iwarp_numbers::suite),
    ("iwarp_more", iwarp_more::suite),
    ("iwarp_gateway", iwarp_gateway::suite),
    ("iwarp_plain", iwarp_plain::suite),
    ("siw", siw::suite),
    ("lab", lab::suite),
    ("readme", readme::suite),
    ("image", image::suite),
    ("ports", ports::suite),
    ("layouts", layouts::suite),
    ("libraries", libraries::suite),
    ("system", system::suite),
    ("apps", apps::suite),
    ("iwarp_nfs", iwarp_nfs::suite),
];

fn main() -> ExitCode {
    harness::main(SUITES)
}
