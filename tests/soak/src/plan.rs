//! The plan: what the guests do in each round. A seed and the number of a round determine it.

use std::fmt;

use fastrand::Rng;
use vrnic_qemu::traffic::perftest::SET;

/// Number of guests. The first half belongs to the first daemon.
pub(crate) const GUESTS: usize = 4;
/// Seconds that the actions of a side of a round take on two processors of 2.6 GHz, at most. A
/// round must end within a minute, because the invariants are checked after it.
const BUDGET: u32 = 30;

/// Groups of vrnic-verify that need neither much memory nor long.
const GROUPS: [&str; 12] = [
    "segments",
    "inline",
    "order",
    "credits",
    "srq",
    "loopback",
    "atomics",
    "events",
    "xrc",
    "datagrams",
    "multicast",
    "async_events",
];
/// Groups that expect that a queue pair learns at once that its peer has failed. Over packets it
/// does so by its next request.
const LOCAL_GROUPS: [&str; 4] = ["local_errors", "remote_errors", "flush", "windows"];

/// Rules under which a program over a reliable connection must still succeed. Those in the first
/// list look at packets, so the guests must have different daemons.
const PACKETS: [&str; 6] = [
    "drop prob=0.01",
    "delay by=2ms every=50",
    "duplicate every=10",
    "reorder every=20",
    "corrupt every=100",
    "disorder",
];
const ANYWHERE: [&str; 7] = [
    "hold-request by=5ms every=20",
    "slow-memory rate=20M",
    "rnr every=50",
    "delay-event by=2ms every=10",
    "delay-interrupt by=2ms every=10",
    "pause-worker by=200ms every=500",
    "port-down lasts=200ms pause=2s times=3",
];
const COPIES: [&str; 2] = ["drop-message every=200", "disorder"];

/// Rules under which a transfer must fail.
const FATAL: [&str; 4] = [
    "fail-request status=retry-exc-err nth=500",
    "fail-qp nth=500",
    "fail-completion status=rem-op-err opcode=write nth=500",
    "fail-device",
];

/// Programs that connect by the connection manager: the server, and the client, which is given the
/// server's address after its options.
const MANAGED: [(&str, &str); 4] = [
    ("rping -s -V -C 50", "rping -c -V -C 50 -a"),
    ("rping -s -V -C 10 -S 60000", "rping -c -V -C 10 -S 60000 -a"),
    ("ucmatose -c 4 -C 20", "ucmatose -c 4 -C 20 -s"),
    ("udaddy -c 2 -C 20", "udaddy -c 2 -C 20 -s"),
];

/// Something that two guests do. The client is the one that is harmed, where one is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A run of perftest, by its number in the set.
    Perftest(usize),
    /// A group of vrnic-verify.
    Verify { group: &'static str, sq: &'static str },
    /// vrnic-stress in the client.
    Stress(String),
    /// A program that connects by the connection manager.
    Managed(&'static str, &'static str),
    /// Messages that are checked, under a rule that they must survive.
    Rule(String),
    /// A transfer that fails because of a rule.
    Failure(String),
    /// Messages that are checked, while the client's link goes down and comes back.
    Flap,
    /// A transfer whose client, or whose server, is killed.
    Kill { server: bool },
    /// The client's driver is unloaded and loaded, while a program uses it or not.
    Reload { busy: bool },
    /// The client's adapter is removed and found again.
    Rescan,
    /// The client's adapter is reset under its driver.
    Reset,
    /// The client loses power during a transfer. It boots again, and its adapter is plugged in.
    PowerCut,
    /// The client's address moves to a bond and back.
    Bond,
}

/// The kinds of actions: how often each is chosen, in relation to the others.
const KINDS: [(Kind, u32); 13] = [
    (Kind::Perftest, 8),
    (Kind::Verify, 6),
    (Kind::Stress, 3),
    (Kind::Managed, 4),
    (Kind::Rule, 5),
    (Kind::Failure, 2),
    (Kind::Flap, 2),
    (Kind::Kill, 3),
    (Kind::Reload, 2),
    (Kind::Rescan, 1),
    (Kind::Reset, 1),
    (Kind::PowerCut, 1),
    (Kind::Bond, 1),
];

#[derive(Clone, Copy)]
enum Kind {
    Perftest,
    Verify,
    Stress,
    Managed,
    Rule,
    Failure,
    Flap,
    Kill,
    Reload,
    Rescan,
    Reset,
    PowerCut,
    Bond,
}

