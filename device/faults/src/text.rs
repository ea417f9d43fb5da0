//! Rules as text: an action and fields, such as `drop qp=17 opcode=rc-write-only prob=0.01`.
//! docs/faults.md has the tables of actions and fields.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use vrnic_abi::{admin, cq};
use vrnic_roce::Psn;
use vrnic_roce::wire::Qpn;

use crate::action::{Action, Crc, Pattern, Site};
use crate::names::{self, name_of};
use crate::rule::{Chance, Filter, Rule};
use crate::values::{
    Decimal, Time, mtu_bytes, number, opcode, parse_chance, parse_mtu, parse_rate, parse_time,
};

/// The longest time for which a worker pauses. After a longer one, the daemon's watchdog and the
/// driver would consider the adapter dead, for which there is `fail-device`.
const PAUSE_MAX: Duration = Duration::from_secs(4);

/// The reason for which a text is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// There is no action.
    #[error("a rule must begin with an action: {all}", all = Actions)]
    NoAction,
    /// The first word is not an action.
    #[error("{0:?} is not an action: use {all}", all = Actions)]
    Action(String),
    /// A word is not of the form `name=value`.
    #[error("{0:?} is not of the form name=value")]
    Form(String),
    /// The action has no field of this name.
    #[error("{0:?} is not a field of {1}: use {2}")]
    Field(String, &'static str, String),
    /// A field is given twice.
    #[error("{0} is given twice")]
    Twice(String),
    /// A value does not fit its field.
    #[error("{name}={value} is not right: {expected}")]
    Value {
        /// The field.
        name: String,
        /// The value of the field.
        value: String,
        /// The form that it must have.
        expected: &'static str,
    },
    /// A field is missing that the action needs.
    #[error("{0} needs {1}")]
    Missing(&'static str, &'static str),
    /// Two fields contradict each other.
    #[error("{0} and {1} contradict each other: use one of them")]
    Contradiction(&'static str, &'static str),
}

/// The actions, as they are before their own fields are read.
const ACTIONS: [Action; 27] = [
    Action::Drop,
    Action::Delay(Duration::ZERO),
    Action::Duplicate,
    Action::Reorder(1),
    Action::Corrupt(Crc::Wrong),
    Action::HoldRequest(Duration::ZERO),
    Action::SlowMemory(0),
    Action::FailRequest(cq::Status::GeneralErr),
    Action::FailQp,
    Action::DropMessage,
    Action::Disorder,
    Action::Rnr,
    Action::FailCompletion(cq::Status::GeneralErr),
    Action::FillCq,
    Action::DropEvent,
    Action::DelayEvent(Duration::ZERO),
    Action::DropInterrupt,
    Action::DelayInterrupt(Duration::ZERO),
    Action::FailCommand(admin::Status::Internal),
    Action::DelayCommand(Duration::ZERO),
    Action::DropCommand,
    Action::PauseWorker(Duration::ZERO),
    Action::PortDown(Pattern { lasts: None, pause: None }),
    Action::LowerMtu(0),
    Action::RemoveGid(0),
    Action::LoopBack,
    Action::FailDevice(Pattern { lasts: None, pause: None }),
];

/// The names of all actions, in a sentence.
struct Actions;

impl fmt::Display for Actions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&ACTIONS.map(Action::name).join(", "))
    }
}

const NUMBER: &str = "a number is expected, such as 17 or 0x11";
const NUMBER_24: &str = "a number of 24 bits is expected, such as 17 or 0x11";
const FROM_ONE: &str = "a number from 1 on is expected";
const TIME: &str = "a time is expected, such as 20us, 5ms or 3s";
const OPCODE: &str = "a name such as rc-write-only or iwarp-write, or a number such as 0x0a, is \
                      expected";
const REQUEST: &str =
    "the name of a work request is expected, such as send, write-imm or fetch-add";
const COMPLETION: &str = "the opcode of a completion is expected, such as send, write or recv";
const EVENT: &str = "the name of an event is expected, such as completion, qp-fatal or port-down";
const COMMAND: &str = "the name of an admin command is expected, such as create-qp or reg-mr";
const STATUS: &str = "the status of a failed completion is expected, such as retry-exc-err";
const FAILURE: &str = "the status of a failed command is expected, such as no-resource or busy";

