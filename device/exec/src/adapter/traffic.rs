//! The traffic of the adapters: rules for deliberate faults (docs/faults.md) and captures.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use anyhow::{Context, bail, ensure};
use parking_lot::Mutex;
use vrnic_adapter::datapath::gate::Gate;
use vrnic_adapter::datapath::transport::peers::Fabric;
use vrnic_adapter::ethernet::Frame;
use vrnic_adapter::watch::{Exchanged, Sender, Watcher};
use vrnic_control::capture::Captures;
use vrnic_control::capture::recorder::Recorder;
use vrnic_faults::{Action, Rule, RuleId, Site};

use super::host::ProcessHost;

/// The gate between the adapters and their network.
type OurGate = Gate<ProcessHost, ProcessHost>;

/// The rules, the packets that wait because of them, and the captures.
#[derive(Debug)]
pub struct Traffic {
    fabric: Arc<Fabric<ProcessHost>>,
    gate: Arc<OurGate>,
    captures: Arc<Captures>,
    /// The thread that sends delayed packets. The first rule starts it.
    thread: Mutex<Option<JoinHandle<()>>>,
    own: Mutex<OwnRules>,
}

/// The rules of the command line, as opposed to those that clients add while the program runs.
#[derive(Debug, Default)]
struct OwnRules {
    /// The numbers of those that are in force.
    present: Vec<RuleId>,
    /// A sentence for each that was removed before it hit anything.
    missed: Vec<String>,
}

/// Shows traffic to the rules and to captures. Captures get packets when they leave, before faults
/// apply, and when they arrive.
#[derive(Debug)]
struct Observer {
    gate: Arc<OurGate>,
    captures: Arc<Captures>,
}

impl Watcher for Observer {
    fn leaving(&self, from: &Sender<'_>, frames: &mut Vec<Frame>) {
        for frame in &*frames {
            self.captures.frame(from.function, frame.bytes(), || from.note(frame.bytes()));
        }
        self.gate.leaving(from, frames);
    }

    fn arriving(&self, function: &str, frame: &Frame, note: Option<String>) {
        self.captures.frame(function, frame.bytes(), || note);
    }

    fn wants(&self, functions: [&str; 2], length: u64) -> bool {
        self.captures.wants(&functions, length)
    }

    fn exchanged(&self, functions: [&str; 2], message: Exchanged) {
        self.captures.message(&functions, message);
    }

    fn datagram(&self, from: &str, to: Option<&str>, frame: Frame) {
        self.captures.copied_frame(&[from, to.unwrap_or(from)], frame.bytes());
    }
}

impl Traffic {
    /// Observes the adapters of a network, whose hosts have the clock of `host`, and puts rules
    /// into force.
    ///
    /// # Errors
    /// Returns an error if a rule is refused, or if no thread can be started.
    pub fn new(
        fabric: &Arc<Fabric<ProcessHost>>,
        host: ProcessHost,
        rules: &[Rule],
    ) -> anyhow::Result<Self> {
        let gate = Arc::new(Gate::new(fabric, host));
        let captures = Arc::default();
        let observer = Observer { gate: Arc::clone(&gate), captures: Arc::clone(&captures) };
        fabric.watch.attach(Arc::new(observer));
        let (thread, own) = Default::default();
        let this = Self { fabric: Arc::clone(fabric), gate, captures, thread, own };
        for rule in rules {
            let added = this.add(rule.clone());
            let number = added.with_context(|| format!("the rule '{rule}' is refused"))?;
            this.own.lock().present.push(number);
        }
        Ok(this)
    }

    /// Returns the gate.
    #[must_use]
    pub fn gate(&self) -> &Gate<ProcessHost, ProcessHost> {
        &self.gate
    }

    /// Returns the captures.
    #[must_use]
    pub fn captures(&self) -> &Arc<Captures> {
        &self.captures
    }

    /// Returns what starts captures. They end when it is dropped.
    #[must_use]
    pub fn recorder(&self) -> Recorder<ProcessHost> {
        Recorder::new(&self.fabric, &self.captures)
    }

    /// Adds a rule. Returns its number. If it is for packets, messages of connections that are
    /// made from now on travel as packets.
    ///
    /// # Errors
    /// Returns an error if it needs a guest, if there are too many, or if no thread can be started.
    pub fn add(&self, rule: Rule) -> anyhow::Result<RuleId> {
        check(&rule)?;
        self.start()?;
        if rule.action.site() == Site::Packet {
            // There are none if messages are copied.
            self.fabric.use_packets_only();
        }
        let number = self.gate.add(rule)?;
        self.gate.want();
        Ok(number)
    }

    /// Removes one rule, or all. If all are removed, packets that wait are sent at once.
    ///
    /// # Errors
    /// Returns an error if there is no such rule.
    pub fn clear(&self, rule: Option<RuleId>) -> anyhow::Result<()> {
        let goes = |number: &RuleId| rule.is_none_or(|rule| rule == *number);
        let mut own = self.own.lock();
        let missed = self.unused(own.present.iter().copied().filter(goes));
        match rule {
            None => self.gate.clear(),
            Some(number) if self.gate.remove(number) => {}
            Some(number) => bail!("there is no rule {}", number.get()),
        }
        own.missed.extend(missed);
        own.present.retain(|number| !goes(number));
        self.gate.want();
        Ok(())
    }

    /// Starts the thread that sends delayed packets, unless it runs.
    fn start(&self) -> anyhow::Result<()> {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let gate = Arc::clone(&self.gate);
            let builder = thread::Builder::new().name("faults".to_owned());
            *thread = Some(builder.spawn(move || gate.send_late()).context("no thread starts")?);
        }
        Ok(())
    }

    /// Returns a sentence for each rule of the command line that has hit nothing, also for those
    /// that a client has removed.
    #[must_use]
    pub fn missed(&self) -> Vec<String> {
        let own = self.own.lock();
        let present = self.unused(own.present.iter().copied());
        own.missed.iter().cloned().chain(present).collect()
    }

    /// Returns a sentence for each of these rules that has hit nothing.
    fn unused(&self, rules: impl Iterator<Item = RuleId>) -> Vec<String> {
        let rules: Vec<RuleId> = rules.collect();
        let sentences = self.gate.rules().list(self.gate.now(), |listed| {
            let (rule, seen) = (listed.rule, listed.seen);
            let sentence = format!("the rule '{rule}' has hit nothing of {seen} that it has seen");
            (listed.hit == 0 && rules.contains(&listed.id)).then_some(sentence)
        });
        sentences.into_iter().flatten().collect()
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

impl Drop for Traffic {
    fn drop(&mut self) {
        self.gate.end();
        if let Some(thread) = self.thread.lock().take() {
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
