//! Rules decide the same in each run, whatever else is sent; texts and rules agree.
//!
//! Shows: faults

use std::net::Ipv4Addr;
use std::time::Duration;

use proptest::prelude::*;
use vrnic_abi::{admin, cq, eq, sq};
use vrnic_faults::entry::MAX_QPS;
use vrnic_faults::set::MAX_RULES;
use vrnic_faults::text::ParseError;
use vrnic_faults::{
    Action, Chance, Crc, Fate, Faults, Filter, Opcode, Pattern, Rule, RuleId, Rules, Site, Subject,
    corrupt,
};
use vrnic_iwarp::wire::rdmap;
use vrnic_packet::Nanos;
use vrnic_packet::ip::{self, Addresses};
use vrnic_packet::{Ethernet, MacAddr};
use vrnic_roce::wire::build::FRAME_MAX;
use vrnic_roce::wire::opcode::{Opcode as RoceOpcode, Transport};
use vrnic_roce::wire::{Body, Frame, Head, Layout, Part, Path, Qpn, Request, SendEnd};
use vrnic_roce::{Discard, Psn};

const NOW: Nanos = Nanos(1000);

fn rule(text: &str) -> Rule {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn packet(qp: u32, psn: u32) -> Subject<'static> {
    let (opcode, psn) = (Some(roce(0x0a)), Some(Psn::new(psn)));
    Subject { qp: Qpn::new(qp), opcode, psn, ..Subject::new(Site::Packet, "a") }
}

fn roce(number: u8) -> Opcode {
    Opcode::Roce(RoceOpcode::from_number(number).expect("an opcode"))
}

/// Returns the fates of packets with numbers from 0 on.
fn fates(faults: &mut Faults, qp: u32, count: u32) -> Vec<Fate> {
    (0..count).map(|psn| faults.decide(&packet(qp, psn), NOW)).collect()
}

fn with(texts: &[&str]) -> Faults {
    let mut faults = Faults::default();
    for text in texts {
        faults.add(rule(text), NOW).expect("room");
    }
    faults
}

#[test]
fn a_run_is_repeated_whatever_other_qps_send() {
    let texts = ["drop prob=0.1 seed=7", "corrupt prob=0.2 seed=8"];
    let alone = fates(&mut with(&texts), 17, 1000);
    let mut mixed = with(&texts);
    let mut again = Vec::new();
    for psn in 0..1000 {
        for other in 0..psn % 4 {
            mixed.decide(&packet(100 + other, psn), NOW);
        }
        again.push(mixed.decide(&packet(17, psn), NOW));
    }
    assert_eq!(alone, again);
    assert_ne!(alone, fates(&mut with(&texts), 18, 1000), "another QP");
    assert_ne!(alone, fates(&mut with(&["drop prob=0.1 seed=8", texts[1]]), 17, 1000));
    let drops = alone.iter().filter(|fate| **fate == Fate::Drop).count();
    let corrupt = alone.iter().filter(|fate| matches!(fate, Fate::Corrupt { .. })).count();
    assert!((70..130).contains(&drops) && (140..220).contains(&corrupt), "{drops}, {corrupt}");
}

#[test]
fn filters_select_by_each_field() {
    let hit = |text: &str, subject: Subject<'_>| with(&[text]).decide(&subject, NOW) == Fate::Drop;
    let subject = packet(17, 0x12);
    let segment = Subject { opcode: Some(Opcode::of_segment(&[])), psn: None, ..subject };
    assert!(hit("drop", subject));
    assert!(hit("drop function=a qp=0x11 opcode=rc-write-only psn=18 nth=1", subject));
    assert!(hit("drop opcode=0x0a", subject));
    assert!(!hit("drop function=b", subject) && !hit("drop qp=18", subject));
    assert!(!hit("drop psn=0x13", subject) && !hit("drop nth=2", subject));
    assert!(!hit("drop opcode=rc-write-only", Subject { opcode: Some(roce(0x11)), ..subject }));
    assert!(hit("drop opcode=tcp-empty qp=17", segment) && !hit("drop opcode=tcp-data", segment));
    assert!(!hit("drop psn=18", segment) && !hit("drop opcode=tcp-empty", subject));
    assert!(!hit("drop prob=0", subject));
}

