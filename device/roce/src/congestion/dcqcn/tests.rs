//! Tests of the rate of a sender.

use super::*;

const LINE: u64 = 10_000_000_000;

fn sender() -> RateControl {
    RateControl::new(Parameters::of_paper(Rate::nearest(LINE))).expect("parameters")
}

fn micros(count: u64) -> Nanos {
    Nanos(count * 1000)
}

fn rate(sender: &RateControl) -> u64 {
    sender.rate().bits_per_second()
}

#[test]
fn a_sender_that_was_not_notified_is_not_paced() {
    let mut sender = sender();
    for _ in 0..1000 {
        assert_eq!(sender.waits_until(micros(1)), None);
        sender.sent(micros(1), 4096);
    }
}

#[test]
fn the_first_notification_halves_and_recovery_returns_to_the_old_rate() {
    let mut sender = sender();
    assert!(sender.notified(micros(100)));
    assert_eq!(rate(&sender), LINE / 2, "α is 1 at first");
    let mut expected = LINE / 2;
    for step in 1..5 {
        let _wait = sender.waits_until(micros(100 + step * 55));
        expected = u64::midpoint(expected, LINE);
        assert_eq!(rate(&sender), expected, "step {step} of fast recovery");
    }
    let _wait = sender.waits_until(micros(100 + 55 * 20));
    assert!(!sender.is_limited(), "{}", rate(&sender));
}

#[test]
fn the_target_grows_in_three_phases() {
    let mut sender = sender();
    for time in 0..100 {
        sender.notified(micros(time * 50));
    }
    let low = rate(&sender);
    assert_eq!(low, LINE / 1000, "the lowest rate");
    let at = |step: u64| micros(99 * 50 + step * 55);
    let _wait = sender.waits_until(at(4));
    assert_eq!(rate(&sender), low, "the target is the rate before the last notification");
    let _wait = sender.waits_until(at(5));
    assert_eq!(rate(&sender), low + 20_000_000, "additive increase");
    let _wait = sender.waits_until(at(15));
    let slow = rate(&sender);
    assert!((380_000_000..430_000_000).contains(&slow), "{slow}");
    // Six steps of the byte counter.
    for _ in 0..6 {
        sender.sent(at(15), 10_000_000);
    }
    let target = sender.target;
    sender.sent(at(15), 10_000_000);
    assert_eq!(sender.target - target, 2 * 200_000_000, "hyper increase: i is 7 - 5");
}

#[test]
fn a_flood_of_notifications_leaves_the_lowest_rate_and_ends() {
    let mut sender = sender();
    let cuts = (0..1_000_000_u64).filter(|time| sender.notified(Nanos(time * 10))).count();
    assert_eq!((cuts, rate(&sender)), (2500, LINE / 1000), "one in 4 µs");
    let mut now = Nanos(10_000_000);
    let mut sent = 0;
    while sender.is_limited() {
        now = sender.waits_until(now).unwrap_or(now);
        sender.sent(now, 1024);
        sent += 1;
        assert!(now < Nanos(1_000_000_000), "it has recovered within a second");
    }
    assert!(sent > 100);
}

#[test]
fn a_packet_that_waits_leaves_when_the_timer_has_raised_the_rate() {
    let parameters = Parameters::of_paper(Rate::nearest(LINE));
    let parameters = Parameters { min: Rate::nearest(1), ..parameters };
    let mut sender = RateControl::new(parameters).expect("parameters");
    for time in 0..1000 {
        sender.notified(micros(time * 5));
        sender.sent(micros(time * 5), 1024);
    }
    assert!(rate(&sender) < 1000, "{}", rate(&sender));
    let start = micros(5000);
    let (mut now, mut waits, mut packets) = (start, 0, 0);
    while sender.is_limited() {
        match sender.waits_until(now) {
            Some(at) => {
                now = at;
                waits += 1;
            }
            None => {
                sender.sent(now, 1024);
                packets += 1;
            }
        }
        let waited = now.since(start);
        assert!(waited < Duration::from_millis(20), "the sender waits for {waited:?}");
    }
    assert!(packets > 100 && waits <= packets + 10, "{waits} waits for {packets} packets");
}

