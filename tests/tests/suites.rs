//! All suites of whole-system tests, as one program: a suite is a module in one of these folders,
//! and a row of `tests/suites.toml`. `scripts/test NAME` runs
//! `cargo test -p vrnic-tests --test suites -- NAME`.
//!
//! | module | suites |
//! | --- | --- |
//! | `conformance` | vrnic-verify; what objects show, and what faults and limits do |
//! | `machine` | guests as machines: processors, memory, devices, containers, the kernel module |
//! | `network` | connections, addresses, ports and Ethernet frames |
//! | `programs` | programs of others, and what users of this repository run |
//! | `tcp` | adapters whose queue pairs use TCP: iWARP, streams, iSCSI |
#![forbid(unsafe_code)]

mod conformance;
mod machine;
mod network;
mod programs;
mod tcp;

use std::process::ExitCode;

use vrnic_tests::harness::{self, Entry};

/// The suites, in the order in which they run.
const SUITES: &[Entry] = &[
    // The first one, because it compares the first connections of guests.
    ("snapshot", machine::snapshot::suite),
    ("tools", programs::tools::suite),
    ("inspect", conformance::inspect::suite),
    ("cm", network::cm::suite),
    ("port", network::port::suite),
    ("addresses", network::addresses::suite),
    ("vlan", network::vlan::suite),
    ("nvme", programs::nvme::suite),
    ("containers", machine::containers::suite),
    ("perftest", programs::perftest::suite),
    ("raw", network::raw::suite),
    ("processes", conformance::processes::suite),
    ("interop", network::interop::suite),
    ("faults", conformance::faults::suite),
    ("verify", conformance::verify::suite),
    ("paging", machine::paging::suite),
    ("limits", conformance::limits::suite),
    ("module", machine::module::suite),
    ("injected", conformance::injected::suite),
    ("injected_packets", conformance::injected_packets::suite),
    ("events", machine::events::suite),
    ("smp", machine::smp::suite),
    ("checker", programs::checker::suite),
    ("rails", network::rails::suite),
    ("hotplug", machine::hotplug::suite),
    ("pairing", network::pairing::suite),
    ("iommu", machine::iommu::suite),
    ("vfio", machine::vfio::suite),
    ("direct", machine::direct::suite),
    ("hosts", network::hosts::suite),
    ("iwarp", tcp::iwarp::suite),
    ("toe", tcp::toe::suite),
    ("iscsi", tcp::iscsi::suite),
    ("storage", tcp::storage::suite),
    ("iwarp_races", tcp::iwarp_races::suite),
    ("iwarp_numbers", tcp::iwarp_numbers::suite),
    ("iwarp_gateway", tcp::iwarp_gateway::suite),
    ("iwarp_plain", tcp::iwarp_plain::suite),
    ("siw", tcp::siw::suite),
    ("lab", programs::lab::suite),
    ("readme", programs::readme::suite),
    ("image", programs::image::suite),
    ("ports", programs::ports::suite),
    ("layouts", programs::layouts::suite),
    ("libraries", programs::libraries::suite),
    ("system", programs::system::suite),
    ("apps", programs::apps::suite),
    ("iwarp_nfs", tcp::iwarp_nfs::suite),
];

fn main() -> ExitCode {
    harness::main(SUITES)
}