impl FromStr for Rule {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut words = text.split_whitespace();
        let first = words.next().ok_or(ParseError::NoAction)?;
        let action = ACTIONS.into_iter().find(|action| action.name() == first);
        let action = action.ok_or_else(|| ParseError::Action(first.to_owned()))?;
        let (filter, chance) = (Filter::default(), Chance::ALWAYS);
        let (times, after, lifetime) = (None, None, None);
        let mut rule = Self { action, filter, chance, seed: 0, times, after, lifetime };
        let mut names = Vec::new();
        for word in words {
            let form = || ParseError::Form(word.to_owned());
            let (name, value) = word.split_once('=').ok_or_else(form)?;
            if names.contains(&name) {
                return Err(ParseError::Twice(name.to_owned()));
            }
            names.push(name);
            rule.set(name, value)?;
        }
        rule.check(&names)?;
        Ok(rule)
    }
}

impl Rule {
    /// Checks that the fields belong together.
    fn check(&self, names: &[&str]) -> Result<(), ParseError> {
        let (action, has) = (self.action, |name: &str| names.contains(&name));
        if let Some((name, example)) = action.needs()
            && !has(name)
        {
            return Err(ParseError::Missing(action.name(), example));
        }
        if has("nth") && has("every") {
            return Err(ParseError::Contradiction("nth", "every"));
        }
        match action {
            Action::PortDown(Pattern { lasts: None, pause: Some(_) }) => Err(ParseError::Missing(
                "pause",
                "the time for which the port is down, such as lasts=200ms",
            )),
            _ => Ok(()),
        }
    }

    /// Sets a field.
    fn set(&mut self, name: &str, value: &str) -> Result<(), ParseError> {
        if !self.action.fields().contains(&name) {
            let fields = self.action.fields().join(", ");
            return Err(ParseError::Field(name.to_owned(), self.action.name(), fields));
        }
        let wrong = |expected| {
            let (name, value) = (name.to_owned(), value.to_owned());
            ParseError::Value { name, value, expected }
        };
        let any = || number(value).map_err(|_| wrong(NUMBER));
        let from_one = || number(value).ok().filter(|n| *n > 0).ok_or_else(|| wrong(FROM_ONE));
        let word = || any().and_then(|number| u32::try_from(number).map_err(|_| wrong(NUMBER)));
        let short = || {
            let short = number(value).ok().and_then(|number| u32::try_from(number).ok());
            short.filter(|number| *number < 1 << 24).ok_or_else(|| wrong(NUMBER_24))
        };
        let time = || parse_time(value).ok_or_else(|| wrong(TIME));
        let site = self.action.site();
        match name {
            "function" if value.is_empty() => return Err(wrong("a name is expected")),
            "function" => self.filter.function = Some(value.to_owned()),
            "qp" => self.filter.qp = Some(Qpn::new(short()?)),
            "opcode" | "event" | "command" => {
                let expected = match site {
                    Site::Packet => OPCODE,
                    Site::Completion => COMPLETION,
                    Site::Event => EVENT,
                    Site::Command => COMMAND,
                    _ => REQUEST,
                };
                self.filter.opcode = Some(opcode(site, value).ok_or_else(|| wrong(expected))?);
            }
            "psn" => self.filter.psn = Some(Psn::new(short()?)),
            "relaxed" => {
                self.filter.relaxed = match value {
                    "yes" => Some(true),
                    "no" => Some(false),
                    _ => return Err(wrong("yes or no is expected")),
                };
            }
            "cq" | "vector" => self.filter.number = Some(word()?),
            "nth" => self.filter.nth = Some(from_one()?),
            "every" => self.filter.every = Some(from_one()?),
            "prob" => {
                let expected = "a number from 0 to 1 with at most 9 decimals is expected";
                self.chance = parse_chance(value).ok_or_else(|| wrong(expected))?;
            }
            "seed" => self.seed = any()?,
            "times" => self.times = Some(from_one()?),
            "after" => self.after = Some(time()?),
            "for" => self.lifetime = Some(time()?),
            _ => self.action.set(name, value)?,
        }
        Ok(())
    }
}

