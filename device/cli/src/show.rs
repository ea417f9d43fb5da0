//! Tables of objects.

use std::collections::BTreeSet;

use anyhow::bail;
use clap::ValueEnum;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde_json::{Value, json};
use vrnic_abi::admin::{
    ConnectionRecord, CqRecord, EqRecord, KeyRecord, QpRecord, SrqRecord, TcpState,
};
use vrnic_control_api::{AdapterView, PortView};

use crate::client::Client;
use crate::columns::Columns;

/// Kinds of objects that can be shown.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Kind {
    /// The adapters
    Function,
    /// Queue pairs
    Qp,
    /// Connections of queue pairs whose peers are reached by packets, as `ss -ti` shows sockets
    Connection,
    /// Completion queues
    Cq,
    /// Event queues
    Eq,
    /// Shared receive queues
    Srq,
    /// Memory regions, memory windows and commands: every object with a key
    Mr,
    /// Counters
    Counters,
    /// Ports of the Ethernet switch: network cards and uplinks
    Port,
    /// Lanes of ports: what each class of service has sent, dropped and marked
    Lane,
}

/// Shows objects of one function or of all.
pub(crate) fn show(
    client: &Client,
    kind: Kind,
    only: Option<String>,
    json: bool,
) -> anyhow::Result<()> {
    if matches!(kind, Kind::Port) {
        return ports(&client.ports()?, json);
    }
    if matches!(kind, Kind::Lane) {
        return lanes(&client.ports()?, json);
    }
    let mut functions = client.functions()?;
    if let Some(name) = only {
        functions.retain(|function| function.name == name);
        if functions.is_empty() {
            bail!("the daemon has no function '{name}'");
        }
    }
    // Only valid keys are shown.
    let key = KeyRecord { valid: 1, ..KeyRecord::default() };
    // Connections of RoCE have no state of TCP.
    let connection =
        ConnectionRecord { state: TcpState::Established as u8, ..ConnectionRecord::default() };
    match kind {
        Kind::Function => adapters(&functions, json),
        Kind::Counters => counters(&functions, json),
        Kind::Qp => objects(client, &functions, "qps", json, &Columns::of(&QpRecord::default())),
        Kind::Connection => {
            objects(client, &functions, "connections", json, &Columns::of(&connection))
        }
        Kind::Cq => objects(client, &functions, "cqs", json, &Columns::of(&CqRecord::default())),
        Kind::Eq => objects(client, &functions, "eqs", json, &Columns::of(&EqRecord::default())),
        Kind::Srq => objects(client, &functions, "srqs", json, &Columns::of(&SrqRecord::default())),
        Kind::Mr => objects(client, &functions, "keys", json, &Columns::of(&key)),
        Kind::Port | Kind::Lane => Ok(()),
    }
}

/// Reads the objects of all functions. The first column is the name of the function.
fn objects(
    client: &Client,
    functions: &[AdapterView],
    kind: &str,
    json: bool,
    columns: &Columns,
) -> anyhow::Result<()> {
    let mut table = table(&[vec!["function".to_owned()], columns.heads()].concat());
    let mut values = Vec::new();
    for function in functions {
        let found = client.objects(&function.name, kind)?;
        if json {
            values.push(json!({ "function": function.name, kind: found }));
        } else {
            for object in &found {
                table.add_row([vec![function.name.clone()], columns.cells(object)].concat());
            }
        }
    }
    finish(json, &Value::Array(values), &table)
}

/// Shows a row for each counter, and a column for each function.
fn counters(functions: &[AdapterView], json: bool) -> anyhow::Result<()> {
    let names: Vec<_> = functions.iter().map(|function| function.name.as_str()).collect();
    let mut table = table(&[&["counter"], names.as_slice()].concat());
    // Not all functions have the counters of lanes.
    let counters = functions.iter().flat_map(|function| function.counters.keys());
    for counter in counters.collect::<BTreeSet<_>>() {
        let value = |function: &AdapterView| {
            function.counters.get(counter).map_or_else(|| "-".to_owned(), u64::to_string)
        };
        let values = functions.iter().map(value).collect();
        table.add_row([vec![counter.clone()], values].concat());
    }
    let values = functions.iter().map(|f| json!({ "function": f.name, "counters": f.counters }));
    finish(json, &values.collect(), &table)
}

/// Prints the value as JSON, or the table.
pub(crate) fn finish(json: bool, value: &Value, table: &Table) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(value)?);
    } else {
        println!("{table}");
    }
    Ok(())
}

/// Returns a table of left-aligned columns without lines.
pub(crate) fn table(head: &[impl ToString]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(head.iter().map(ToString::to_string));
    table
}

/// Shows a row for each port.
fn ports(ports: &[PortView], json: bool) -> anyhow::Result<()> {
    let head = ["port", "kind", "link", "mtu", "received", "sent", "dropped"];
    let mut table = table(&head);
    for port in ports {
        let reasons = port.dropped.iter().filter(|(_, count)| **count > 0);
        let reasons: Vec<_> = reasons.map(|(reason, count)| format!("{reason} {count}")).collect();
        table.add_row([
            port.name.clone(),
            port.kind.name().to_owned(),
            if port.up { "up" } else { "down" }.to_owned(),
            port.mtu.map_or_else(|| "-".to_owned(), |mtu| mtu.to_string()),
            port.received_frames.to_string(),
            port.sent_frames.to_string(),
            reasons.join(", "),
        ]);
    }
    finish(json, &serde_json::to_value(ports)?, &table)
}

/// Shows a row for each class of each port.
fn lanes(ports: &[PortView], json: bool) -> anyhow::Result<()> {
    let head = [
        "port",
        "class",
        "frames",
        "bytes",
        "depth",
        "deepest",
        "dropped",
        "marked",
        "paused µs",
        "pfc sent",
        "pfc received",
        "storms",
    ];
    let mut table = table(&head);
    let mut values = Vec::new();
    for port in ports.iter().filter(|port| !port.lanes.is_empty()) {
        values.push(json!({ "port": port.name, "lanes": port.lanes }));
        for lane in &port.lanes {
            let numbers = [
                lane.class.into(),
                lane.frames,
                lane.bytes,
                lane.depth,
                lane.deepest,
                lane.drops,
                lane.marks,
                lane.paused_us,
                lane.pfc_sent,
                lane.pfc_received,
                lane.storms,
            ];
            let numbers = numbers.iter().map(u64::to_string).collect();
            table.add_row([vec![port.name.clone()], numbers].concat());
        }
    }
    finish(json, &Value::Array(values), &table)
}

/// Shows a row for each function.
fn adapters(functions: &[AdapterView], json: bool) -> anyhow::Result<()> {
    let kinds = ["qps", "cqs", "eqs", "keys"];
    let mut table = table(&[&["function", "mac", "enabled", "link", "fatal"], &kinds[..]].concat());
    for f in functions {
        let count = |kind: &str| f.objects.get(kind).map_or_else(|| "-".to_owned(), u64::to_string);
        let link = if f.link { "up" } else { "down" };
        let mut row = vec![f.name.clone(), f.mac.clone(), f.enabled.to_string(), link.to_owned()];
        row.push(f.fatal.to_string());
        row.extend(kinds.map(count));
        table.add_row(row);
    }
    finish(json, &serde_json::to_value(functions)?, &table)
}
