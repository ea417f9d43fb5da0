//! Steps as lines of text.

use anyhow::bail;
use serde_json::{Map, Value};
use vrnic_control_api::trace::TraceRecord;

/// Returns a step as a line without an end: its time, the time since the one before, its name and
/// its values. The name of the function comes before these, if there is one.
///
/// # Errors
/// Returns an error if the step has no values, which is never so.
pub fn line(
    function: Option<&str>,
    record: &TraceRecord,
    last: Option<u64>,
) -> anyhow::Result<String> {
    let (name, values) = parts(record)?;
    let since = record.ns.saturating_sub(last.unwrap_or(record.ns));
    let mut line = format!("{} {since:>+12} {name:<12}", record.ns);
    if let Some(function) = function {
        line += &format!(" function={function}");
    }
    if let Some(qp) = record.qp {
        line += &format!(" qp={qp}");
    }
    for (key, value) in values {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        line += &format!(" {key}={text}");
    }
    Ok(line.trim_end().to_owned())
}

/// Returns the name of a step, and its values.
pub(super) fn parts(record: &TraceRecord) -> anyhow::Result<(String, Map<String, Value>)> {
    let Value::Object(mut values) = serde_json::to_value(&record.step)? else {
        bail!("a step has no values");
    };
    let name = values.remove("step").unwrap_or_default();
    values.retain(|_, value| !value.is_null() && *value != Value::Bool(false));
    Ok((name.as_str().unwrap_or_default().to_owned(), values))
}

#[cfg(test)]
mod tests {
    use vrnic_control_api::trace::TraceStep;

    use super::*;

    #[test]
    fn a_line_names_what_it_is_of() {
        let step = TraceStep::Copy { index: 3, from: 0, to: 8 };
        let mut record = TraceRecord { ns: 1500, qp: None, step };
        let plain = line(None, &record, Some(1000)).expect("a line");
        assert_eq!(plain, "1500         +500 copy         from=0 index=3 to=8");
        record.qp = Some(5);
        let full = line(Some("a"), &record, None).expect("a line");
        assert_eq!(full, "1500           +0 copy         function=a qp=5 from=0 index=3 to=8");
    }
}
