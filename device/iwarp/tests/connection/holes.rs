//! TCP segments that are lost, duplicated or late: single ones, and at random.
//!
//! Shows: iwarp

use vrnic_iwarp::rdmap::work::{Outcome, Work};
use vrnic_iwarp::stream::{Config, Early};
use vrnic_iwarp::wire::ddp::{Stag, Tagged};
use vrnic_iwarp::wire::rdmap::SendKind;
use vrnic_simlink::{Fate, Faults};

use crate::host::ALL;
use crate::model::{self, Contents};
use crate::net::{Net, When};

const WRITTEN: usize = 0x2_0000;
const RECEIVED: usize = 0x1_0000;

fn at(to: usize) -> Tagged {
    Tagged { stag: ALL, to: to as u64 }
}

fn config() -> Config {
    let early = Early { by_crc: Some(0), ..Early::default() };
    Config { emss: 1460, early, ..Config::default() }
}

/// Sends a WRITE of 20,000 octets and a SEND of 100 octets while `fate` decides on frames. Checks
/// that all octets arrive, that the SEND is not complete before the WRITE is placed, and that
/// nothing changes memory afterwards. Returns the number of FPDUs that were placed early.
fn write_and_send(config: Config, fate: impl Fn(usize) -> Fate + 'static) -> u64 {
    const LEN: usize = 20_000;
    let mut net = Net::new(5, config);
    net.establish();
    net.rule(0, fate);
    net.hosts[1].end.receive(RECEIVED, 100);
    net.hosts[1].reuse(When::Received(1), RECEIVED..RECEIVED + 100);
    net.hosts[1].reuse(When::Received(1), WRITTEN..WRITTEN + LEN);
    net.hosts[0].end.post(Work::Write(at(WRITTEN)), 0, LEN as u32);
    net.hosts[0].end.post(Work::Send(SendKind::default()), 0x8000, 100);
    net.run_until(|net| net.hosts[0].end.completions.len() == 2);
    // The frames that are still on their way arrive, too.
    while net.links.iter().any(|link| link.next_arrival().is_some()) {
        net.step();
    }
    net.check_reuses();
    let sent = &net.hosts[0].end.ram.octets;
    let found = |nth: usize| net.hosts[1].reuses[nth].found.as_deref().expect("it was received");
    assert_eq!(found(0), &sent[0x8000..0x8000 + 100]);
    assert_eq!(found(1), &sent[..LEN], "the WRITE was not placed when the SEND was complete");
    net.placed_ahead(1)
}

fn drops(lost: &'static [usize]) -> impl Fn(usize) -> Fate {
    |nth| if lost.contains(&nth) { Fate::Drop } else { Fate::Pass }
}

#[test]
fn nothing_is_ahead_in_order() {
    assert_eq!(write_and_send(config(), |_| Fate::Pass), 0);
}

#[test]
fn one_hole() {
    // Of 15 segments, one was lost and one came in order before it.
    assert!(write_and_send(config(), drops(&[2])) >= 8);
}

#[test]
fn two_holes_are_closed_in_either_order() {
    for late in [[60_000, 20_000], [20_000, 60_000]] {
        let fate = move |nth| match nth {
            2 => Fate::Delay(late[0]),
            4 => Fate::Delay(late[1]),
            _ => Fate::Pass,
        };
        assert!(write_and_send(config(), fate) >= 6, "{late:?}");
    }
    assert!(write_and_send(config(), drops(&[3, 6, 7])) >= 6);
}

#[test]
fn a_full_table_stores_the_rest() {
    let early = Early { fpdus: 3, by_crc: Some(0) };
    assert_eq!(write_and_send(Config { early, ..config() }, drops(&[2])), 3);
    let early = Early { fpdus: 0, by_crc: Some(0) };
    assert_eq!(write_and_send(Config { early, ..config() }, drops(&[2])), 0);
}

#[test]
fn duplicates_of_what_was_placed_ahead_change_nothing() {
    let fate = |nth| match nth {
        2 => Fate::Drop,
        nth if nth % 2 == 0 => Fate::Duplicate,
        _ => Fate::Pass,
    };
    assert!(write_and_send(config(), fate) >= 8);
    // The retransmission arrives before the delayed first copy.
    let fate = |nth| if nth == 3 { Fate::Delay(40_000_000) } else { Fate::Pass };
    assert!(write_and_send(config(), fate) >= 8);
}

#[test]
fn sequence_numbers_wrap_in_a_hole_and_behind_it() {
    // The numbers wrap in the third segment.
    for lost in 1..6 {
        let fate = move |nth| if nth == lost { Fate::Drop } else { Fate::Pass };
        assert!(write_and_send(config(), fate) >= 6, "{lost}");
    }
}

#[test]
fn fpdus_that_are_cut_are_stored() {
    assert_eq!(write_and_send(Config { emss: 4000, ..config() }, drops(&[2])), 0);
}