#[test]
fn limits_end_a_rule() {
    let mut faults = with(&["drop times=3 qp=17", "duplicate nth=5"]);
    let expected = [Fate::Drop, Fate::Drop, Fate::Drop, Fate::Pass, Fate::Duplicate, Fate::Pass];
    assert_eq!(fates(&mut faults, 17, 6), expected);
    assert_eq!(fates(&mut faults, 18, 5)[4], Fate::Duplicate, "the fifth of each QP");
    let listed: Vec<_> = faults.list(NOW).map(|rule| (rule.seen, rule.hit, rule.is_over)).collect();
    assert_eq!(listed, [(6, 3, true), (11, 2, false)]);

    let mut faults = with(&["delay by=2ms for=5us"]);
    assert_eq!(fates(&mut faults, 1, 1), [Fate::Delay(Duration::from_millis(2))]);
    let late = NOW.plus(Duration::from_micros(5));
    assert_eq!(faults.decide(&packet(1, 1), late), Fate::Pass);
    assert!(faults.list(late).all(|rule| rule.is_over && rule.seen == 2 && rule.hit == 1));
}

#[test]
fn a_rule_begins_later_and_hits_each_nth() {
    let mut faults = with(&["drop every=3 after=1us"]);
    assert_eq!(fates(&mut faults, 17, 3), [Fate::Pass; 3]);
    let later = NOW.plus(Duration::from_micros(1));
    let fates: Vec<_> = (0..7).map(|psn| faults.decide(&packet(17, psn), later)).collect();
    let hits: Vec<_> = (1..).zip(fates).filter(|(_, fate)| *fate == Fate::Drop).collect();
    assert_eq!(hits, [(3, Fate::Drop), (6, Fate::Drop)], "counted from the begin on");
    let listed: Vec<_> =
        faults.list(later).map(|rule| (rule.seen, rule.armed, rule.last)).collect();
    assert_eq!(listed, [(7, NOW, Some(later))]);
}

#[test]
fn a_rule_looks_only_at_its_place() {
    let texts = ["fail-qp", "drop-message", "rnr", "fill-cq", "drop-event", "drop-interrupt"];
    let texts = [&texts[..], &["drop-command", "fail-completion status=rem-op-err"]].concat();
    for text in texts {
        let own = rule(text).action.site();
        let sites = [Site::Packet, Site::Request, Site::Message, Site::Receive, Site::Completion];
        let others = [Site::Entry, Site::Event, Site::Interrupt, Site::Command, Site::Turn];
        for site in sites.into_iter().chain(others) {
            let hit = with(&[text]).hit(&Subject::new(site, "a"), NOW);
            assert_eq!(hit.is_some(), site == own, "{text} at {site:?}");
        }
    }
    let rules = Rules::default();
    rules.add(rule("fail-qp"), NOW).expect("room");
    assert!(rules.look_at(Site::Request) && !rules.look_at(Site::Packet));
    rules.clear();
    assert!(!rules.any());
}

#[test]
fn states_come_and_go_by_a_pattern() {
    let mut faults = with(&["port-down function=a lasts=10us pause=30us times=2 after=5us"]);
    let downs = |faults: &mut Faults, function: &str| -> Vec<u64> {
        let at = |micros| NOW.plus(Duration::from_micros(micros));
        (0..200).filter(|micros| faults.state(function, at(*micros)).down).collect()
    };
    assert_eq!(downs(&mut faults, "b"), [] as [u64; 0]);
    let expected: Vec<_> = (5..15).chain(45..55).collect();
    assert_eq!(downs(&mut faults, "a"), expected);
    let listed: Vec<_> = faults.list(NOW).map(|rule| (rule.hit, rule.is_over)).collect();
    assert_eq!(listed, [(2, true)]);
    let mut faults = with(&["lower-mtu bytes=512 for=5us", "remove-gid index=3", "fail-device"]);
    let state = faults.state("a", NOW);
    assert_eq!((state.mtu, state.gids, state.fails), (Some(2), vec![3], true));
    let state = faults.state("a", NOW.plus(Duration::from_micros(5)));
    assert_eq!((state.mtu, state.fails), (None, false), "a device fails once");
}

