//! A worker that sleeps whenever it can loses no doorbell.
//!
//! Shows: daemon

use std::time::{Duration, Instant};

use vrnic_abi::sq::Opcode;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::vmm::vfio::Endpoint;
use vrnic_testdriver::wr::Wr;

use crate::common;

/// Number of posts of each of the two guests. `VRNIC_WAKE_POSTS` can set another number.
const POSTS: u64 = 100_000;
/// Longer than any wake-up takes on a loaded machine. A lost wake-up takes for ever.
const LIMIT: Duration = Duration::from_secs(20);

/// The worker sleeps after a few polls and then polls only when it is woken, so a lost doorbell
/// would hang. Two guests post at random times around the moment at which the worker falls asleep,
/// and `workers` also wake each other.
fn no_doorbell_is_lost(workers: &str) {
    let posts =
        std::env::var("VRNIC_WAKE_POSTS").ok().and_then(|n| n.parse().ok()).unwrap_or(POSTS);
    let args = ["--sleep", "0", "--look", "0", "--workers", workers];
    let daemon = common::start_with(2, &args);
    let guests = common::pair(&daemon);
    let setup = Setup { log_stride: 7, ..Setup::default() };
    let ends: Vec<_> =
        guests.iter().map(|guest| [(); 2].map(|()| Endpoint::new(guest, setup))).collect();
    for (a, b) in ends[0].iter().zip(&ends[1]) {
        Endpoint::connect_pair(a, b);
    }
    let write = |near: &Endpoint, far: &Endpoint| {
        Wr::new(Opcode::Write, &[near.sge(0, 8)]).to(far.buffer, far.key).encode()
    };
    let wqes = [0, 1].map(|side| [0, 1].map(|nth| write(&ends[side][nth], &ends[1 - side][nth])));
    std::thread::scope(|scope| {
        for ((seed, pair), wqes) in (0..).zip(ends).zip(&wqes) {
            scope.spawn(move || post_at_random(pair, wqes, seed, posts));
        }
    });
}

fn post_at_random(mut ends: [Endpoint; 2], wqes: &[Vec<u8>; 2], seed: u64, posts: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    for post in 0..posts {
        let which = random.usize(..2);
        let end = &mut ends[which];
        // Up to some microseconds: about as long as the worker takes to fall asleep.
        for _ in 0..random.u32(..2048) {
            std::hint::spin_loop();
        }
        end.store_encoded(&wqes[which]);
        end.ring();
        let start = Instant::now();
        while !end.send_cq.ready() {
            std::hint::spin_loop();
            if start.elapsed() > Duration::from_micros(50) {
                std::thread::yield_now();
                assert!(start.elapsed() < LIMIT, "post {post}: the worker did not wake up");
            }
        }
        end.send_cq.poll_success();
    }
}

#[test]
fn one_worker() {
    no_doorbell_is_lost("1");
}

#[test]
fn three_workers() {
    no_doorbell_is_lost("3");
}
