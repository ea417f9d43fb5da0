//! Limits of the machine itself, to compare with.

use std::hint::{black_box, spin_loop};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use vrnic_device::memory::mapping::{Mapping, Order};
use vrnic_testdriver::memory::{BASE, Memory};
use vrnic_testdriver::vmm::vfio::Endpoint;

use crate::rig::Pair;
use crate::scatter::{PAGE, Scattered};

/// Round trips of a run.
const ROUNDS: u64 = 20_000;

/// A word on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicU64);

/// Returns the shortest mean round trip in µs of a word between two threads.
///
/// # Errors
/// When a thread panics.
pub(crate) fn ping_pong(repeats: u32) -> anyhow::Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..repeats {
        let (ping, pong) = (Line::default(), Line::default());
        let time = std::thread::scope(|scope| {
            let echo = scope.spawn(|| {
                for round in 1..=ROUNDS {
                    wait(&ping, round);
                    pong.0.store(round, Ordering::Release);
                }
            });
            let start = Instant::now();
            for round in 1..=ROUNDS {
                ping.0.store(round, Ordering::Release);
                wait(&pong, round);
            }
            let time = start.elapsed();
            echo.join().map(|()| time)
        });
        let time = time.map_err(|_| anyhow!("the echo of a ping-pong panicked"))?;
        best = best.min(time.as_secs_f64() * 1e6 / ROUNDS as f64);
    }
    Ok(best)
}

fn wait(line: &Line, value: u64) {
    while line.0.load(Ordering::Acquire) != value {
        spin_loop();
    }
}

/// Bytes per second of copying a block of `len` bytes over and over, in private memory.
pub(crate) fn memcpy(len: usize, span: Duration) -> f64 {
    let source = vec![1u8; len];
    let mut target = vec![2u8; len];
    let start = Instant::now();
    let mut bytes = 0f64;
    while start.elapsed() < span {
        for _ in 0..16 {
            target.copy_from_slice(black_box(&source));
            black_box(&mut target);
        }
        bytes += 16.0 * len as f64;
    }
    bytes / start.elapsed().as_secs_f64()
}

/// Returns the same figure for a thread next to another thread that also copies such a block.
///
/// # Errors
/// When the other thread panics.
pub(crate) fn memcpy_beside(len: usize, span: Duration) -> anyhow::Result<f64> {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| memcpy(len, span));
        let rate = memcpy(len, span);
        other.join().map_err(|_| anyhow!("a thread that copies panicked"))?;
        Ok(rate)
    })
}

/// Bytes per second of blocks that one thread copies into `depth` places in turns, and that another
/// one copies on from there: what a controller and a worker do at best.
///
/// # Errors
/// When the other thread panics.
pub(crate) fn memcpy_handed(len: usize, depth: usize, span: Duration) -> anyhow::Result<f64> {
    let places = Memory::zeroed((len * depth) as u64);
    let places = Mapping::new(places.file().0, 0, len * depth, true)?;
    let private = || -> anyhow::Result<Mapping> {
        let memory = Memory::zeroed(len as u64);
        memory.write(0, &vec![1; len]).context("a block")?;
        Ok(Mapping::new(memory.file().0, 0, len, true)?)
    };
    let (source, target) = (private()?, private()?);
    let (given, taken, over) = (Line::default(), Line::default(), Line::default());
    let at = |round: u64| (round as usize % depth) * len;
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            for round in 0.. {
                while given.0.load(Ordering::Acquire) <= round {
                    if over.0.load(Ordering::Relaxed) != 0 {
                        return Some(());
                    }
                    spin_loop();
                }
                places.copy_to(at(round), &target, 0, len, Order::Any)?;
                taken.0.store(round + 1, Ordering::Release);
            }
            None
        });
        let (start, mut rounds) = (Instant::now(), 0u64);
        while start.elapsed() < span {
            while rounds >= taken.0.load(Ordering::Acquire) + depth as u64 {
                spin_loop();
            }
            source.copy_to(0, &places, at(rounds), len, Order::Any).context("a block")?;
            rounds += 1;
            given.0.store(rounds, Ordering::Release);
        }
        wait(&taken, rounds);
        let rate = rounds as f64 * len as f64 / start.elapsed().as_secs_f64();
        over.0.store(1, Ordering::Relaxed);
        other.join().ok().flatten().ok_or_else(|| anyhow!("a thread that copies failed"))?;
        Ok(rate)
    })
}

/// Returns the memory of an endpoint's guest, and the place of the endpoint's buffer in it.
fn map(end: &Endpoint) -> anyhow::Result<(Mapping, usize)> {
    let ram = end.guest.ram();
    let mapping = Mapping::new(ram.file(), 0, usize::try_from(ram.len())?, true)?;
    Ok((mapping, usize::try_from(end.buffer - BASE)?))
}