#[test]
fn rules_that_contradict_each_other_are_refused() {
    let mut faults = with(&["lower-mtu bytes=512 function=a"]);
    faults.add(rule("lower-mtu bytes=1024 function=b"), NOW).expect("another port");
    faults.add(rule("lower-mtu bytes=512"), NOW).expect_err("other than that of b");
    let error = faults.add(rule("lower-mtu bytes=256 function=a"), NOW).expect_err("two sizes");
    assert!(error.to_string().starts_with("rule 1 contradicts it"), "{error}");
    assert_eq!(faults.list(NOW).count(), 2);
}

#[test]
fn rules_are_numbered_and_bounded() {
    let mut faults = Faults::default();
    assert!(faults.is_empty());
    for number in 1..=MAX_RULES {
        assert_eq!(faults.add(rule("drop prob=0"), NOW), Ok(RuleId::new(number as u32)));
    }
    let error = faults.add(rule("drop"), NOW).expect_err("too many");
    assert_eq!(error.to_string(), "there are 64 rules already; clear some first");
    assert!(faults.remove(None, RuleId::new(3)) && !faults.remove(None, RuleId::new(3)));
    assert_eq!(faults.add(rule("drop"), NOW), Ok(RuleId::new(65)));
    assert_eq!(faults.list(NOW).last().map(|last| last.rule.to_string()).as_deref(), Some("drop"));
    faults.clear();
    assert_eq!(faults.add(rule("reorder behind=3"), NOW), Ok(RuleId::new(1)));
    assert_eq!(fates(&mut faults, 1, 1), [Fate::Reorder(3)]);
}

#[test]
fn memory_for_qps_is_bounded() {
    let mut faults = with(&["drop"]);
    for qp in 0..MAX_QPS as u32 {
        assert_eq!(faults.decide(&packet(qp, 0), NOW), Fate::Drop);
    }
    assert_eq!(faults.decide(&packet(MAX_QPS as u32, 0), NOW), Fate::Pass);
    assert_eq!(faults.decide(&packet(5, 0), NOW), Fate::Drop, "one that is known");
}

/// Checks that each text is refused with an error that begins with the text next to it.
fn refused(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        let error: ParseError = text.parse::<Rule>().expect_err(text);
        assert!(error.to_string().starts_with(expected), "{text}: {error}");
    }
}

#[test]
fn errors_of_rules_for_packets_say_what_is_wrong() {
    refused(&[
        (
            "",
            "a rule must begin with an action: drop, delay, duplicate, reorder, corrupt, hold-request",
        ),
        (
            "lose qp=1",
            "\"lose\" is not an action: use drop, delay, duplicate, reorder, corrupt, hold-request, ",
        ),
        ("drop 17", "\"17\" is not of the form name=value"),
        ("drop qp=1 qp=2", "qp is given twice"),
        ("drop qp=0x1000000", "qp=0x1000000 is not right: a number of 24 bits is expected"),
        ("drop qp=-1", "qp=-1 is not right"),
        ("drop psn=x", "psn=x is not right"),
        ("drop opcode=uc-read-request", "opcode=uc-read-request is not right: a name such as"),
        ("drop opcode=0x15", "opcode=0x15 is not right"),
        ("drop prob=1.5", "prob=1.5 is not right: a number from 0 to 1"),
        ("drop prob=.", "prob=. is not right"),
        ("drop prob=", "prob= is not right"),
        ("drop prob=0.0000000001", "prob=0.0000000001 is not right"),
        ("drop nth=0", "nth=0 is not right: a number from 1 on is expected"),
        ("drop times=0", "times=0 is not right"),
        ("drop for=5", "for=5 is not right: a time is expected, such as 20us, 5ms or 3s"),
        ("drop for=99999999999s", "for=99999999999s is not right"),
        ("drop function=", "function= is not right: a name is expected"),
        (
            "drop by=5ms",
            "\"by\" is not a field of drop: use function, qp, opcode, psn, nth, every, ",
        ),
        ("corrupt crc=maybe", "crc=maybe is not right: right, checksum or wrong is expected"),
        ("reorder behind=0", "behind=0 is not right"),
        ("delay", "delay needs a time, such as by=2ms"),
        ("drop nth=2 every=3", "nth and every contradict each other"),
        ("drop every=0", "every=0 is not right"),
    ]);
}

