//! What the device costs without a guest: a driver in this process, the daemon in another, a real vfio-user
//! socket between them. Prints a table; `cargo bench -p vrnic-device --bench native`.

use std::hint::spin_loop;
use std::path::Path;
use std::time::{Duration, Instant};

use vrnic_abi::sq::{Flags, Opcode};
use vrnic_testdriver::daemon::Daemon;
use vrnic_testdriver::endpoint::{Endpoint, EndpointSetup};
use vrnic_testdriver::qp::Send;

/// Rounds of a latency measurement.
const ROUNDS: usize = 50_000;
/// Length of a rate or bandwidth measurement.
const SPAN: Duration = Duration::from_secs(1);
/// Work requests in flight while a rate is measured; every fourth is signaled.
const DEPTH: u32 = 64;
/// Length of the regions.
const BUFFER: u64 = 16 << 20;

fn main() -> anyhow::Result<()> {
    let daemon = Daemon::start(Path::new(env!("CARGO_BIN_EXE_vrnicd")), 2, &["--workers", "1"])?;
    let guests = [daemon.ready_guest(0)?, daemon.ready_guest(1)?];
    println!("| measure | send queue | figure |\n| --- | --- | --- |");
    for in_device in [false, true] {
        let place = if in_device { "device" } else { "guest" };
        let setup = EndpointSetup {
            buffer: BUFFER,
            log_wqes: 7,
            log_stride: 7,
            in_device,
            ..EndpointSetup::default()
        };
        let mut a = Endpoint::new(&guests[0], &setup)?;
        let b = Endpoint::new(&guests[1], &setup)?;
        Endpoint::connect(&a, &b)?;
        for (name, wr) in [
            ("64 B WRITE inline", write(&b).inline(&[7; 64])),
            ("64 B WRITE", write(&b).sges(&[a.sge(0, 64)])),
            ("64 B READ", read(&b).sges(&[a.sge(0, 64)])),
        ] {
            let [median, p99, max] = latency(&mut a, &wr)?;
            println!(
                "| {name}, doorbell to CQE, median / p99 / max | {place} | {median:.2} / {p99:.2} / {max:.0} µs |"
            );
        }
        let wr = write(&b).inline(&[7; 64]);
        println!("| 64 B WRITE rate | {place} | {:.2} million/s |", rate(&mut a, &wr)? / 1e6);
        for len in [4 << 10, 64 << 10, 1 << 20] {
            for (name, wr) in [("WRITE", write(&b)), ("READ", read(&b))] {
                let wr = wr.sges(&[a.sge(0, len)]);
                let bytes = rate(&mut a, &wr)? * f64::from(len);
                let ratio = bytes / memcpy(len as usize);
                let kib = len >> 10;
                println!(
                    "| {kib} KiB {name} | {place} | {:.2} GB/s, {ratio:.2} × memcpy |",
                    bytes / 1e9
                );
            }
        }
    }
    Ok(())
}

fn write(to: &Endpoint<'_>) -> Send {
    Send::new(Opcode::Write, 1).remote(to.buffer, to.key)
}

fn read(from: &Endpoint<'_>) -> Send {
    Send::new(Opcode::Read, 1).remote(from.buffer, from.key)
}

/// Median, 99th percentile and longest time in µs from ringing to the completion.
fn latency(a: &mut Endpoint<'_>, wr: &Send) -> anyhow::Result<[f64; 3]> {
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        a.qp.store_send(a.guest, wr)?;
        let start = Instant::now();
        a.qp.ring(a.guest)?;
        while a.send_cq.poll(a.guest)?.is_none() {
            spin_loop();
        }
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok([times[ROUNDS / 2], times[ROUNDS / 100 * 99], times[ROUNDS - 1]])
}

/// Work requests a second.
fn rate(a: &mut Endpoint<'_>, wr: &Send) -> anyhow::Result<f64> {
    let quiet = wr.clone().edit(|head| head.flags &= !Flags::SIGNALED.bits());
    let start = Instant::now();
    let (mut posted, mut done) = (a.qp.send_producer(), a.qp.send_producer());
    let first = posted;
    while start.elapsed() < SPAN || done != posted {
        let room = DEPTH.saturating_sub(posted.wrapping_sub(done));
        if room >= 16 && start.elapsed() < SPAN {
            for i in 0..16 {
                a.qp.store_send(a.guest, if i % 4 == 3 { wr } else { &quiet })?;
            }
            a.qp.ring(a.guest)?;
            posted = a.qp.send_producer();
        }
        while let Some(cqe) = a.send_cq.poll(a.guest)? {
            anyhow::ensure!(cqe.status == 0, "status {} of a work request", cqe.status);
            done = cqe.wqe_index.get().wrapping_add(1);
        }
    }
    Ok(f64::from(posted.wrapping_sub(first)) / start.elapsed().as_secs_f64())
}

/// Bytes a second of a copy between two buffers of this process.
fn memcpy(len: usize) -> f64 {
    let from = vec![1u8; len];
    let mut to = vec![2u8; len];
    let start = Instant::now();
    let mut bytes = 0;
    while start.elapsed() < SPAN / 4 {
        for _ in 0..16 {
            to.copy_from_slice(std::hint::black_box(&from));
            std::hint::black_box(&mut to);
            bytes += len;
        }
    }
    bytes as f64 / start.elapsed().as_secs_f64()
}
