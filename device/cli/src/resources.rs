//! The table of resources, and changes of it.

use std::path::Path;

use anyhow::bail;
use clap::Args;
use vrnic_control_api::ResourceRow;
use vrnic_control_api::assignment::{Amount, Assignment};
use vrnic_control_api::request::{Assign, Request};

use crate::change;
use crate::client::Client;
use crate::show::{finish, table};

/// The rows to show, and their form.
#[derive(Debug, Args)]
pub(crate) struct Resources {
    /// Show only the row of this function
    #[arg(short, long)]
    function: Option<String>,
    /// Print JSON: an array with an entry for each row
    #[arg(long)]
    json: bool,
}

/// A change of the maximum of a resource.
#[derive(Debug, Args)]
pub(crate) struct Change {
    /// Amounts, such as qp=100; device-memory in MiB. Those of other resources stay
    #[arg(required = true, value_name = "NAME=N")]
    amounts: Vec<Amount>,
    /// Change the row of this function, instead of row 0
    #[arg(short, long)]
    function: Option<String>,
    /// Accept amounts below what is in use. Nothing is taken away, but nothing more is given until
    /// less is in use. Otherwise such a change is refused
    #[arg(long)]
    drain: bool,
}

/// Shows the rows.
pub(crate) fn show(client: &Client, shown: &Resources) -> anyhow::Result<()> {
    let mut rows = client.resources()?;
    if let Some(name) = &shown.function {
        rows.retain(|row| row.function.as_ref() == Some(name));
        if rows.is_empty() {
            bail!("the daemon has no function '{name}'");
        }
    }
    let head = ["row", "function", "mac", "port", "opened", "resource", "maximum", "actual"];
    let mut table = table(&head);
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    for ResourceRow { row, function, mac, port, opened, resources } in &rows {
        let opened = opened.map_or("-", |opened| if opened { "yes" } else { "no" });
        let [function, mac, port] = [function, mac, port].map(text);
        for (resource, amounts) in resources {
            let actual = amounts.actual.map_or_else(|| "-".to_owned(), |actual| actual.to_string());
            let row = [row.to_string(), function.clone(), mac.clone(), port.clone()];
            let amounts = [resource.clone(), amounts.maximum.to_string(), actual];
            table.add_row([&row[..], &[opened.to_owned()], &amounts].concat());
        }
    }
    finish(shown.json, &serde_json::to_value(&rows)?, &table)
}

/// Changes amounts.
pub(crate) fn assign(control: &Path, change: Change) -> anyhow::Result<()> {
    let Change { amounts, function, drain } = change;
    let amounts = Assignment::new(amounts)?;
    change::run(control, Request::Assign(Assign { function, amounts, drain }))
}
