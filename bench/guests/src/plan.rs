//! The plan: devices, operations, sizes, and the number of messages of each test.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use vrnic_qemu::traffic::perftest::Case;

/// Bytes in perftest's MB.
pub(crate) const MIB: f64 = (1 << 20) as f64;

/// An RDMA device of the guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Device {
    /// Our adapter, with RoCE.
    Vrnic,
    /// Our adapter, with iWARP. The guests' adapters have one protocol, so one run measures this
    /// or the other.
    #[value(name = "vrnic-iwarp")]
    Iwarp,
    /// The kernel's software RoCE.
    Rxe,
    /// The kernel's software iWARP.
    Siw,
    /// Our adapter with iWARP in the client's guest, and the kernel's software iWARP in the
    /// server's.
    #[value(name = "vrnic-to-siw")]
    Mixed,
}

/// An RDMA operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Operation {
    /// RDMA Write.
    Write,
    /// RDMA Read.
    Read,
    /// Send into posted receives.
    Send,
}

/// All operations, in the order of tables.
pub(crate) const OPERATIONS: [Operation; 3] = [Operation::Write, Operation::Read, Operation::Send];

/// Message sizes in bytes, unless the user names others.
pub(crate) const SIZES: [u64; 9] =
    [8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20];

/// Size of latency tests in bytes.
pub(crate) const LATENCY_BYTES: u64 = 8;

/// Sizes in bytes at which large messages are compared.
pub(crate) const LARGE: [u64; 3] = [64 << 10, 256 << 10, 1 << 20];

/// A test of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    /// The latency of an operation.
    Latency(Operation),
    /// The bandwidth of an operation with messages of this many bytes.
    Bandwidth(Operation, u64),
}

impl Test {
    /// Returns all tests of a device with messages of these sizes.
    pub(crate) fn all(sizes: &[u64]) -> Vec<Self> {
        let latencies = OPERATIONS.map(Self::Latency);
        let rates = OPERATIONS.into_iter().flat_map(|operation| {
            sizes.iter().map(move |&bytes| Self::Bandwidth(operation, bytes))
        });
        latencies.into_iter().chain(rates).collect()
    }

    /// Returns whether a ratio needs its figure.
    pub(crate) fn is_quoted(self) -> bool {
        match self {
            Self::Latency(_) => true,
            Self::Bandwidth(Operation::Write, bytes) => bytes == 8 || LARGE.contains(&bytes),
            Self::Bandwidth(Operation::Read, bytes) => LARGE.contains(&bytes),
            Self::Bandwidth(Operation::Send, bytes) => bytes == LARGE[0],
        }
    }
}

impl Device {
    /// Returns whether it is our adapter in both guests.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Self::Vrnic | Self::Iwarp)
    }

    /// Returns whether an adapter of the guests has iWARP.
    pub(crate) fn has_iwarp_adapter(self) -> bool {
        matches!(self, Self::Iwarp | Self::Mixed)
    }

    /// Returns whether siw is in a guest.
    pub(crate) fn has_siw(self) -> bool {
        matches!(self, Self::Siw | Self::Mixed)
    }

    /// Returns its place in a run: the adapters are there from the boot.
    pub(crate) fn place(self) -> u8 {
        match self {
            Self::Vrnic | Self::Iwarp => 0,
            Self::Mixed => 1,
            Self::Rxe | Self::Siw => 2,
        }
    }

    /// Returns whether it speaks iWARP, whose connections only the connection manager makes.
    pub(crate) fn is_iwarp(self) -> bool {
        matches!(self, Self::Iwarp | Self::Siw | Self::Mixed)
    }

    /// Returns its name in the server's guest.
    pub(crate) fn ibdev(self) -> &'static str {
        match self {
            Self::Vrnic | Self::Iwarp => "vrnic0",
            Self::Rxe => "rxe0",
            Self::Siw | Self::Mixed => "siw0",
        }
    }

    /// Returns the bandwidth test of `operation` with messages of `bytes`.
    pub(crate) fn bandwidth(self, operation: Operation, bytes: u64) -> Case {
        let tool = match operation {
            Operation::Write => "ib_write_bw",
            Operation::Read => "ib_read_bw",
            Operation::Send => "ib_send_bw",
        };
        let messages = match (self, operation) {
            // iWARP ends a connection whose send finds no receive; perftest posts 512 in advance.
            (Self::Siw | Self::Mixed, Operation::Send) => self.messages(bytes).min(500),
            _ => self.messages(bytes),
        };
        self.case(tool, bytes, messages)
    }

    /// Returns the latency test of `operation`.
    pub(crate) fn latency(self, operation: Operation) -> Case {
        let tool = match operation {
            Operation::Write => "ib_write_lat",
            Operation::Read => "ib_read_lat",
            Operation::Send => "ib_send_lat",
        };
        let rounds = if self.is_ours() { 10_000 } else { 1000 };
        self.case(tool, LATENCY_BYTES, rounds)
    }

    fn case(self, tool: &'static str, bytes: u64, count: u64) -> Case {
        let manager = if self.is_iwarp() { " -R" } else { "" };
        let options = match self {
            // The names of the devices differ; the address finds them.
            Self::Mixed => format!("-s {bytes} -n {count}{manager}"),
            _ => format!("-d {} -s {bytes} -n {count}{manager}", self.ibdev()),
        };
        Case { tool, options: options.into() }
    }

    /// Messages of a bandwidth test: about a second of work, as far as that can be foreseen, so
    /// that what comes before the first ones (translation of code, waking a worker) does not count.
    /// perftest wants 5 at least.
    fn messages(self, bytes: u64) -> u64 {
        let (volume, max_count) = match self {
            Self::Vrnic | Self::Iwarp => (16 << 30, 500_000),
            Self::Rxe => (8 << 20, 5000),
            Self::Siw => (8 << 20, 50_000),
            Self::Mixed => (32 << 20, 50_000),
        };
        (volume / bytes.max(1)).clamp(5, max_count)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vrnic => "vrnic",
            Self::Iwarp => "vrnic-iwarp",
            Self::Rxe => "rxe",
            Self::Siw => "siw",
            Self::Mixed => "vrnic-to-siw",
        })
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Send => "send",
        })
    }
}

/// Returns a size as people write it: 8 B, 64 KiB, 1 MiB.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        mib if mib >= 1 << 20 && mib.is_multiple_of(1 << 20) => format!("{} MiB", mib >> 20),
        kib if kib >= 1 << 10 && kib.is_multiple_of(1 << 10) => format!("{} KiB", kib >> 10),
        _ => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_devices_get_few_messages_and_siw_the_connection_manager() {
        let case = Device::Siw.bandwidth(Operation::Read, 8 << 20);
        assert_eq!((case.tool, &*case.options), ("ib_read_bw", "-d siw0 -s 8388608 -n 5 -R"));
        let case = Device::Vrnic.bandwidth(Operation::Write, 64 << 10);
        assert_eq!((case.tool, &*case.options), ("ib_write_bw", "-d vrnic0 -s 65536 -n 262144"));
        let case = Device::Mixed.bandwidth(Operation::Send, 64 << 10);
        assert_eq!((case.tool, &*case.options), ("ib_send_bw", "-s 65536 -n 500 -R"));
    }

    #[test]
    fn sizes_read_well() {
        assert_eq!([8, 1 << 16, 3 << 20, 1025].map(size), ["8 B", "64 KiB", "3 MiB", "1025 B"]);
    }
}
