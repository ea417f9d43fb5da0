//! Random work to and from models of Linux' software RoCE: each message is executed once and in
//! order, and both memories have the right contents.
//!
//! Shows: roce

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use vrnic_roce::Psn;
use vrnic_roce::requester::{Outcome, Recovery, Work, WorkRequest};
use vrnic_roce::wire::{Body, Mtu, Part, ReadPart, Request, Response, SendEnd};
use vrnic_simlink::{Fate, Faults};

use crate::host::{BASE, Receiving, parsed, remote, request, work};
use crate::model::{Mix, Model, clear_words};
use crate::pair::{Options, Pair};
use crate::reliable::seeds;
use crate::rxe_requester::{Config, RxeRequester};
use crate::rxe_responder::Rxe;

/// The memory of READs at the requester.
const SINK: u64 = BASE + (768 << 10);

/// Returns a pair whose first host sends as rxe does.
fn sender(seed: u64, options: Options) -> Pair {
    let mut pair = Pair::new(seed, options);
    pair.hosts[0].rxe = Some(Box::new(RxeRequester::new(Config {
        destination: pair.hosts[1].qpn,
        mtu: options.mtu,
        first_psn: Psn::new(options.psns[0]),
        timeout: options.timeout,
        retry_count: options.retry_count,
        rnr_retry: options.rnr_retry,
        max_rd_atomic: u32::from(options.max_rd_atomic),
    })));
    pair
}

/// Makes the second host of a pair receive as rxe does.
fn receiver(pair: &mut Pair, options: &Options) {
    let rxe = Rxe::new(pair.hosts[0].qpn, options.mtu, Psn::new(options.psns[0]));
    pair.hosts[1].receiving = Receiving::Rxe(Box::new(rxe));
}

/// Posts random work on the first host and runs until it has completed.
fn run(seed: u64, mut pair: Pair) {
    let mix = if pair.hosts[0].rxe.is_some() { Mix::Rxe } else { Mix::All };
    let mut rng = fastrand::Rng::with_seed(seed);
    clear_words(&mut pair.hosts[1]);
    let mut model = Model::new(&pair.hosts[1]);
    for _ in 0..6 {
        for _ in 0..10 {
            model.post(&mut pair.hosts[0], &mut rng, mix);
        }
        if rng.bool() {
            pair.run_for(rng.u64(..200_000));
        }
    }
    pair.run([60, 0]);
    model.check(&pair.hosts[0], &pair.hosts[1]);
}

fn options(seed: u64) -> Options {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x5eed);
    Options {
        mtu: *rng.choice(&Mtu::ALL).expect("one"),
        psns: [rng.u32(0xff_ff00..0x100_0100), rng.u32(..)],
        max_rd_atomic: rng.u8(1..=4),
        hold: *rng.choice(&[0, 4, 255]).expect("one"),
        congestion_control: rng.bool(),
        ..Options::default()
    }
}

const LOSSES: Faults =
    Faults { drop: 20_000, corrupt: 10_000, duplicate: 0, delay: 0, truncate: 0 };

#[test]
fn work_for_rxe_over_links_with_losses() {
    for seed in seeds(20) {
        for recovery in [Recovery::GoBackN, Recovery::Leap] {
            let options = Options { recovery, ..options(seed) };
            let mut pair = Pair::new(seed, options);
            receiver(&mut pair, &options);
            pair.faults(LOSSES);
            run(seed, pair);
        }
    }
}

#[test]
fn work_of_rxe_over_a_perfect_link() {
    for seed in seeds(10) {
        run(seed, sender(seed, options(seed)));
    }
}

#[test]
fn work_of_rxe_over_links_with_losses() {
    for seed in seeds(40) {
        let mut pair = sender(seed, options(seed));
        pair.faults(LOSSES);
        run(seed, pair);
    }
}