#[test]
fn without_crcs_markers_show_where_fpdus_start() {
    let mut config = config();
    config.wishes.crc = false;
    assert_eq!(write_and_send(config, drops(&[2])), 0, "nothing shows it");
    config.wishes.markers = true;
    assert!(write_and_send(config, drops(&[2])) >= 8);
    config.wishes.crc = true;
    config.early.by_crc = None;
    assert!(write_and_send(config, drops(&[2])) >= 8);
    config.wishes.markers = false;
    assert_eq!(write_and_send(config, drops(&[2])), 0, "CRCs are not trusted");
}

/// Sends messages into receives while a frame is lost. Returns the number of FPDUs that were placed
/// early.
fn sends(count: usize, len: usize, receives: usize, lost: usize) -> u64 {
    let mut net = Net::new(6, config());
    net.establish();
    net.rule(0, move |nth| if nth == lost { Fate::Drop } else { Fate::Pass });
    for nth in 0..count {
        let place = RECEIVED + nth * len;
        if nth < receives {
            net.hosts[1].end.receive(place, len);
        }
        net.hosts[1].reuse(When::Received(nth + 1), place..place + len);
        net.hosts[0].end.post(Work::Send(SendKind::default()), nth * len, len as u32);
    }
    net.run_until(|net| net.hosts[1].end.ram.received.len() >= receives.min(count));
    for nth in receives..count {
        net.hosts[1].end.receive(RECEIVED + nth * len, len);
    }
    net.hosts[1].resume(net.now);
    net.run_until(|net| net.hosts[0].end.completions.len() == count);
    net.check_reuses();
    let places = net.hosts[1].end.ram.received.iter().map(|done| done.at);
    assert!(places.eq((0..count).map(|nth| RECEIVED + nth * len)), "receives in their order");
    for (nth, reuse) in net.hosts[1].reuses.iter().enumerate() {
        let sent = &net.hosts[0].end.ram.octets[nth * len..][..len];
        assert_eq!(reuse.found.as_deref(), Some(sent), "SEND {nth}");
    }
    net.placed_ahead(1)
}

#[test]
fn a_boundary_inside_a_hole() {
    // A segment contains two SENDs. The gap contains the end of one receive and the beginning of
    // another.
    assert!(sends(12, 690, 12, 1) >= 8);
    // A SEND has two segments. The gap is the second half of a SEND, or the first.
    assert!(sends(8, 2000, 8, 2) >= 8);
    assert!(sends(8, 2000, 8, 3) >= 8);
}

#[test]
fn sends_are_placed_ahead_only_into_receives_that_are_there() {
    // A segment contains 31 SENDs: after a lost segment, all SENDs are more than 16 ahead.
    assert_eq!(sends(100, 20, 100, 1), 0);
    // Only the three SENDs that were lost have receives.
    assert_eq!(sends(12, 690, 2, 1), 0);
}

#[test]
fn responses_of_reads_are_placed_ahead() {
    let mut net = Net::new(7, config());
    net.establish();
    net.rule(1, drops(&[2, 7]));
    for nth in 0..4 {
        let (from, to) = (0x2_0000 + nth * 5000, 0x3_0000 + nth * 5000);
        let sink = Tagged { stag: Stag(nth as u32), to: u64::MAX - 1000 };
        let id = net.hosts[0].end.post(Work::Read { sink, source: at(from) }, to, 5000);
        net.hosts[0].reuse(When::Completed(id), to..to + 5000);
    }
    net.run_until(|net| net.hosts[0].end.completions.len() == 4);
    net.check_reuses();
    for (nth, reuse) in net.hosts[0].reuses.iter().enumerate() {
        let source = &net.hosts[1].end.ram.octets[0x2_0000 + nth * 5000..][..5000];
        assert_eq!(reuse.found.as_deref(), Some(source), "READ {nth}");
    }
    assert!(net.placed_ahead(0) >= 6, "{}", net.placed_ahead(0));
}

/// A message of a random schedule, with its offset in each of the areas.
#[derive(Clone, Copy, Debug)]
struct Planned {
    kind: u8,
    offset: usize,
    len: usize,
}

const SOURCE: usize = 0x8000;
const SUNK: usize = 0x3_0000;

/// Posts a schedule at an end: WRITEs, SENDs and READs.
fn post(net: &mut Net, own: usize, schedule: &[Planned]) {
    let (mut sends, mut writes) = (0, Vec::new());
    for Planned { kind, offset, len } in schedule.iter().copied() {
        let (area, work) = match kind {
            0 => (0, Work::Write(at(WRITTEN + offset))),
            1 => (0, Work::Send(SendKind::default())),
            _ => {
                let sink = Tagged { stag: Stag(offset as u32), to: 77 };
                (SUNK, Work::Read { sink, source: at(SOURCE + offset) })
            }
        };
        let id = net.hosts[own].end.post(work, area + offset, len as u32);
        net.hosts[own].reuse(When::Completed(id), area + offset..area + offset + len);
        let peer = &mut net.hosts[1 - own];
        match kind {
            0 => writes.push(WRITTEN + offset..WRITTEN + offset + len),
            1 => {
                sends += 1;
                peer.end.receive(RECEIVED + offset, len);
                peer.reuse(When::Received(sends), RECEIVED + offset..RECEIVED + offset + len);
                for range in writes.drain(..) {
                    peer.reuse(When::Received(sends), range);
                }
            }
            _ => {}
        }
    }
}