#[test]
fn errors_of_rules_for_adapters_say_what_is_wrong() {
    refused(&[
        ("fail-request", "fail-request needs a status, such as status=retry-exc-err"),
        ("fail-request status=success", "status=success is not right: the status of a failed"),
        ("fail-command status=ok", "status=ok is not right: the status of a failed command"),
        ("fail-completion status=fly", "status=fly is not right"),
        ("fail-qp psn=3", "\"psn\" is not a field of fail-qp: use function, qp, opcode, nth"),
        ("fail-qp opcode=rc-write-only", "opcode=rc-write-only is not right: the name of a work"),
        ("drop-command qp=3", "\"qp\" is not a field of drop-command"),
        ("drop-command command=fly", "command=fly is not right: the name of an admin command"),
        ("drop-event event=fly", "event=fly is not right: the name of an event"),
        ("slow-memory", "slow-memory needs bytes per second, such as rate=20M"),
        ("slow-memory rate=0", "rate=0 is not right: bytes per second are expected"),
        ("slow-memory rate=99999999999G", "rate=99999999999G is not right"),
        ("pause-worker", "pause-worker needs a time, such as by=20ms"),
        ("pause-worker by=5s", "by=5s is not right: a time up to 4s is expected"),
        ("port-down nth=2", "\"nth\" is not a field of port-down: use function, times, after, for"),
        ("port-down pause=1s", "pause needs the time for which the port is down"),
        ("port-down lasts=0s", "lasts=0s is not right"),
        ("lower-mtu", "lower-mtu needs a size, such as bytes=1024"),
        ("lower-mtu bytes=1500", "bytes=1500 is not right: 256, 512, 1024, 2048 or 4096"),
        ("remove-gid", "remove-gid needs an entry, such as index=1"),
        ("remove-gid index=70000", "index=70000 is not right"),
    ]);
}

fn frame(v6: bool, payload: usize) -> Vec<u8> {
    let addresses = if v6 {
        Addresses::V6 { source: 1_u128.into(), destination: 2_u128.into() }
    } else {
        Addresses::V4 { source: Ipv4Addr::LOCALHOST, destination: Ipv4Addr::BROADCAST }
    };
    let network = ip::Header { addresses, traffic_class: 0, hop_limit: 64, flow_label: 0 };
    let ethernet =
        Ethernet { destination: MacAddr([2; 6]), source: MacAddr([4; 6]), vlan: v6.then_some(5) };
    let path = Path { ethernet, network, source_port: 0xc000 };
    let head = Head::new(Transport::Rc, Qpn::new(17), Psn::new(5));
    let body = Body::Request(Request::Send(Part::Only((), SendEnd::Plain)));
    let mut frame = vec![0; FRAME_MAX];
    let layout = Layout::write(&mut frame, &path, &head, &body, payload).expect("room");
    frame[layout.payload()].fill(7);
    let end = layout.seal(&mut frame).expect("room");
    frame.truncate(end);
    frame
}

fn any_time() -> impl Strategy<Value = Duration> + Clone {
    (0..u64::MAX / 2).prop_map(Duration::from_nanos)
}

fn any_pattern() -> impl Strategy<Value = Pattern> {
    let time = (1..u64::MAX / 4).prop_map(Duration::from_nanos);
    let both = (time.clone(), proptest::option::of(time));
    let some = both.prop_map(|(lasts, pause)| Pattern { lasts: Some(lasts), pause });
    prop_oneof![Just(Pattern::default()), some]
}