/// Bytes per second of copying the very block that a WRITE of `len` bytes moves, by this thread.
///
/// # Errors
/// When it lies outside guest memory, or that cannot be mapped.
pub(crate) fn same_block(pair: &Pair, len: usize, span: Duration) -> anyhow::Result<f64> {
    same_pieces(pair, &[(0, 0)], len, span)
}

/// Bytes per second of copying the very pages that a WRITE of `len` bytes between two scattered
/// buffers moves, by this thread.
///
/// # Errors
/// When they lie outside guest memory, or that cannot be mapped.
pub(crate) fn same_pages(
    pair: &Pair,
    [from, to]: &[Scattered; 2],
    len: usize,
    span: Duration,
) -> anyhow::Result<f64> {
    let places = from.places.iter().copied().zip(to.places.iter().copied());
    let places: Vec<_> = places.take(len / PAGE).collect();
    same_pieces(pair, &places, PAGE, span)
}

/// Bytes per second of copying pieces of `len` bytes between places of the buffers of a pair.
fn same_pieces(
    pair: &Pair,
    places: &[(usize, usize)],
    len: usize,
    span: Duration,
) -> anyhow::Result<f64> {
    let ((source, source_at), (target, target_at)) = (map(&pair.a)?, map(&pair.b)?);
    let copy = || {
        places.iter().try_for_each(|(from, to)| {
            source
                .copy_to(source_at + from, &target, target_at + to, len, Order::Any)
                .context("a piece of guest memory")
        })
    };
    // Their pages are mapped before anything is timed.
    copy()?;
    let start = Instant::now();
    let mut bytes = 0f64;
    while start.elapsed() < span {
        for _ in 0..16 {
            copy()?;
        }
        bytes += 16.0 * (places.len() * len) as f64;
    }
    Ok(bytes / start.elapsed().as_secs_f64())
}

/// Bytes of the messages whose bandwidth is measured.
const MESSAGE: usize = 128 << 10;

/// Returns the bytes per second that one thread can send to another one through a UNIX socket
/// (SEQPACKET).
///
/// # Errors
/// When a socket fails.
pub(crate) fn socket_bandwidth(span: Duration) -> anyhow::Result<f64> {
    let [from, to] = sockets()?;
    set_socket_send_buffer_size(&from, 4 << 20)?;
    std::thread::scope(|scope| {
        let sink = scope.spawn(move || {
            let mut buffer = vec![0u8; MESSAGE];
            let mut bytes = 0f64;
            while let Ok((len @ 1.., _)) = recv(&to, buffer.as_mut_slice(), RecvFlags::empty()) {
                bytes += len as f64;
            }
            bytes
        });
        let message = vec![1u8; MESSAGE];
        let start = Instant::now();
        while start.elapsed() < span {
            send(&from, &message, SendFlags::empty())?;
        }
        drop(from);
        let bytes = sink.join().map_err(|_| anyhow!("the end of a socket panicked"))?;
        Ok(bytes / start.elapsed().as_secs_f64())
    })
}

/// Returns the mean round-trip time in µs of 100 bytes through a UNIX socket (SEQPACKET) between
/// two threads that spin.
///
/// # Errors
/// When a socket fails.
pub(crate) fn socket_ping_pong() -> anyhow::Result<f64> {
    let [here, there] = sockets()?;
    std::thread::scope(|scope| {
        scope.spawn(move || while bounce(&there).is_ok() {});
        let start = Instant::now();
        for _ in 0..ROUNDS {
            send(&here, &[0; 100], SendFlags::empty())?;
            spin_recv(&here)?;
        }
        let time = start.elapsed();
        // The other thread ends when its socket is closed.
        drop(here);
        Ok(time.as_secs_f64() * 1e6 / ROUNDS as f64)
    })
}

fn sockets() -> anyhow::Result<[OwnedFd; 2]> {
    let (one, other) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    Ok([one, other])
}

fn bounce(socket: &OwnedFd) -> rustix::io::Result<()> {
    spin_recv(socket)?;
    send(socket, &[0; 100], SendFlags::NOSIGNAL).map(drop)
}

/// Receives a message, and spins while none has arrived.
fn spin_recv(socket: &OwnedFd) -> rustix::io::Result<()> {
    let mut buffer = [0u8; 128];
    loop {
        match recv(socket, &mut buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Err(Errno::PIPE),
            Ok(_) => return Ok(()),
            Err(Errno::AGAIN) => spin_loop(),
            Err(error) => return Err(error),
        }
    }
}