/// A side of a round: two guests, by their numbers, and what they do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Side {
    pub(crate) client: usize,
    pub(crate) server: usize,
    pub(crate) actions: Vec<Action>,
}

/// Returns what happens in a round: both sides at the same time.
pub(crate) fn round(seed: u64, number: u64) -> [Side; 2] {
    // Each round has random numbers of its own, so a run can begin at any of them.
    let mut rng = Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut guests: [usize; GUESTS] = std::array::from_fn(|guest| guest);
    rng.shuffle(&mut guests);
    let [a, b, c, d] = guests;
    [side(&mut rng, a, b), side(&mut rng, c, d)]
}

/// Returns rounds that use everything once, so that what is allocated at the first use is there.
pub(crate) fn first_uses() -> Vec<[Side; 2]> {
    let [(serve, call), ..] = MANAGED;
    let bandwidth = SET.iter().position(|case| case.tool == "ib_write_bw").unwrap_or_default();
    let actions = vec![Action::Managed(serve, call), Action::Perftest(bandwidth), Action::Bond];
    let side = |client, server| Side { client, server, actions: actions.clone() };
    vec![[side(0, 2), side(1, 3)], [side(2, 0), side(3, 1)]]
}

fn side(rng: &mut Rng, client: usize, server: usize) -> Side {
    let half = GUESTS / 2;
    let packets = (client < half) != (server < half);
    let mut actions = vec![action(rng, packets)];
    let mut seconds = actions[0].seconds();
    loop {
        let next = action(rng, packets);
        seconds += next.seconds();
        if seconds > BUDGET {
            return Side { client, server, actions };
        }
        actions.push(next);
    }
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.usize(..from.len())]
}

/// Chooses an action of guests that exchange packets, or copies.
fn action(rng: &mut Rng, packets: bool) -> Action {
    let all: u32 = KINDS.iter().map(|(_, weight)| weight).sum();
    let mut chance = rng.u32(..all);
    let kind = KINDS.iter().find(|(_, weight)| {
        let found = chance < *weight;
        chance = chance.saturating_sub(*weight);
        found
    });
    match kind.map_or(Kind::Perftest, |(kind, _)| *kind) {
        Kind::Perftest => Action::Perftest(rng.usize(..SET.len())),
        Kind::Verify => {
            let local = if packets { &[] } else { &LOCAL_GROUPS[..] };
            let group = pick(rng, &[&GROUPS, local].concat());
            Action::Verify { group, sq: pick(rng, &["guest", "device"]) }
        }
        Kind::Stress => Action::Stress(match rng.u32(..4) {
            0 => "fork".to_owned(),
            1 => "threads".to_owned(),
            _ => format!("kill --processes 30 --at-once 3 --seed {}", rng.u16(..)),
        }),
        Kind::Managed => {
            let (server, client) = pick(rng, &MANAGED);
            Action::Managed(server, client)
        }
        Kind::Rule => {
            let special = if packets { &PACKETS[..] } else { &COPIES[..] };
            let rule = pick(rng, &[special, &ANYWHERE].concat());
            let random = rule.contains("prob=") || rule.starts_with("disorder");
            let seed = if random { format!(" seed={}", rng.u16(..)) } else { String::new() };
            Action::Rule(format!("{rule}{seed}"))
        }
        Kind::Failure => Action::Failure(pick(rng, &FATAL).to_owned()),
        Kind::Flap => Action::Flap,
        Kind::Kill => Action::Kill { server: rng.bool() },
        Kind::Reload => Action::Reload { busy: rng.bool() },
        Kind::Rescan => Action::Rescan,
        Kind::Reset => Action::Reset,
        Kind::PowerCut => Action::PowerCut,
        Kind::Bond => Action::Bond,
    }
}

impl Action {
    /// Returns the seconds that it takes.
    fn seconds(&self) -> u32 {
        match self {
            Self::Perftest(_) | Self::Managed(..) | Self::Rule(_) | Self::Kill { .. } => 8,
            Self::Reload { .. } | Self::Rescan | Self::Reset | Self::Flap => 10,
            Self::Verify { .. } | Self::Stress(_) | Self::Bond | Self::Failure(_) => 15,
            Self::PowerCut => BUDGET,
        }
    }

    /// Returns whether the client has another device afterwards, whose counters begin at zero.
    pub(crate) fn renews(&self) -> bool {
        match self {
            Self::Reload { .. } | Self::Rescan | Self::Reset | Self::PowerCut => true,
            Self::Failure(rule) => rule.starts_with("fail-device"),
            _ => false,
        }
    }