fn any_action() -> impl Strategy<Value = Action> {
    let time = any_time();
    let short = (0..4_000_000_000_u64).prop_map(Duration::from_nanos);
    let status = (1..22_u8).prop_filter_map("unknown", cq::Status::from_raw);
    let refusal = (1..11_u16).prop_filter_map("unknown", admin::Status::from_raw);
    let packets = prop_oneof![
        Just(Action::Drop),
        Just(Action::Duplicate),
        time.clone().prop_map(Action::Delay),
        (1..u32::MAX).prop_map(Action::Reorder),
        Just(Action::Corrupt(Crc::Right)),
        Just(Action::Corrupt(Crc::Checksum)),
        Just(Action::Corrupt(Crc::Wrong)),
    ];
    let requests = prop_oneof![
        time.clone().prop_map(Action::HoldRequest),
        (1..u64::MAX).prop_map(Action::SlowMemory),
        status.clone().prop_map(Action::FailRequest),
        Just(Action::FailQp),
        Just(Action::DropMessage),
        Just(Action::Disorder),
        Just(Action::Rnr),
        status.prop_map(Action::FailCompletion),
        Just(Action::FillCq),
        short.prop_map(Action::PauseWorker),
    ];
    let others = prop_oneof![
        Just(Action::DropEvent),
        time.clone().prop_map(Action::DelayEvent),
        Just(Action::DropInterrupt),
        time.clone().prop_map(Action::DelayInterrupt),
        refusal.prop_map(Action::FailCommand),
        time.prop_map(Action::DelayCommand),
        Just(Action::DropCommand),
        any_pattern().prop_map(Action::PortDown),
        (1..6_u8).prop_map(Action::LowerMtu),
        any::<u16>().prop_map(Action::RemoveGid),
        proptest::option::of((1..u64::MAX / 4).prop_map(Duration::from_nanos))
            .prop_map(|pause| Action::FailDevice(Pattern { lasts: None, pause })),
    ];
    prop_oneof![packets, requests, others]
}

/// Returns an opcode that rules of this place can name.
fn any_opcode(site: Site) -> BoxedStrategy<Option<Opcode>> {
    let numbers = any::<u8>();
    let named = |of: fn(u8) -> Option<Opcode>| {
        proptest::option::of(numbers.prop_filter_map("unknown", of)).boxed()
    };
    match site {
        Site::Packet => {
            let roce = |number| RoceOpcode::from_number(number).map(Opcode::Roce);
            let fpdu = |number| rdmap::Opcode::of(number).map(Opcode::Fpdu);
            let opcode = prop_oneof![
                any::<u8>().prop_filter_map("unknown", roce),
                (0..12_u8).prop_filter_map("unknown", fpdu),
                Just(Opcode::TcpData),
                Just(Opcode::TcpEmpty),
            ];
            proptest::option::of(opcode).boxed()
        }
        Site::Request | Site::Message | Site::Copy => {
            named(|n| sq::Opcode::from_raw(n).map(Opcode::Request))
        }
        Site::Completion => named(|n| cq::Opcode::from_raw(n).map(Opcode::Completion)),
        Site::Event => named(|n| eq::Kind::from_raw(n).map(Opcode::Event)),
        Site::Command => named(|n| admin::Opcode::from_raw(n.into()).map(Opcode::Command)),
        _ => Just(None).boxed(),
    }
}

