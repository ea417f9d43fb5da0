//! Rules for deliberate faults (docs/faults.md), which hold from the start of the program to its
//! end.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use anyhow::{Context, ensure};
use vrnic_adapter::datapath::gate::Gate;
use vrnic_adapter::datapath::transport::peers::Fabric;
use vrnic_adapter::ethernet::Frame;
use vrnic_adapter::watch::{Exchanged, Sender, Watcher};
use vrnic_faults::{Action, Rule, Site};

use super::host::ProcessHost;

/// The gate between the adapters and their network.
type OurGate = Gate<ProcessHost, ProcessHost>;

/// The rules, and the packets that wait because of them.
#[derive(Debug)]
pub struct Faults {
    gate: Arc<OurGate>,
    /// The thread that sends delayed packets, if there are rules.
    thread: Option<JoinHandle<()>>,
}

/// Shows packets to the rules.
#[derive(Debug)]
struct Packets(Arc<OurGate>);

impl Watcher for Packets {
    fn leaving(&self, from: &Sender<'_>, frames: &mut Vec<Frame>) {
        self.0.leaving(from, frames);
    }

    fn arriving(&self, _function: &str, _frame: &Frame, _note: Option<String>) {}

    fn wants(&self, _functions: [&str; 2], _length: u64) -> bool {
        false
    }

    fn exchanged(&self, _functions: [&str; 2], _message: Exchanged) {}

    fn datagram(&self, _from: &str, _to: Option<&str>, _frame: Frame) {}
}

impl Faults {
    /// Puts rules into force for the adapters of a network, whose hosts have the clock of `host`.
    ///
    /// # Errors
    /// Returns an error if there are too many rules, or if no thread can be started.
    pub fn new(
        fabric: &Arc<Fabric<ProcessHost>>,
        host: ProcessHost,
        rules: &[Rule],
    ) -> anyhow::Result<Self> {
        let gate = Arc::new(Gate::new(fabric, host));
        if rules.is_empty() {
            return Ok(Self { gate, thread: None });
        }
        fabric.watch.attach(Arc::new(Packets(Arc::clone(&gate))));
        for rule in rules {
            check(rule)?;
            gate.add(rule.clone()).with_context(|| format!("the rule '{rule}' is refused"))?;
        }
        if rules.iter().any(|rule| rule.action.site() == Site::Packet) {
            // There are none if messages are copied.
            fabric.use_packets_only();
        }
        gate.want();
        let sender = Arc::clone(&gate);
        let thread = thread::Builder::new().name("faults".to_owned());
        let thread = thread.spawn(move || sender.send_late()).context("cannot start a thread")?;
        Ok(Self { gate, thread: Some(thread) })
    }

    /// Returns a sentence for each rule that has hit nothing.
    #[must_use]
    pub fn missed(&self) -> Vec<String> {
        let rules = self.gate.rules().list(self.gate.now(), |listed| {
            let (rule, seen) = (listed.rule, listed.seen);
            let sentence = format!("the rule '{rule}' has hit nothing of {seen} that it has seen");
            (listed.hit == 0).then_some(sentence)
        });
        rules.into_iter().flatten().collect()
    }
}

/// Checks that a rule can act without a guest.
///
/// # Errors
/// Returns an error if it is about commands or interrupts, which only a driver in a guest has, or
/// lets the device fail, which nothing would reset.
fn check(rule: &Rule) -> anyhow::Result<()> {
    let resets = matches!(rule.action, Action::FailDevice(_));
    let driver = matches!(rule.action.site(), Site::Command | Site::Interrupt);
    ensure!(!resets && !driver, "the rule '{rule}' needs a driver in a guest; use scripts/lab");
    Ok(())
}

impl Drop for Faults {
    fn drop(&mut self) {
        self.gate.end();
        if let Some(thread) = self.thread.take() {
            // If it panicked, its message has been printed.
            let _panicked = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_need_a_driver_are_refused() {
        let good = |text: &str| check(&text.parse().expect("a rule")).is_ok();
        assert!(good("drop-message function=vrnic0") && good("fail-request status=rem-access-err"));
        for text in ["drop-command times=1", "drop-interrupt times=1", "fail-device"] {
            assert!(!good(text), "{text}");
        }
    }
}
