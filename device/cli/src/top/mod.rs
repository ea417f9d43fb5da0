//! `vrnic top`: what the adapters do, refreshed at an interval.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`picture`] | the answers of the daemon, now and one interval before |
//! | [`rates`] | numbers per second |
//! | [`plain`] | a table of the functions, for output that is no terminal |
//! | [`model`] | the state of the screen, and the effects of keys |
//! | [`draw`] | the screen of a terminal |
//! | [`queue_pair`] | the screen of one queue pair |
//! | [`screen`] | keys, refreshes, the terminal's mode |

mod draw;
mod model;
mod picture;
mod plain;
mod queue_pair;
mod rates;
mod screen;

use std::io::{self, IsTerminal};

use crate::client::Client;

pub(crate) fn parse_interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("'{text}' is not a number"))?;
    (0.1..=3600.0)
        .contains(&seconds)
        .then_some(seconds)
        .ok_or("the interval must be from 0.1 to 3600 seconds".to_owned())
}

/// Shows rates and refreshes them every `interval` seconds, `looks` times (0: for ever).
pub(crate) fn top(client: &Client, interval: f64, looks: u64) -> anyhow::Result<()> {
    if io::stdout().is_terminal() && io::stdin().is_terminal() {
        screen::run(client, interval, looks)
    } else {
        plain::run(client, interval, looks)
    }
}