fn any_filter(site: Site) -> impl Strategy<Value = Filter> {
    let option = proptest::option::of::<BoxedStrategy<u64>>;
    let fields = (
        proptest::option::of("[a-z][a-z0-9-]{0,8}"),
        [option((0..1_u64 << 24).boxed()), option((0..1_u64 << 24).boxed())],
        any_opcode(site),
        proptest::option::of(any::<u32>()),
        option((1..u64::MAX).boxed()),
        any::<bool>(),
        proptest::option::of(any::<bool>()),
    );
    fields.prop_map(move |(function, [qp, psn], opcode, number, count, each, relaxed)| {
        let has_qp = !matches!(site, Site::Interrupt | Site::Command | Site::State);
        let has_number = matches!(site, Site::Entry | Site::Event | Site::Interrupt);
        let count = count.filter(|_| site != Site::State);
        Filter {
            function,
            qp: qp.filter(|_| has_qp).map(|number| Qpn::new(number as u32)),
            opcode,
            psn: psn.filter(|_| site == Site::Packet).map(|number| Psn::new(number as u32)),
            relaxed: relaxed.filter(|_| site == Site::Copy),
            number: number.filter(|_| has_number),
            nth: count.filter(|_| !each),
            every: count.filter(|_| each),
        }
    })
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let chance = prop_oneof![Just(Chance::ALWAYS), any::<u32>().prop_map(Chance::from_parts)];
    let time = || proptest::option::of(any_time());
    let limits = (proptest::option::of(1..u64::MAX), time(), time());
    let parts = (any_action(), chance, any::<u64>(), limits);
    parts.prop_flat_map(|(action, chance, seed, (times, after, lifetime))| {
        let counts = action.site() != Site::State;
        let (chance, seed) = if counts { (chance, seed) } else { (Chance::ALWAYS, 0) };
        any_filter(action.site()).prop_map(move |filter| Rule {
            action,
            filter,
            chance,
            seed,
            times,
            after,
            lifetime,
        })
    })
}

proptest! {
    #[test]
    fn a_rule_is_read_as_it_is_written(rule in any_rule()) {
        prop_assert_eq!(rule.to_string().parse::<Rule>(), Ok(rule));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,40}", fields in "(drop|delay|corrupt|fail-request|port-down|slow-memory|fail-command)( (qp|prob|by|for|nth|crc|status|lasts|rate|after)=[0-9.a-zM]{0,12}){0,4}") {
        let _results = (text.parse::<Rule>(), fields.parse::<Rule>());
    }

    #[test]
    fn decisions_of_a_rule_are_a_function_of_seed_qp_and_count(
        seed: u64,
        parts in 0..=1_000_000_000_u32,
        qps in proptest::collection::vec(0..4_u32, 1..200),
    ) {
        let rule = Rule { seed, chance: Chance::from_parts(parts), ..rule("corrupt") };
        let mut all = Faults::default();
        all.add(rule.clone(), NOW).expect("room");
        let mixed: Vec<_> = qps.iter().map(|qp| (*qp, all.decide(&packet(*qp, 0), NOW))).collect();
        for qp in 0..4 {
            let of_qp = mixed.iter().filter(|(of, _)| *of == qp).map(|(_, fate)| *fate);
            let of_qp: Vec<_> = of_qp.collect();
            let mut alone = Faults::default();
            alone.add(rule.clone(), NOW).expect("room");
            prop_assert_eq!(&of_qp, &fates(&mut alone, qp, of_qp.len() as u32));
        }
    }

    #[test]
    fn a_corrupt_frame_has_the_crc_that_was_asked_for(v6: bool, payload in 0..2000_usize, random: u64) {
        let original = frame(v6, payload);
        let mut wrong = original.clone();
        prop_assert!(corrupt(&mut wrong, Crc::Wrong, random));
        let parsed = Frame::parse(&wrong).expect("headers").expect("RoCE");
        prop_assert_eq!(parsed.packet(), Err(Discard::Icrc));
        let mut right = original.clone();
        prop_assert!(corrupt(&mut right, Crc::Right, random));
        let parsed = Frame::parse(&right).expect("headers").expect("RoCE");
        prop_assert_ne!(parsed.packet().err(), Some(Discard::Icrc));
        let flipped = original.iter().zip(&right).map(|(a, b)| (a ^ b).count_ones());
        let end = original.len() - 4;
        prop_assert_eq!(flipped.take(end).sum::<u32>(), 1);
    }

    #[test]
    fn other_frames_are_not_changed(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), random: u64) {
        let before = bytes.clone();
        if !corrupt(&mut bytes, Crc::Wrong, random) {
            prop_assert_eq!(bytes, before);
        }
    }
}
