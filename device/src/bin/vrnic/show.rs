//! Tables of objects.

use anyhow::bail;
use clap::ValueEnum;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use vrnic_adapter::inspect::{AdapterView, CqView, EqView, KeyView, QpView, QueueView, SrqView};

use crate::client::Client;

/// Kinds of objects that can be shown.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Kind {
    /// The adapters
    Function,
    /// Queue pairs
    Qp,
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
}

/// Shows objects of one function or of all.
pub(crate) fn show(
    client: &Client,
    kind: Kind,
    only: Option<String>,
    json: bool,
) -> anyhow::Result<()> {
    let mut functions = client.functions()?;
    if let Some(name) = only {
        functions.retain(|function| function.name == name);
        if functions.is_empty() {
            bail!("the daemon has no function '{name}'");
        }
    }
    match kind {
        Kind::Function => print(&functions, json, FUNCTION, function),
        Kind::Counters => counters(&functions, json),
        Kind::Qp => objects::<QpView>(client, &functions, ("qps", json), QP, qp),
        Kind::Cq => objects::<CqView>(client, &functions, ("cqs", json), CQ, cq),
        Kind::Eq => objects::<EqView>(client, &functions, ("eqs", json), EQ, eq),
        Kind::Srq => objects::<SrqView>(client, &functions, ("srqs", json), SRQ, srq),
        Kind::Mr => objects::<KeyView>(client, &functions, ("keys", json), KEY, key),
    }
}

/// Objects of all functions, with their function in front.
fn objects<T: DeserializeOwned + Serialize>(
    client: &Client,
    functions: &[AdapterView],
    (kind, json): (&str, bool),
    head: &[&str],
    row: fn(&T) -> Vec<String>,
) -> anyhow::Result<()> {
    let mut table = table(&[&["function"], head].concat());
    let mut values = Vec::new();
    for function in functions {
        let found: Vec<T> = client.objects(&function.name, kind)?;
        if json {
            values.push(json!({ "function": function.name, kind: found }));
        } else {
            for object in &found {
                table.add_row([vec![function.name.clone()], row(object)].concat());
            }
        }
    }
    finish(json, &Value::Array(values), &table)
}

fn print<T: Serialize>(
    objects: &[T],
    json: bool,
    head: &[&str],
    row: fn(&T) -> Vec<String>,
) -> anyhow::Result<()> {
    let mut table = table(head);
    objects.iter().for_each(|object| {
        table.add_row(row(object));
    });
    finish(json, &serde_json::to_value(objects)?, &table)
}

/// A row for each counter, a column for each function.
fn counters(functions: &[AdapterView], json: bool) -> anyhow::Result<()> {
    let names: Vec<_> = functions.iter().map(|function| function.name.as_str()).collect();
    let mut table = table(&[&["counter"], names.as_slice()].concat());
    let Some(first) = functions.first() else { return Ok(()) };
    for counter in first.counters.keys() {
        let value = |function: &AdapterView| {
            function.counters.get(counter).map_or_else(|| "-".to_owned(), u64::to_string)
        };
        let values = functions.iter().map(value).collect();
        table.add_row([vec![counter.clone()], values].concat());
    }
    let values = functions.iter().map(|f| json!({ "function": f.name, "counters": f.counters }));
    finish(json, &values.collect(), &table)
}

fn finish(json: bool, value: &Value, table: &Table) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(value)?);
    } else {
        println!("{table}");
    }
    Ok(())
}

/// A table of left-aligned columns without lines.
pub(crate) fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(head.iter().copied());
    table
}

const FUNCTION: &[&str] =
    &["function", "mac", "enabled", "link", "fatal", "qps", "cqs", "eqs", "keys"];
fn function(f: &AdapterView) -> Vec<String> {
    let count = |kind: &str| f.objects.get(kind).map_or_else(|| "-".to_owned(), u64::to_string);
    let link = if f.link { "up" } else { "down" };
    let mut row = vec![f.name.clone(), f.mac.clone(), f.enabled.to_string(), link.to_owned()];
    row.push(f.fatal.to_string());
    row.extend(["qps", "cqs", "eqs", "keys"].map(count));
    row
}

const QP: &[&str] = &[
    "qpn", "type", "state", "context", "pdn", "send cq", "recv cq", "srq", "worker", "peer",
    "send", "recv",
];
fn qp(qp: &QpView) -> Vec<String> {
    let peer = qp.peer.as_ref().map(|(mac, qpn)| format!("{mac} {qpn:#x}"));
    vec![
        format!("{:#x}", qp.qpn),
        qp.kind.clone(),
        qp.state.clone(),
        qp.context.to_string(),
        qp.pdn.to_string(),
        qp.send_cqn.to_string(),
        qp.recv_cqn.to_string(),
        some(qp.srqn.as_ref()),
        qp.worker.to_string(),
        some(peer.as_ref()),
        queue(qp.send.as_ref()),
        queue(qp.recv.as_ref()),
    ]
}

const CQ: &[&str] = &["cqn", "context", "eqn", "users", "size", "produced", "unread", "failed"];
fn cq(cq: &CqView) -> Vec<String> {
    let unread = cq.produced.wrapping_sub(cq.consumed);
    let numbers = [cq.cqn, cq.context, cq.eqn, cq.users, cq.size, cq.produced, unread];
    [numbers.map(|n| n.to_string()).to_vec(), vec![cq.failed.to_string()]].concat()
}

const EQ: &[&str] = &["eqn", "vector", "cqs", "size", "produced", "unread"];
fn eq(eq: &EqView) -> Vec<String> {
    let unread = eq.produced.wrapping_sub(eq.consumed);
    [eq.eqn, eq.vector.into(), eq.cqs, eq.size, eq.produced, unread].map(|n| n.to_string()).to_vec()
}

const SRQ: &[&str] = &["srqn", "context", "pdn", "users", "xrcd", "limit", "recv", "failed"];
fn srq(srq: &SrqView) -> Vec<String> {
    vec![
        srq.srqn.to_string(),
        srq.context.to_string(),
        srq.pdn.to_string(),
        srq.users.to_string(),
        some(srq.xrcdn.as_ref()),
        srq.limit.to_string(),
        queue(Some(&srq.recv)),
        srq.failed.to_string(),
    ]
}

const KEY: &[&str] = &["key", "kind", "pdn", "qpn", "address", "length", "page", "access"];
fn key(key: &KeyView) -> Vec<String> {
    let mut access = key.access.join(" ");
    if key.one_touch {
        access.push_str(" one_touch");
    }
    vec![
        format!("{:#x}", key.key),
        key.kind.clone(),
        key.pdn.to_string(),
        some(key.qpn.as_ref()),
        format!("{:#x}", key.address),
        key.length.to_string(),
        some(key.page_size.as_ref()),
        access,
    ]
}

/// Entries in use of all, e.g. `3/128`; in device memory `7/128*`.
fn queue(queue: Option<&QueueView>) -> String {
    queue.map_or_else(
        || "-".to_owned(),
        // The doorbell of a queue in device memory is not used.
        |q| match q.in_device {
            true => format!("{}*", q.size),
            false => format!("{}/{}", q.posted.wrapping_sub(q.next), q.size),
        },
    )
}

fn some(value: Option<&impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), ToString::to_string)
}
