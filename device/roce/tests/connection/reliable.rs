//! Random work over links with faults: each message is executed once and in order, and both
//! memories have the right contents.
//!
//! Shows: roce

use vrnic_roce::requester::Recovery;
use vrnic_roce::wire::Mtu;
use vrnic_roce::wire::opcode::Transport;
use vrnic_simlink::Faults;

use crate::host::no_bad_frames;
use crate::model::{Mix, Model, clear_words};
use crate::pair::{Options, Pair};

/// Returns the seeds of a test. `VRNIC_ROCE_SEEDS` can set a larger number.
pub(crate) fn seeds(default: u64) -> std::ops::Range<u64> {
    let count = std::env::var("VRNIC_ROCE_SEEDS").ok().and_then(|text| text.parse().ok());
    0..count.unwrap_or(default)
}

/// Runs random work in both directions.
fn run(seed: u64, options: Options, faults: Faults) -> Pair {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut pair = Pair::new(seed, options);
    pair.faults(faults);
    pair.hosts.iter_mut().for_each(clear_words);
    let mut models = [Model::new(&pair.hosts[1]), Model::new(&pair.hosts[0])];
    for _ in 0..6 {
        for (own, model) in models.iter_mut().enumerate() {
            for _ in 0..rng.u32(..12) {
                model.post(&mut pair.hosts[own], &mut rng, Mix::All);
            }
        }
        if rng.bool() {
            pair.run_for(rng.u64(..200_000));
        }
    }
    pair.run([models[0].posted(), models[1].posted()]);
    for (own, model) in models.iter().enumerate() {
        model.check(&pair.hosts[own], &pair.hosts[1 - own]);
        assert_eq!(pair.hosts[own].failed, None);
    }
    pair
}

fn options(seed: u64) -> Options {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x5eed);
    Options {
        transport: *rng.choice(&[Transport::Rc, Transport::Xrc]).expect("one"),
        mtu: *rng.choice(&Mtu::ALL).expect("one"),
        psns: [rng.u32(0xff_ff00..0x100_0100), rng.u32(..)],
        max_rd_atomic: rng.u8(1..=4),
        window: *rng.choice(&[1, 3, 16, 128]).expect("one"),
        hold: *rng.choice(&[0, 4, 255]).expect("one"),
        recovery: *rng.choice(&[Recovery::GoBackN, Recovery::Leap]).expect("one"),
        congestion_control: rng.bool(),
        ..Options::default()
    }
}

#[test]
fn a_perfect_link_needs_nothing_twice() {
    for seed in seeds(10) {
        let pair = run(seed, options(seed), Faults::default());
        for host in &pair.hosts {
            no_bad_frames(host);
            let counters = host.requester.counters();
            assert_eq!(counters.resent > 0, counters.not_ready > 0, "{counters:?}");
            assert_eq!((counters.timeouts, counters.implied_naks), (0, 0));
        }
    }
}

#[test]
fn work_over_links_with_all_faults() {
    for seed in seeds(30) {
        run(seed, options(seed), Faults::all(10_000));
    }
}

#[test]
fn work_over_links_that_lose_a_lot() {
    for seed in seeds(10) {
        run(seed, options(seed), Faults { drop: 80_000, ..Faults::default() });
    }
}

#[test]
fn work_over_links_that_change_the_order() {
    for seed in seeds(10) {
        let faults = Faults { delay: 100_000, duplicate: 50_000, ..Faults::default() };
        run(seed, options(seed), faults);
    }
}