/// Compares the memory of an end with the contents of its peer's stream.
fn compare(net: &Net, own: usize, contents: &Contents, schedules: [&[Planned]; 2]) {
    let found = |from: usize| {
        let reuse = net.hosts[own].reuses.iter().find(|reuse| reuse.range.start == from);
        reuse.and_then(|reuse| reuse.found.clone())
    };
    let mut sends = contents.sends.iter();
    for Planned { kind, offset, len } in schedules[1 - own] {
        match kind {
            0 if *len > 0 => {
                let range = (WRITTEN + offset) as u64..(WRITTEN + offset + len) as u64;
                let written: Vec<u8> = contents.written.range(range).map(|(_, o)| *o).collect();
                // The memory of a WRITE is not used again if no SEND follows the WRITE.
                let now = &net.hosts[own].end.ram.octets[WRITTEN + offset..][..*len];
                assert_eq!(found(WRITTEN + offset).unwrap_or_else(|| now.to_vec()), written);
            }
            1 => assert_eq!(found(RECEIVED + offset).as_ref(), sends.next(), "at {offset}"),
            _ => {}
        }
    }
    for Planned { offset, .. } in schedules[own].iter().filter(|p| p.kind == 2 && p.len > 0) {
        let response = contents.responses.get(&(*offset as u32));
        assert_eq!(found(SUNK + offset).as_ref(), response, "READ at {offset}");
    }
    let outcomes: Vec<_> =
        (0..schedules[own].len() as u64).map(|id| (id, Outcome::Success)).collect();
    assert_eq!(net.hosts[own].end.outcomes(), outcomes);
    let places = schedules[1 - own].iter().filter(|planned| planned.kind == 1);
    let places = places.map(|planned| (RECEIVED + planned.offset, planned.len));
    assert!(net.hosts[own].end.ram.received.iter().map(|done| (done.at, done.len)).eq(places));
}

/// Runs a random schedule over a link with random faults. Returns the number of FPDUs that were
/// placed early.
fn random(seed: u64) -> u64 {
    let mut rng = fastrand::Rng::with_seed(seed);
    let emss = if rng.bool() { 1460 } else { rng.u32(200..4000) };
    let mut config = Config { emss, ..Config::default() };
    let fpdus = if rng.bool() { 256 } else { rng.usize(..8) };
    config.early = Early { fpdus, by_crc: Some(0) };
    config.wishes.markers = rng.bool();
    config.wishes.crc = rng.u8(..4) > 0;
    let mut net = Net::new(seed, config);
    for link in &mut net.links {
        let chance = |rng: &mut fastrand::Rng| rng.u32(..100_000);
        let (drop, delay) = (chance(&mut rng), chance(&mut rng));
        link.faults(Faults { drop, delay, duplicate: 30_000, ..Faults::default() });
    }
    let schedules = [0, 1].map(|_| {
        let mut offset = 0;
        let plan = std::iter::repeat_with(|| {
            let len = if rng.u8(..4) == 0 { rng.usize(..40) } else { rng.usize(..2700) };
            // Messages are named by their offsets, so the offsets differ.
            offset += len + 1;
            Planned { kind: rng.u8(..3), offset: offset - len - 1, len }
        });
        plan.take(12).collect::<Vec<_>>()
    });
    for (own, schedule) in schedules.iter().enumerate() {
        post(&mut net, own, schedule);
    }
    net.run_until(|net| net.hosts.iter().all(|host| host.end.completions.len() == 12));
    while net.links.iter().any(|link| link.next_arrival().is_some()) {
        net.step();
    }
    net.check_reuses();
    for own in 0..2 {
        let peer = &net.hosts[1 - own];
        // The responder's reply is a part of its stream. The initiator's request is sent
        // separately.
        let agreement = net.hosts[own].end.stream.agreement().expect("an agreement");
        let first = 20 + usize::from(u16::from_be_bytes([peer.shadow[18], peer.shadow[19]]));
        let stream = &peer.shadow[first..];
        let contents = model::decode(stream, agreement.markers_received, agreement.crc);
        compare(&net, own, &contents, [&schedules[0], &schedules[1]]);
    }
    net.placed_ahead(0) + net.placed_ahead(1)
}

/// Shows: iwarp: memory, completions and their order are those of the stream in order
#[test]
fn over_a_bad_link_each_stream_has_the_effects_of_one_in_order() {
    let placed: u64 = (0..1000).map(random).sum();
    assert!(placed > 2000, "only {placed} FPDUs were placed ahead");
}