/// Requests are also duplicated and reordered. Answers are not: a connection of rxe fails if the
/// answer of a READ overtakes an acknowledgement.
#[test]
fn work_of_rxe_over_links_that_change_the_order_of_requests() {
    for seed in seeds(40) {
        let mut pair = sender(seed, options(seed));
        pair.links[0].faults(Faults { duplicate: 50_000, delay: 50_000, ..LOSSES });
        pair.links[1].faults(LOSSES);
        run(seed, pair);
    }
}

/// The two models of rxe work with each other.
#[test]
fn work_of_rxe_for_rxe() {
    for seed in seeds(10) {
        let options = options(seed);
        let mut pair = sender(seed, options);
        receiver(&mut pair, &options);
        run(seed, pair);
    }
}

/// With all faults, a connection of rxe may fail. Until then each message is executed once and in
/// order, and all completed work has been executed.
#[test]
fn work_of_rxe_over_links_with_all_faults() {
    let mut whole = 0;
    for seed in seeds(40) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut pair = sender(seed, options(seed));
        pair.faults(Faults::all(10_000));
        clear_words(&mut pair.hosts[1]);
        let mut model = Model::new(&pair.hosts[1]);
        for _ in 0..60 {
            model.post(&mut pair.hosts[0], &mut rng, Mix::Rxe);
        }
        pair.run([60, 0]);
        whole += usize::from(model.check_begun(&pair.hosts[0], &pair.hosts[1]) == 60);
        assert_eq!(pair.hosts[1].failed, None);
    }
    assert!(whole > 0, "no run has ended well");
}

/// Counts the packets of a WRITE of 400 packets that are sent before an answer arrives, and the
/// packets among these that ask for an acknowledgement.
#[test]
fn the_window_of_rxe_ends_by_requests_for_acknowledgements() {
    let mut pair = sender(1, Options::default());
    let seen = Rc::new(Cell::new((0, Vec::new())));
    let cell = Rc::clone(&seen);
    pair.links[0].rule(move |frame| {
        let (sent, mut asks) = cell.take();
        if parsed(frame).head.ack_request {
            asks.push(sent + 1);
        }
        cell.set((sent + 1, asks));
        Fate::Pass
    });
    pair.hosts[0].post(work(1, Work::Write(remote(256 << 10), None), 250 << 10), BASE);
    pair.step();
    assert_eq!(seen.take(), (129, vec![66]));
    pair.run([1, 0]);
    assert_eq!(pair.hosts[0].completions[0].outcome, Outcome::Success);
}

/// A WRITE is sent again from its middle on, and a READ is requested again from its first missing
/// packet on.
#[test]
fn rxe_goes_on_in_the_middle() {
    let mut pair = sender(1, Options::default());
    let parts = Rc::new(Cell::new(Vec::new()));
    let (seen, mut count) = (Rc::clone(&parts), 0);
    pair.links[0].rule(move |frame| {
        let mut list = seen.take();
        list.push(request(frame).expect("a request"));
        seen.set(list);
        count += 1;
        if count == 3 { Fate::Drop } else { Fate::Pass }
    });
    pair.hosts[0].post(work(1, Work::Write(remote(256 << 10), None), 4000), BASE);
    pair.run([1, 0]);
    let sent = parts.take();
    let places = [Part::Middle, Part::Last(None)].map(Request::Write);
    assert_eq!(sent[4..], places, "the third and the fourth again");
    // The end of the timer has no effect.
    while pair.step() {}

    let mut count = 0;
    pair.links[1].rule(move |frame| {
        let read = matches!(parsed(frame).body, Body::Response(Response::Read(_)));
        count += u32::from(read);
        if read && count == 3 { Fate::Drop } else { Fate::Pass }
    });
    pair.hosts[0].post(work(2, Work::Read(remote(0)), 5000), SINK);
    pair.run([2, 0]);
    let [Request::Read(whole), Request::Read(rest)] = parts.take()[..] else { panic!() };
    assert_eq!((whole.length, rest.length), (5000, 5000 - 2048));
    assert_eq!(rest.addr - whole.addr, 2048);
    let [host, peer] = &pair.hosts;
    assert_eq!(host.memory[768 << 10..][..5000], peer.memory[..5000]);
}