#[test]
fn the_bucket_fills_at_the_rate_of_each_step() {
    let [mut often, mut once] = [sender(), sender()];
    for sender in [&mut often, &mut once] {
        sender.notified(micros(0));
        sender.sent(micros(0), 1_000_000);
    }
    for step in 1..=4 {
        let _wait = often.waits_until(micros(step * 55));
    }
    let _wait = once.waits_until(micros(220));
    let [often, once] = [often, once].map(|mut it| it.pacer.waits_until(micros(220)));
    assert_eq!(once, often);
}

#[test]
fn alpha_does_not_decrease_while_notifications_come() {
    let parameters = Parameters::of_paper(Rate::nearest(LINE));
    let parameters = Parameters { cut_period: Duration::from_millis(1), ..parameters };
    let mut sender = RateControl::new(parameters).expect("parameters");
    for time in 0..200 {
        sender.notified(micros(time * 50));
    }
    assert!(sender.alpha > ONE - ONE / 100, "{}", sender.alpha);
}

#[test]
fn packets_leave_at_the_rate() {
    let mut sender = sender();
    sender.notified(micros(0));
    let (mut now, mut bytes) = (micros(0), 0);
    while now < micros(55) {
        match sender.waits_until(now) {
            Some(at) => now = at,
            None => {
                sender.sent(now, 1024);
                bytes += 1024;
            }
        }
    }
    let expected = LINE / 2 * 55 / 8_000_000;
    assert!((expected..expected + 6 * 1024).contains(&bytes), "{bytes}, not {expected}");
}

#[test]
fn parameters_are_checked_as_a_whole() {
    let refused = |change: &dyn Fn(&mut Parameters)| {
        let mut parameters = Parameters::of_paper(Rate::nearest(LINE));
        change(&mut parameters);
        RateControl::new(parameters).err()
    };
    assert_eq!(refused(&|_| ()), None);
    let rates = OutOfBounds::Rates(Rate::MAX, Rate::nearest(LINE));
    assert_eq!(refused(&|it| it.min = Rate::MAX), Some(rates));
    for shift in [0, 17] {
        assert_eq!(refused(&|it| it.gain_shift = shift), Some(OutOfBounds::Gain(shift)));
    }
    for period in [Duration::ZERO, Duration::from_secs(2)] {
        let wrong = |name| Some(OutOfBounds::Period(name, period));
        assert_eq!(refused(&|it| it.alpha_period = period), wrong("alpha_period"));
        assert_eq!(refused(&|it| it.cut_period = period), wrong("cut_period"));
        assert_eq!(refused(&|it| it.timer = period), wrong("timer"));
    }
    assert_eq!(refused(&|it| it.byte_step = 0), Some(OutOfBounds::ByteStep(0)));
    for steps in [0, 32] {
        let wrong = Some(OutOfBounds::FastRecovery(steps));
        assert_eq!(refused(&|it| it.fast_recovery = steps), wrong);
    }
}

#[test]
fn threads_may_be_late_by_a_pause() {
    let burst = |rate| Parameters::for_threads(Rate::nearest(rate)).burst;
    assert_eq!([1_000_000, LINE].map(burst), [4096, 62_500]);
}

#[test]
fn alpha_decreases_with_time() {
    let mut sender = sender();
    sender.notified(micros(0));
    // 256 periods reduce α to 1/e.
    let after = 55 * 256;
    let _wait = sender.waits_until(micros(after));
    sender.notified(micros(after));
    let expected = (LINE as f64) * (1.0 - (-1_f64).exp() / 2.0);
    let error = (rate(&sender) as f64 / expected - 1.0).abs();
    assert!(error < 0.005, "{} instead of {expected}", rate(&sender));
    sender.notified(Nanos(u64::MAX));
    assert_eq!(rate(&sender), LINE, "α is zero after a long time");
}
