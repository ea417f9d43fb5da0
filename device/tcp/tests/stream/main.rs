//! Two connections that exchange streams over a simulated link.
//!
//! Shows: tcp
//!
//! | module | contents |
//! | --- | --- |
//! | [`host`] | one end of a connection, with conditions that always hold |
//! | [`pair`] | two ends and the link between them |
//! | [`hostile`] | random segments in each state of a connection |

mod host;
mod hostile;
mod pair;

use std::time::Duration;

use pair::{Options, Pair};
use proptest::prelude::*;
use vrnic_simlink::{Fate, Faults};
use vrnic_tcp::connection::{End, Event, State, keepalive};
use vrnic_tcp::context::Algorithm;

const MB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;

#[test]
fn a_stream_without_loss_is_sent_once() {
    let mut pair = Pair::new(1, Options::default());
    pair.exchange([4 * MB, 4 * MB]);
    for host in &pair.hosts {
        let send = host.connection.counters().send;
        assert_eq!((send.resent, send.timeouts, send.recoveries), (0, 0, 0));
        assert_eq!(send.segments, (4 * MB).div_ceil(1448));
    }
    // 10 Gbit/s: 3.4 ms for the bytes, and a few round trips until the window is open.
    assert!(pair.now < 15_000_000, "{} ns", pair.now);
}

#[test]
fn both_ends_close_and_say_so() {
    let mut pair = Pair::new(1, Options::default());
    pair.exchange([100_000, 1]);
    pair.close();
    for host in &pair.hosts {
        let last = host.events.len() - 3;
        assert_eq!(
            host.events[last..],
            [Event::PeerClosed, Event::Closed, Event::Ended(End::Closed)]
        );
    }
}

/// Both ends are idle for a day. Then the link is cut.
#[test]
fn an_idle_connection_lasts_as_long_as_the_link_between_its_ends() {
    const IDLE: Duration = Duration::from_secs(3600);
    let mut options = Options::default();
    options.params.keepalive = Some(IDLE);
    let mut pair = Pair::new(3, options);
    pair.exchange([1000, 1000]);
    let sent = |pair: &Pair| pair.hosts.iter().map(|host| host.sent).sum::<u64>();
    let before = sent(&pair);
    pair.run_until(|pair| pair.now > 86_400 * SECOND);
    assert!(pair.hosts.iter().all(|host| host.connection.state() == State::Established));
    // Two probes and two answers in each hour, at most.
    let probes = sent(&pair) - before;
    assert!((24 * 2..=24 * 4).contains(&probes), "{probes}");
    let cut = pair.now;
    pair.links.iter_mut().for_each(|link| link.rule(|_| Fate::Drop));
    pair.run_until(|pair| pair.hosts.iter().all(|host| host.connection.state() == State::Closed));
    for host in &pair.hosts {
        assert_eq!(host.events.last(), Some(&Event::Ended(End::TimedOut)));
    }
    let most = IDLE + keepalive::PROBES * keepalive::INTERVAL;
    assert!(Duration::from_nanos(pair.now - cut) <= most);
}

/// Passes hostile segments. `VRNIC_CASES` sets their number, `VRNIC_SEED` the first seed.
///
/// Shows: tcp
#[test]
fn any_segment_in_any_state() {
    vrnic_cases::bytes(1_000_000, 4000, hostile::any_segments);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    /// Shows: tcp
    #[test]
    fn every_byte_arrives_once_and_in_order(
        seed: u32,
        sack: bool,
        timestamps: bool,
        congestion in prop_oneof![
            Just(Algorithm::None), Just(Algorithm::Cubic)
        ],
        chance in 0_u32..80_000,
        corrupt in 0_u32..20_000,
        (place, hold, refuse) in (0_u8..=255, 0_u8..10, 0_u8..10),
        unit in prop_oneof![Just(1_usize), Just(256), Just(1444)],
        lengths in [0_u64..300_000, 0_u64..300_000],
    ) {
        let mut options = Options { sack, timestamps, ..Options::default() };
        options.params.congestion = congestion;
        let mut pair = Pair::new(seed.into(), options);
        pair.faults(Faults {
            drop: chance, duplicate: chance, delay: chance, corrupt, truncate: corrupt
        });
        for host in &mut pair.hosts {
            (host.sink.place, host.sink.hold, host.sink.refuse) = (place, hold, refuse);
            host.source.unit = unit;
        }
        pair.exchange(lengths);
        pair.close();
        for host in &pair.hosts {
            prop_assert!(host.events.contains(&Event::PeerClosed));
        }
    }
}