/// If an acknowledgement of the whole WRITE arrives while rxe sends the rest of it again, rxe does
/// not send any packet a third time, and waits for ever if a packet is lost (rxe_comp.c,
/// `COMPST_UPDATE_COMP`). The responder must not send such an acknowledgement.
#[test]
fn packets_that_were_kept_are_acknowledged_when_rxe_has_sent_them_again() {
    let mut pair = sender(1, Options { hold: 255, ..Options::default() });
    let (mut thirds, mut lasts) = (0, 0);
    pair.links[0].rule(move |frame| {
        let psn = parsed(frame).head.psn.since(Psn::new(Options::default().psns[0]));
        thirds += u32::from(psn == 3);
        lasts += u32::from(psn == 19);
        // The first transmission of packet 3 is lost, and the second transmission of the last
        // packet.
        let lost = (psn == 3 && thirds == 1) || (psn == 19 && lasts == 2);
        if lost { Fate::Drop } else { Fate::Pass }
    });
    pair.hosts[0].post(work(1, Work::Write(remote(256 << 10), None), 20 << 10), BASE);
    // At first, all packets leave at once. Packets that are sent again leave in bursts of four.
    pair.step();
    pair.hosts[0].rxe.as_mut().expect("a requester like rxe's").burst = 4;
    pair.run([1, 0]);
    let outcomes: Vec<_> = pair.hosts[0].completions.iter().map(|done| done.outcome).collect();
    assert_eq!(outcomes, [Outcome::Success]);
}

/// The fence of an atomic that has to be sent again waits for the atomic itself.
#[test]
fn rxe_never_sends_a_fenced_atomic_again() {
    for fence in [false, true] {
        let mut pair = sender(1, Options::default());
        let mut first = true;
        pair.links[0].rule(
            move |_| {
                if std::mem::take(&mut first) { Fate::Drop } else { Fate::Pass }
            },
        );
        let atomic = work(1, Work::FetchAdd { word: remote(192 << 10), add: 1 }, 8);
        pair.hosts[0].post(WorkRequest { fence, ..atomic }, SINK);
        pair.run([1, 0]);
        assert_eq!(pair.hosts[0].completions.is_empty(), fence);
    }
}

/// Sends a SEND and a READ. At first, only one packet of the READ's answer arrives. Returns the
/// outcome of the READ when the rest arrives, with or without an old acknowledgement before it.
fn interrupted_read(late: bool) -> Outcome {
    let mut pair = sender(1, Options::default());
    let kept = Rc::new(RefCell::new(Vec::new()));
    let frames = Rc::clone(&kept);
    pair.links[1].rule(move |frame| {
        frames.borrow_mut().push(frame.to_vec());
        match parsed(frame).body {
            Body::Response(Response::Read(ReadPart::Middle | ReadPart::Last(_))) => Fate::Drop,
            _ => Fate::Pass,
        }
    });
    pair.hosts[1].post_receive();
    pair.hosts[0].post(work(1, Work::Send(SendEnd::Plain), 50), BASE);
    pair.hosts[0].post(work(2, Work::Read(remote(0)), 5000), SINK);
    pair.run_for(1_000_000);
    let frames = kept.take();
    pair.links[1].rule(|_| Fate::Pass);
    assert!(matches!(parsed(&frames[0]).body, Body::Response(Response::Acknowledge(_))));
    assert_eq!(frames.len(), 6, "an acknowledgement and five packets of an answer");
    let rest = if late { [&frames[..1], &frames[2..]].concat() } else { frames[2..].to_vec() };
    for frame in rest {
        pair.links[1].send(pair.now, &frame);
    }
    pair.run([2, 0]);
    pair.hosts[0].completions[1].outcome
}

/// This is why the responder sends no acknowledgement while it answers a READ.
#[test]
fn a_late_acknowledgement_within_a_read_ends_a_connection_of_rxe() {
    assert_eq!(interrupted_read(false), Outcome::Success);
    assert_eq!(interrupted_read(true), Outcome::BadResponse);
}
