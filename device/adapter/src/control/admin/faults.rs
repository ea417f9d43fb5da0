//! Rules for faults that the guest sets for its own function, if the operator permits it.

use std::fmt;
use std::mem::offset_of;
use std::str;

use vrnic_abi::admin::{
    EditFaults, FAULT_LINES_MAX, FAULT_TEXT_LEN, FaultEdited, FaultLines, ListFaults, NONE, Status,
};
use vrnic_faults::{Listed, Rule, RuleId};
use zerocopy::little_endian::U32;

use super::{Failure, Outcome, bad};
use crate::adapter::Adapter;
use crate::host::{HeldMemory, Host, Lane};

/// Adds a rule, or removes one or all.
pub(super) fn edit<H: Host>(adapter: &Adapter<H>, params: &EditFaults) -> Outcome<FaultEdited> {
    permitted(adapter)?;
    if !params.addr.is_multiple_of(8) {
        return Err(bad(offset_of!(EditFaults, addr)));
    }
    let mut buffer = [0; FAULT_TEXT_LEN as usize];
    let text = usize::try_from(params.len.get()).ok().and_then(|len| buffer.get_mut(..len));
    let text = text.ok_or(bad(offset_of!(EditFaults, len)))?;
    let memory = || adapter.host().hold(Lane::SHARED);
    memory().read(params.addr, text).map_err(|_| Status::BadAddress)?;
    match change(adapter, text) {
        Ok(number) => Ok(FaultEdited { number: number.into(), reason: U32::ZERO }),
        Err(reason) => {
            let end = reason.floor_char_boundary(buffer.len());
            let reason = reason.get(..end).unwrap_or_default();
            let written = memory().write(params.addr, reason.as_bytes());
            written.map_err(|_| Status::BadAddress)?;
            // CAST: at most the length of the buffer.
            Ok(FaultEdited { number: U32::ZERO, reason: (end as u32).into() })
        }
    }
}

/// Changes the rules as the text demands. Returns the number of the rule.
///
/// # Errors
/// Returns the reason for which nothing was changed, which is not empty.
fn change<H: Host>(adapter: &Adapter<H>, text: &[u8]) -> Result<u32, String> {
    let text = str::from_utf8(text).map_err(|_| "the text is not UTF-8".to_owned())?;
    let faults = &adapter.core().injection;
    let mut words = text.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some("clear"), None, None) => {
            faults.clear_guest(adapter.name());
            Ok(0)
        }
        (Some("clear"), Some(number), None) => {
            let found = number
                .parse()
                .ok()
                .filter(|number| faults.remove_guest(adapter.name(), RuleId::new(*number)));
            found.ok_or_else(|| format!("there is no rule {number}"))
        }
        _ => {
            let rule: Rule = text.parse().map_err(said)?;
            let added = faults.add_guest(adapter.name(), rule, adapter.host().now());
            added.map(RuleId::get).map_err(said)
        }
    }
}

fn said(error: impl fmt::Display) -> String {
    error.to_string()
}

/// Fills a buffer with lines about rules, in the order of their numbers.
pub(super) fn list<H: Host>(adapter: &Adapter<H>, params: &ListFaults) -> Outcome<FaultLines> {
    permitted(adapter)?;
    if !params.addr.is_multiple_of(8) {
        return Err(bad(offset_of!(ListFaults, addr)));
    }
    if !(FAULT_TEXT_LEN..=FAULT_LINES_MAX).contains(&params.len.get()) {
        return Err(bad(offset_of!(ListFaults, len)));
    }
    let lines = adapter.core().injection.list_guest(adapter.name(), adapter.host().now(), line);
    let (mut text, mut next) = (String::new(), NONE);
    for (number, line) in lines.into_iter().filter(|(number, _)| *number >= params.from.get()) {
        if text.len() + line.len() > params.len.get() as usize {
            next = number;
            break;
        }
        text.push_str(&line);
    }
    let memory = adapter.host().hold(Lane::SHARED);
    memory.write(params.addr, text.as_bytes()).map_err(|_| Status::BadAddress)?;
    // CAST: at most the length of the buffer.
    Ok(FaultLines { len: (text.len() as u32).into(), next: next.into() })
}

/// Returns the number of a rule, and a line about it, which is shorter than the shortest buffer:
/// the text of a rule has each field once, and a number in it has at most 20 digits.
fn line(rule: &Listed<'_>) -> (u32, String) {
    let Listed { id, seen, hit, armed, last, is_over, .. } = rule;
    let mut text = Rule::clone(rule.rule);
    // The guest's rules are all for its own function, whose name it need not know.
    text.filter.function = None;
    let last = last.map_or_else(|| "-".to_owned(), |last| last.0.to_string());
    let (armed, over) = (armed.0, u8::from(*is_over));
    let line = format!(
        "rule {id} seen {seen} hit {hit} armed_ns {armed} last_hit_ns {last} over {over} {text}\n"
    );
    (id.get(), line)
}

fn permitted<H: Host>(adapter: &Adapter<H>) -> Result<(), Failure> {
    if adapter.permits_faults() { Ok(()) } else { Err(Status::Unsupported.into()) }
}