impl Action {
    /// Sets a field of the action itself.
    fn set(&mut self, name: &str, value: &str) -> Result<(), ParseError> {
        let wrong = |expected| {
            let (name, value) = (name.to_owned(), value.to_owned());
            ParseError::Value { name, value, expected }
        };
        let time = || parse_time(value).ok_or_else(|| wrong(TIME));
        let lasting = || time().ok().filter(|time| !time.is_zero()).ok_or_else(|| wrong(TIME));
        match self {
            Self::PauseWorker(by) => {
                let expected = "a time up to 4s is expected; for a device that stops for longer, \
                                use fail-device";
                *by = Some(time()?).filter(|by| *by <= PAUSE_MAX).ok_or_else(|| wrong(expected))?;
            }
            Self::Delay(by)
            | Self::HoldRequest(by)
            | Self::DelayEvent(by)
            | Self::DelayInterrupt(by)
            | Self::DelayCommand(by) => *by = time()?,
            Self::Reorder(behind) => {
                let number = number(value).ok().filter(|number| *number > 0);
                let number = number.ok_or_else(|| wrong(FROM_ONE))?;
                *behind = u32::try_from(number).map_err(|_| wrong(NUMBER))?;
            }
            Self::Corrupt(crc) => {
                *crc = match value {
                    "right" => Crc::Right,
                    "checksum" => Crc::Checksum,
                    "wrong" => Crc::Wrong,
                    _ => return Err(wrong("right, checksum or wrong is expected")),
                };
            }
            Self::FailRequest(status) | Self::FailCompletion(status) => {
                *status = names::status(value).ok_or_else(|| wrong(STATUS))?;
            }
            Self::FailCommand(status) => {
                *status = names::command_status(value).ok_or_else(|| wrong(FAILURE))?;
            }
            Self::SlowMemory(rate) => {
                let expected = "bytes per second are expected, such as 500k, 20M or 1G";
                *rate = parse_rate(value).ok_or_else(|| wrong(expected))?;
            }
            Self::LowerMtu(mtu) => {
                let expected = "256, 512, 1024, 2048 or 4096 is expected";
                *mtu = parse_mtu(value).ok_or_else(|| wrong(expected))?;
            }
            Self::RemoveGid(index) => {
                let number = number(value).ok().and_then(|number| u16::try_from(number).ok());
                *index = number.ok_or_else(|| wrong(NUMBER))?;
            }
            Self::PortDown(pattern) | Self::FailDevice(pattern) => match name {
                "lasts" => pattern.lasts = Some(lasting()?),
                _ => pattern.pause = Some(lasting()?),
            },
            _ => {}
        }
        Ok(())
    }

    /// Returns the field that it needs, and an example.
    const fn needs(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Delay(_) | Self::HoldRequest(_) => Some(("by", "a time, such as by=2ms")),
            Self::DelayEvent(_) | Self::DelayInterrupt(_) | Self::PauseWorker(_) => {
                Some(("by", "a time, such as by=20ms"))
            }
            Self::DelayCommand(_) => Some(("by", "a time, such as by=2s")),
            Self::SlowMemory(_) => Some(("rate", "bytes per second, such as rate=20M")),
            Self::FailRequest(_) | Self::FailCompletion(_) => {
                Some(("status", "a status, such as status=retry-exc-err"))
            }
            Self::FailCommand(_) => Some(("status", "a status, such as status=no-resource")),
            Self::LowerMtu(_) => Some(("bytes", "a size, such as bytes=1024")),
            Self::RemoveGid(_) => Some(("index", "an entry, such as index=1")),
            _ => None,
        }
    }

    /// Returns the names of the fields of its own.
    const fn own_fields(self) -> &'static [&'static str] {
        match self {
            Self::Reorder(_) => &["behind"],
            Self::Corrupt(_) => &["crc"],
            Self::FailRequest(_) | Self::FailCompletion(_) | Self::FailCommand(_) => &["status"],
            Self::SlowMemory(_) => &["rate"],
            Self::LowerMtu(_) => &["bytes"],
            Self::RemoveGid(_) => &["index"],
            Self::PortDown(_) => &["lasts", "pause"],
            Self::FailDevice(_) => &["pause"],
            _ if self.needs().is_some() => &["by"],
            _ => &[],
        }
    }

    /// Returns the names of all fields.
    fn fields(self) -> Vec<&'static str> {
        let site = self.site();
        let mut fields = vec!["function"];
        fields.extend(site.has_qp().then_some("qp"));
        let selects: &[&str] = match site {
            Site::Packet => &["opcode", "psn"],
            Site::Request | Site::Message | Site::Completion => &["opcode"],
            Site::Copy => &["opcode", "relaxed"],
            Site::Entry => &["cq"],
            Site::Event => &["event", "cq"],
            Site::Interrupt => &["vector"],
            Site::Command => &["command"],
            Site::Receive | Site::Turn | Site::State => &[],
        };
        fields.extend(selects);
        if site != Site::State {
            fields.extend(["nth", "every", "prob", "seed"]);
        }
        fields.extend(["times", "after", "for"]);
        fields.extend(self.own_fields());
        fields
    }
}

