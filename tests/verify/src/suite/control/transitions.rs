//! The complete state machine of QPs: each type, each pair of states, and for legal transitions
//! each attribute added or missing, compared with the table in `transitions.txt`.
//!
//! Shows: queues

use anyhow::{Context, Result, bail, ensure};
use rustix::io::Errno;

use crate::suite::Case;
use crate::suite::fixture::{Env, Options, Side, expect_errno};
use vrnic_verbs::model::{Destination, Op, Path, QpAttr, State, mask, qp_type};

const TABLE: &str = include_str!("../../../transitions.txt");

const STATES: [(&str, State); 7] = [
    ("Reset", State::Reset),
    ("Init", State::Init),
    ("Rtr", State::Rtr),
    ("Rts", State::Rts),
    ("Sqd", State::Sqd),
    ("Sqe", State::Sqe),
    ("Err", State::Err),
];

/// Attributes with their names in the table, and attributes that no transition allows.
const ATTRIBUTES: [(&str, u32); 20] = [
    ("CUR_STATE", mask::CUR_STATE),
    ("EN_SQD_ASYNC_NOTIFY", mask::EN_SQD_ASYNC_NOTIFY),
    ("ACCESS_FLAGS", mask::ACCESS_FLAGS),
    ("PKEY_INDEX", mask::PKEY_INDEX),
    ("PORT", mask::PORT),
    ("QKEY", mask::QKEY),
    ("AV", mask::AV),
    ("PATH_MTU", mask::PATH_MTU),
    ("TIMEOUT", mask::TIMEOUT),
    ("RETRY_CNT", mask::RETRY_CNT),
    ("RNR_RETRY", mask::RNR_RETRY),
    ("RQ_PSN", mask::RQ_PSN),
    ("MAX_QP_RD_ATOMIC", mask::MAX_QP_RD_ATOMIC),
    ("ALT_PATH", mask::ALT_PATH),
    ("MIN_RNR_TIMER", mask::MIN_RNR_TIMER),
    ("SQ_PSN", mask::SQ_PSN),
    ("MAX_DEST_RD_ATOMIC", mask::MAX_DEST_RD_ATOMIC),
    ("PATH_MIG_STATE", mask::PATH_MIG_STATE),
    ("CAP", mask::CAP),
    ("DEST_QPN", mask::DEST_QPN),
];

/// The types, as the table names them.
const TYPES: [(&str, u32); 4] = [
    ("RC", qp_type::RC),
    ("UC", qp_type::UC),
    ("UD", qp_type::UD),
    ("RAW_PACKET", qp_type::RAW_PACKET),
];

pub(in crate::suite) fn cases() -> Vec<Case> {
    TYPES
        .into_iter()
        .map(|(name, kind)| {
            Case::new(
                format!("transitions/every_pair_of_states/{}", name.to_lowercase()),
                move |env| every_pair(env, name, kind),
            )
        })
        .collect()
}

/// A row of the table, for one type.
struct Rule {
    from: State,
    to: State,
    required: u32,
    optional: u32,
}

fn named<T: Copy>(names: &[(&str, T)], name: &str) -> Result<T> {
    let entry = names.iter().find(|entry| entry.0 == name);
    Ok(entry.with_context(|| format!("the table names {name}"))?.1)
}

fn attributes(list: &str) -> Result<u32> {
    list.split_whitespace().try_fold(0, |all, name| Ok(all | named(&ATTRIBUTES, name)?))
}

/// Returns the table's rows for a type.
fn table(kind: &str) -> Result<Vec<Rule>> {
    let lines = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut rules = Vec::new();
    for line in lines {
        let (left, optional) = line.split_once(';').context("a line without semicolon")?;
        let words: Vec<_> = left.split_whitespace().collect();
        let [types, from, to, required @ ..] = words.as_slice() else { bail!("bad line {line}") };
        if *types == "ALL" || types.split(',').any(|name| name == kind) {
            rules.push(Rule {
                from: named(&STATES, from)?,
                to: named(&STATES, to)?,
                required: attributes(&required.join(" "))?,
                optional: attributes(optional)?,
            });
        }
    }
    Ok(rules)
}

