//! Measures how fast the invariant CRC is computed over packets of some sizes that lie in the
//! processor's cache, as they do when a payload has just been copied: run it with `--release`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use vrnic_roce::icrc;

/// Bytes before the payload: IPv4, UDP, BTH.
const HEADERS: usize = 40;
/// Time for each of the runs.
const RUN: Duration = Duration::from_millis(100);

fn main() {
    for payload in [64, 256, 1024, 4096] {
        let mut packet = vec![0x45; HEADERS + payload];
        packet[HEADERS..].fill(0xa5);
        let best = (0..10).map(|_| gigabytes_per_second(&packet)).fold(0.0, f64::max);
        println!("{payload:>5} bytes of payload: {best:6.1} GB/s");
    }
}

/// Returns the rate of one run.
fn gigabytes_per_second(packet: &[u8]) -> f64 {
    let start = Instant::now();
    let mut bytes = 0_u64;
    while start.elapsed() < RUN {
        for _ in 0..100 {
            black_box(icrc::compute(black_box(packet)));
        }
        bytes += 100 * packet.len() as u64;
    }
    bytes as f64 / start.elapsed().as_nanos() as f64
}
