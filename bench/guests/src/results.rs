//! The measurements.

use serde::{Deserialize, Serialize};
use vrnic_figures::{Figure, Quantity, Subject, Way};

use crate::host::{Memcpy, Relay};
use crate::machine::Machine;
use crate::native::Native;
use crate::plan::{Device, MIB, Operation};

/// Bandwidth of one device, operation and size.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Bandwidth {
    pub(crate) device: Device,
    pub(crate) operation: Operation,
    /// Message length.
    pub(crate) bytes: u64,
    /// 2^20 bytes per second.
    pub(crate) mib_s: f64,
    /// Messages per second.
    pub(crate) messages_s: f64,
}

impl Bandwidth {
    /// Computes the bandwidth from the columns of perftest's table. The table rounds MB/s to two
    /// digits after the decimal point and millions of messages to six digits, so for small messages
    /// the message rate is used, and for large messages the MB/s.
    pub(crate) fn new(
        device: Device,
        operation: Operation,
        bytes: u64,
        average: f64,
        million_messages: f64,
    ) -> Self {
        let each = bytes as f64 / MIB;
        let (mib_s, messages_s) = if bytes < 4096 {
            (million_messages * 1e6 * each, million_messages * 1e6)
        } else {
            (average, average / each)
        };
        Self { device, operation, bytes, mib_s, messages_s }
    }
}

/// Latency of one device and operation.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) device: Device,
    pub(crate) operation: Operation,
    /// Message length.
    pub(crate) bytes: u64,
    /// µs, the value seen most; of a round trip's half for write and send, as perftest counts.
    pub(crate) typical_us: f64,
}

/// A test that gave no figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) device: Device,
    /// Tool and options.
    pub(crate) test: String,
    /// Exit code.
    pub(crate) code: i32,
    /// Output of client and server.
    pub(crate) text: String,
}

/// Everything of one run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Results {
    /// Messages travelled as packets.
    pub(crate) wire: bool,
    /// Our adapters had iWARP.
    pub(crate) iwarp: bool,
    pub(crate) machine: Machine,
    pub(crate) native: Option<Native>,
    pub(crate) memcpy: Vec<Memcpy>,
    pub(crate) relay: Vec<Relay>,
    pub(crate) bandwidth: Vec<Bandwidth>,
    pub(crate) latency: Vec<Latency>,
    pub(crate) failures: Vec<Failure>,
}

impl Results {
    /// Returns the bandwidth that was measured, if it was.
    pub(crate) fn bandwidth(
        &self,
        device: Device,
        operation: Operation,
        bytes: u64,
    ) -> Option<&Bandwidth> {
        let wanted =
            |b: &&Bandwidth| (b.device, b.operation, b.bytes) == (device, operation, bytes);
        self.bandwidth.iter().find(wanted)
    }

    /// Returns the same in MiB/s.
    pub(crate) fn mib_s(&self, device: Device, operation: Operation, bytes: u64) -> Option<f64> {
        self.bandwidth(device, operation, bytes).map(|point| point.mib_s)
    }

    /// Returns the latency that was measured, in µs.
    pub(crate) fn latency(&self, device: Device, operation: Operation) -> Option<f64> {
        let wanted = |l: &&Latency| (l.device, l.operation) == (device, operation);
        self.latency.iter().find(wanted).map(|latency| latency.typical_us)
    }

    /// Returns the rate in MiB/s of memcpy of blocks of `bytes`, measured during the tests of
    /// `operation`.
    pub(crate) fn memcpy(&self, operation: Operation, bytes: u64) -> Option<f64> {
        let wanted = |copy: &&Memcpy| (copy.operation, copy.bytes) == (operation, bytes);
        self.memcpy.iter().find(wanted).map(|copy| copy.mib_s)
    }

    /// Returns a figure that was measured without guests.
    pub(crate) fn native(&self, subject: Subject, quantity: Quantity) -> Option<f64> {
        self.native.as_ref()?.figures.get(&Figure(subject, quantity)).copied()
    }

    /// Returns the bandwidth of WRITEs of 64 KiB between two daemons without guests, in GB/s.
    pub(crate) fn large_write(&self, way: Way) -> Option<f64> {
        let subject = Subject::Messages(64 << 10, vrnic_figures::Operation::Write, way);
        self.native(subject, Quantity::Gigabytes)
    }

    /// Returns the fastest relay, in µs.
    pub(crate) fn relay(&self) -> Option<f64> {
        self.relay.iter().map(|relay| relay.half_round_us).min_by(f64::total_cmp)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use vrnic_figures::QUOTED;

    use super::*;

    /// Returns a small run with round figures.
    pub(crate) fn sample() -> Results {
        use Device::{Rxe, Siw, Vrnic};
        use Operation::{Read, Write};
        let latency =
            |device, operation, typical_us| Latency { device, operation, bytes: 8, typical_us };
        let native = Native {
            figures: [(QUOTED[0].1, 0.25)].into(),
            table: "| 64 B WRITE | 0.25 |\n| native_write64_latency_us | 0.25 |\n".into(),
            ..Native::default()
        };
        Results {
            wire: false,
            iwarp: false,
            machine: Machine::default(),
            native: Some(native),
            memcpy: vec![Memcpy { operation: Write, bytes: 65536, mib_s: 10_000.0 }],
            relay: vec![
                Relay { gear: "spin".into(), half_round_us: 2000.0 },
                Relay { gear: "nap 20 µs".into(), half_round_us: 32.0 },
            ],
            bandwidth: vec![
                Bandwidth::new(Vrnic, Write, 65536, 8000.0, 0.128),
                Bandwidth::new(Rxe, Write, 65536, 16.0, 0.000_256),
                Bandwidth::new(Vrnic, Write, 8, 1.91, 0.25),
                Bandwidth::new(Rxe, Write, 8, 0.08, 0.01),
            ],
            latency: vec![
                latency(Vrnic, Write, 36.0),
                latency(Siw, Write, 180.0),
                latency(Siw, Read, 464.0),
            ],
            failures: Vec::new(),
        }
    }
}