/// A QP that can be moved to any state.
struct Subject<'a> {
    env: &'a Env,
    side: Side,
    rules: Vec<Rule>,
}

impl Subject<'_> {
    fn rule(&self, from: State, to: State) -> Option<&Rule> {
        self.rules.iter().find(|rule| (rule.from, rule.to) == (from, to))
    }

    fn attr(&self, from: State) -> QpAttr {
        QpAttr { cur_state: from as u32, ..self.side.attr_towards(&self.env.b, 99) }
    }

    fn step(&self, from: State, to: State) -> Result<()> {
        let required = self.rule(from, to).context("no legal path")?.required;
        Ok(self.side.modify(to, &self.attr(from), required | mask::STATE)?)
    }

    /// Moves the QP to a state, starting from Reset. Returns false if the QP cannot have this
    /// state.
    fn bring(&self, state: State) -> Result<bool> {
        use State::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
        self.side.to(Reset)?;
        let path: &[State] = match state {
            Reset => &[],
            Init => &[Init],
            Rtr => &[Init, Rtr],
            Rts | Sqe => &[Init, Rtr, Rts],
            Sqd => &[Init, Rtr, Rts, Sqd],
            Err => &[Init, Err],
        };
        let mut from = Reset;
        for to in path {
            self.step(from, *to)?;
            from = *to;
        }
        if state == Sqe {
            // Only memory operations move an RC QP there, and not all devices have them.
            if self.side.options.qp_type == qp_type::RC {
                return Ok(false);
            }
            self.spoil_send()?;
        }
        self.side.expect_state(state)?;
        Ok(true)
    }

    /// Posts a send from memory that is not registered: only the send queue fails.
    fn spoil_send(&self) -> Result<()> {
        let region = self.side.region(64, 0)?;
        let mut wild = region.sge();
        wild.lkey ^= 0x55_5500;
        let mut request = Side::request(Op::Send, 1, &[wild]);
        if self.side.options.qp_type == qp_type::UD {
            let path = Path {
                dgid: self.env.b.info.gid,
                sgid_index: self.env.a.info.gid_index,
                hop_limit: 64,
                port: 1,
                ..Path::default()
            };
            let ah = self.env.a.agent.create_ah(self.side.pd, path)?;
            request.to = Some(Destination { ah, qpn: 99, qkey: 0 });
        }
        self.side.run(request, vrnic_verbs::model::Status::LocProtErr)?;
        region.deregister()
    }

    /// Tries one transition.
    fn attempt(&self, from: State, to: State, given: u32) -> Result<()> {
        let legal = self.rule(from, to).is_some_and(|rule| {
            given & rule.required == rule.required && given & !(rule.required | rule.optional) == 0
        });
        // The kernel does not support alternate paths on Ethernet.
        let accepted = legal && given & mask::ALT_PATH == 0;
        let what = format!("{from:?} to {to:?} with attributes {given:#x}");
        let result = self.side.modify(to, &self.attr(from), given | mask::STATE);
        if !accepted {
            expect_errno(&what, result, Errno::INVAL)?;
            return self.side.expect_state(from).context(what);
        }
        result.with_context(|| what.clone())?;
        self.side.expect_state(to).context(what)?;
        ensure!(self.bring(from)?, "the state is not reached again");
        Ok(())
    }
}

fn every_pair(env: &Env, name: &str, kind: u32) -> Result<()> {
    let side = Side::new(&env.a, &Options { qp_type: kind, ..Options::default() })?;
    let subject = Subject { env, side, rules: table(name)? };
    for from in STATES.map(|state| state.1) {
        if !subject.bring(from)? {
            continue;
        }
        for to in STATES.map(|state| state.1) {
            subject.attempt(from, to, 0)?;
            let Some(rule) = subject.rule(from, to) else {
                // With the attributes that lead to this state from other states.
                for other in subject.rules.iter().filter(|rule| rule.to == to) {
                    subject.attempt(from, to, other.required)?;
                }
                continue;
            };
            let all = rule.required | rule.optional;
            subject.attempt(from, to, all & !mask::ALT_PATH)?;
            for (_, bit) in ATTRIBUTES {
                subject.attempt(from, to, rule.required ^ bit)?;
            }
        }
    }
    Ok(())
}
