//! The answers of the daemon, now and one interval before.

use std::time::Instant;

use serde_json::Value as Json;
use vrnic_control_api::AdapterView;

use crate::client::Client;

/// An answer of the daemon.
#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    /// All functions.
    pub(super) functions: Vec<AdapterView>,
    /// The function whose QPs were asked for.
    pub(super) of: Option<String>,
    /// The QPs of that function.
    pub(super) qps: Vec<Json>,
    /// The connections of these QPs, if their peers are reached by packets.
    pub(super) connections: Vec<Json>,
}

/// Two answers in succession, from which rates follow.
#[derive(Clone, Debug)]
pub(super) struct Picture {
    pub(super) before: Answer,
    pub(super) now: Answer,
    /// Seconds between the two.
    pub(super) seconds: f64,
    at: Instant,
}

impl Answer {
    /// Asks for the functions, and for the QPs of `of`.
    pub(super) fn fetch(client: &Client, of: Option<&str>) -> anyhow::Result<Self> {
        let functions = client.functions()?;
        // Another user may have removed the function.
        let of = of.filter(|name| functions.iter().any(|function| function.name == *name));
        let qps = of.map(|name| client.objects(name, "qps")).transpose()?.unwrap_or_default();
        // An older daemon does not list them.
        let connections = of.and_then(|name| client.objects(name, "connections").ok());
        let connections = connections.unwrap_or_default();
        Ok(Self { functions, of: of.map(str::to_owned), qps, connections })
    }

    /// Returns the function of this name.
    pub(super) fn function(&self, name: &str) -> Option<&AdapterView> {
        self.functions.iter().find(|function| function.name == name)
    }

    /// Returns the QP of this number, of the function whose QPs were asked for.
    pub(super) fn qp(&self, qpn: u64) -> Option<&Json> {
        self.qps.iter().find(|qp| number(qp) == Some(qpn))
    }

    /// Returns the connection of the QP of this number.
    pub(super) fn connection(&self, qpn: u64) -> Option<&Json> {
        self.connections.iter().find(|connection| number(connection) == Some(qpn))
    }
}

/// Returns a QP's number.
pub(super) fn number(qp: &Json) -> Option<u64> {
    qp["qpn"].as_u64()
}

impl Picture {
    /// Begins with one answer.
    pub(super) fn new(first: Answer) -> Self {
        Self { before: first.clone(), now: first, seconds: 0.0, at: Instant::now() }
    }

    /// Takes the next answer.
    pub(super) fn next(&mut self, answer: Answer) {
        let at = Instant::now();
        self.before = std::mem::replace(&mut self.now, answer);
        self.seconds = (at - self.at).as_secs_f64();
        self.at = at;
    }

    /// Takes the QPs of another function, and keeps the rates of all functions.
    pub(super) fn turn_to(&mut self, answer: Answer) {
        self.now.of = answer.of;
        self.now.qps = answer.qps;
        self.now.connections = answer.connections;
    }

    /// Returns a QP as it was before, if it is known.
    pub(super) fn qp_before(&self, qpn: u64) -> Option<&Json> {
        (self.before.of == self.now.of).then(|| self.before.qp(qpn)).flatten()
    }
}