/// Writes the rule as it is read, without fields that have their default.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.action.fmt(f)?;
        let site = self.action.site();
        let Filter { function, qp, opcode, psn, relaxed, number, nth, every } = &self.filter;
        field(f, "function", function.as_ref())?;
        field(f, "qp", qp.map(Qpn::get))?;
        let opcode_field = match site {
            Site::Event => "event",
            Site::Command => "command",
            _ => "opcode",
        };
        field(f, opcode_field, *opcode)?;
        field(f, "psn", psn.map(Psn::get))?;
        field(f, "relaxed", relaxed.map(|relaxed| if relaxed { "yes" } else { "no" }))?;
        field(f, if site == Site::Interrupt { "vector" } else { "cq" }, *number)?;
        field(f, "nth", *nth)?;
        field(f, "every", *every)?;
        field(f, "prob", (self.chance != Chance::ALWAYS).then_some(Decimal(self.chance)))?;
        field(f, "seed", (self.seed != 0).then_some(self.seed))?;
        field(f, "times", self.times)?;
        field(f, "after", self.after.map(Time))?;
        field(f, "for", self.lifetime.map(Time))
    }
}

/// Writes the action with its own fields.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Delay(by)
            | Self::HoldRequest(by)
            | Self::DelayEvent(by)
            | Self::DelayInterrupt(by)
            | Self::DelayCommand(by)
            | Self::PauseWorker(by) => field(f, "by", Some(Time(*by))),
            Self::Reorder(behind) => field(f, "behind", Some(behind)),
            Self::Corrupt(crc) => field(f, "crc", Some(name_of(crc))),
            Self::FailRequest(status) | Self::FailCompletion(status) => {
                field(f, "status", Some(name_of(status)))
            }
            Self::FailCommand(status) => field(f, "status", Some(name_of(status))),
            Self::SlowMemory(rate) => field(f, "rate", Some(rate)),
            Self::LowerMtu(mtu) => field(f, "bytes", Some(mtu_bytes(*mtu))),
            Self::RemoveGid(index) => field(f, "index", Some(index)),
            Self::PortDown(pattern) | Self::FailDevice(pattern) => {
                field(f, "lasts", pattern.lasts.map(Time))?;
                field(f, "pause", pattern.pause.map(Time))
            }
            Self::Drop
            | Self::Duplicate
            | Self::FailQp
            | Self::DropMessage
            | Self::Disorder
            | Self::Rnr
            | Self::FillCq
            | Self::LoopBack
            | Self::DropEvent
            | Self::DropInterrupt
            | Self::DropCommand => Ok(()),
        }
    }
}

fn field(f: &mut fmt::Formatter<'_>, name: &str, value: Option<impl fmt::Display>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, " {name}={value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The scripts check rules before a program of ours is built. With the variable
    /// `VRNIC_WRITE_HELP`, writes their copy of the actions and their fields.
    ///
    /// Shows: tools: the scripts know the actions of rules for faults
    #[test]
    fn the_scripts_know_the_actions() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/help/faults.txt");
        let line = |action: Action| format!("{}: {}\n", action.name(), action.fields().join(" "));
        let text = ACTIONS.map(line).concat();
        if std::env::var_os("VRNIC_WRITE_HELP").is_some() {
            std::fs::write(file, &text).expect("the copy is written");
        }
        let copy = std::fs::read_to_string(file).unwrap_or_default();
        assert_eq!(copy, text, "{file} is old: run this test with VRNIC_WRITE_HELP=1");
    }
}