    /// Returns what the table at the end counts it as.
    pub(crate) fn kind(&self) -> String {
        let word = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
        match self {
            Self::Perftest(case) => SET[*case].tool.to_owned(),
            Self::Verify { group, .. } => format!("verify {group}"),
            Self::Stress(options) => format!("stress {}", word(options)),
            Self::Managed(server, _) => word(server),
            Self::Rule(rule) => format!("rule {}", word(rule)),
            Self::Failure(rule) => format!("failure {}", word(rule)),
            Self::Flap => "link down and up".to_owned(),
            Self::Kill { server: false } => "client killed".to_owned(),
            Self::Kill { server: true } => "server killed".to_owned(),
            Self::Reload { busy: false } => "driver reloaded".to_owned(),
            Self::Reload { busy: true } => "driver reloaded in use".to_owned(),
            Self::Rescan => "adapter removed and found".to_owned(),
            Self::Reset => "adapter reset".to_owned(),
            Self::PowerCut => "power cut, plugged again".to_owned(),
            Self::Bond => "bond".to_owned(),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Perftest(case) => write!(f, "{} {}", SET[*case].tool, SET[*case].options),
            Self::Verify { group, sq } => write!(f, "verify {group} ({sq})"),
            Self::Stress(options) => write!(f, "stress {options}"),
            Self::Managed(server, _) => f.write_str(server),
            Self::Rule(rule) => write!(f, "rule {rule}"),
            Self::Failure(rule) => write!(f, "failure {rule}"),
            _ => f.write_str(&self.kind()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const ROUNDS: u64 = 400;

    /// Shows: tools: the plan of a soak test follows from its seed
    #[test]
    fn the_same_seed_gives_the_same_plan() {
        for number in 0..ROUNDS {
            assert_eq!(round(7, number), round(7, number));
        }
        assert!((0..ROUNDS).any(|number| round(7, number) != round(8, number)));
        assert!((1..ROUNDS).all(|number| round(7, number) != round(7, 0)));
    }

    #[test]
    fn each_guest_has_one_part_in_a_round() {
        for number in 0..ROUNDS {
            let sides = round(1, number);
            let guests: BTreeSet<_> =
                sides.iter().flat_map(|side| [side.client, side.server]).collect();
            assert_eq!(guests, (0..GUESTS).collect());
        }
    }

    #[test]
    fn a_round_is_short() {
        for number in 0..ROUNDS {
            for side in round(2, number) {
                assert!(!side.actions.is_empty());
                assert!(side.actions.iter().map(Action::seconds).sum::<u32>() <= BUDGET);
            }
        }
    }

    #[test]
    fn all_actions_are_chosen_sooner_or_later() {
        let kinds = |rounds: u64| -> BTreeSet<String> {
            let sides = (0..rounds).flat_map(|number| round(3, number));
            sides.flat_map(|side| side.actions).map(|action| action.kind()).collect()
        };
        let tools: BTreeSet<_> = SET.iter().map(|case| case.tool).collect();
        let rules: BTreeSet<_> = [&PACKETS[..], &ANYWHERE, &COPIES]
            .concat()
            .iter()
            .map(|rule| rule.split(' ').next())
            .collect();
        // Three programs that connect, three parts of vrnic-stress, and nine actions of one kind.
        let all =
            tools.len() + GROUPS.len() + LOCAL_GROUPS.len() + rules.len() + FATAL.len() + 3 + 3 + 9;
        assert_eq!(kinds(ROUNDS).len(), all);
    }

    #[test]
    fn what_needs_packets_or_copies_has_them() {
        for number in 0..ROUNDS {
            for side in round(4, number) {
                let apart = (side.client < GUESTS / 2) != (side.server < GUESTS / 2);
                for action in side.actions {
                    let (text, common, special) = match &action {
                        Action::Rule(rule) if apart => (&**rule, &ANYWHERE[..], &PACKETS[..]),
                        Action::Rule(rule) => (&**rule, &ANYWHERE[..], &COPIES[..]),
                        Action::Verify { group, .. } if apart => (*group, &GROUPS[..], &[][..]),
                        Action::Verify { group, .. } => (*group, &GROUPS[..], &LOCAL_GROUPS[..]),
                        _ => continue,
                    };
                    let is = |list: &[&str]| list.iter().any(|known| text.starts_with(known));
                    assert!(is(common) || is(special), "{text}");
                }
            }
        }
    }
}
