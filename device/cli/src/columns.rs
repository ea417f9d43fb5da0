//! Columns of tables of objects.

use serde_json::Value as Json;
use vrnic_abi::admin::fields::{Field, Record, Show, Value};

/// The columns of a table of objects, with the fields of the objects' records that they show.
pub(crate) struct Columns(Vec<(Field, Value)>);

impl Show for Columns {
    type Error = std::convert::Infallible;

    fn field(&mut self, field: Field, value: Value) -> Result<(), Self::Error> {
        if field.column {
            self.0.push((field, value));
        }
        Ok(())
    }
}

impl Columns {
    /// Returns the columns for records that have the same fields as `sample`.
    pub(crate) fn of(sample: &impl Record) -> Self {
        let mut columns = Self(Vec::new());
        let Ok(()) = sample.show(&mut columns);
        columns
    }

    pub(crate) fn heads(&self) -> Vec<String> {
        let heads = self.0.iter().flat_map(|(field, value)| match value {
            Value::Out { .. } => vec!["size", "produced", "unread"],
            _ => vec![field.key],
        });
        heads.map(|head| head.replace('_', " ")).collect()
    }

    /// Returns the cells of an object's row.
    pub(crate) fn cells(&self, object: &Json) -> Vec<String> {
        let cells = self.0.iter().flat_map(|(field, value)| match value {
            Value::Out { .. } => {
                let unread = number(&object["produced"]).wrapping_sub(number(&object["consumed"]));
                vec![text(&object["size"]), text(&object["produced"]), unread.to_string()]
            }
            _ => vec![cell(value, &object[field.key])],
        });
        cells.collect()
    }
}

fn cell(kind: &Value, value: &Json) -> String {
    match (kind, value) {
        (Value::Hex(_) | Value::Key(_), Json::Number(number)) => {
            format!("{:#x}", number.as_u64().unwrap_or_default())
        }
        (Value::Work { .. }, Json::Object(queue)) => {
            let [size, posted, next] = ["size", "posted", "next"].map(|key| number(&queue[key]));
            // The number of entries in use. A queue in device memory does not use the doorbell
            // index.
            match queue["in_device"] == true {
                true => format!("{size}*"),
                false => format!("{}/{size}", posted.wrapping_sub(next)),
            }
        }
        _ => text(value),
    }
}

pub(crate) fn text(value: &Json) -> String {
    match value {
        Json::Null => "-".to_owned(),
        Json::String(text) => text.clone(),
        Json::Array(all) => all.iter().map(text).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

fn number(value: &Json) -> u32 {
    value.as_u64().and_then(|number| number.try_into().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use vrnic_abi::admin::{CqRecord, QpRecord};

    use super::*;

    #[test]
    fn cells_stand_below_their_heads() {
        let columns = Columns::of(&QpRecord::default());
        let object = json!({
            "qpn": 7, "kind": "rc", "srqn": null, "peer": ["52:54:00:00:00:01", 9],
            "send": { "size": 128, "posted": 2, "next": u32::MAX, "in_device": false },
            "recv": { "size": 64, "posted": 0, "next": 0, "in_device": true },
        });
        let (heads, cells) = (columns.heads(), columns.cells(&object));
        let of = |head: &str| &cells[heads.iter().position(|h| h == head).expect("a column")];
        assert_eq!((of("qpn"), of("kind"), of("srqn")), (&"7".into(), &"rc".into(), &"-".into()));
        assert_eq!(of("peer"), "52:54:00:00:00:01 9");
        assert_eq!((of("send"), of("recv")), (&"3/128".into(), &"64*".into()));
        let cq = json!({ "size": 16, "produced": 1, "consumed": u32::MAX });
        let columns = Columns::of(&CqRecord::default());
        let unread = columns.heads().iter().position(|head| head == "unread").expect("a column");
        assert_eq!(columns.cells(&cq)[unread], "2");
    }
}
