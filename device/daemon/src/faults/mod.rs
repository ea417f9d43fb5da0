//! Rules for deliberate faults (docs/faults.md): applies them to the packets that adapters send,
//! and lets adapters do what other rules demand by time.

mod ticker;

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use anyhow::{Context, bail};
use parking_lot::Mutex;
use vrnic_adapter::datapath::gate::Gate;
use vrnic_adapter::datapath::transport::peers::Fabric;
use vrnic_adapter::ethernet::Frame;
use vrnic_adapter::host::Clock;
use vrnic_adapter::watch::Sender;
use vrnic_control::fault_view;
use vrnic_control_api::faults::FaultsView;
use vrnic_faults::{Action, Observer, Rule, RuleId, Site};
use vrnic_packet::Nanos;

use self::ticker::{Bell, Ticker};
use crate::host::vfio_host::VfioHost;
use crate::hosted::roster::Roster;
use crate::worker::pool;

/// The clock of the workers.
#[derive(Debug)]
struct PoolClock;

impl Clock for PoolClock {
    fn now(&self) -> Nanos {
        pool::now()
    }
}

/// The rules of the daemon, and the packets that wait because of them.
#[derive(Debug)]
pub struct Faults {
    gate: Arc<Gate<VfioHost, PoolClock>>,
    /// The thread that sends delayed packets. The first rule that delays packets starts it.
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Lets adapters do what rules demand by time. The first rule that is not for packets starts
    /// its thread.
    ticker: Ticker,
}

impl Faults {
    /// Returns an empty set of rules for the adapters of a fabric.
    #[must_use]
    pub fn new(fabric: &Arc<Fabric<VfioHost>>, roster: &Arc<Roster>) -> Self {
        let rules = Arc::clone(&fabric.faults);
        let ticker = Ticker::new(&rules, roster);
        let gate = Arc::new(Gate::new(fabric, PoolClock));
        rules.attach(Box::new(Changes { gate: Arc::downgrade(&gate), bell: ticker.bell() }));
        Self { gate, thread: Mutex::default(), ticker }
    }

    /// Applies the rules to frames that leave.
    pub fn leaving(&self, from: &Sender<'_>, frames: &mut Vec<Frame>) {
        self.gate.leaving(from, frames);
    }

    /// Starts the threads that rules need, before guests add some.
    ///
    /// # Errors
    /// Returns an error if no thread can be started.
    pub fn prepare(&self) -> anyhow::Result<()> {
        self.send_late()?;
        self.ticker.start()
    }

    /// Starts the thread that sends delayed packets, unless it runs.
    fn send_late(&self) -> anyhow::Result<()> {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let gate = Arc::clone(&self.gate);
            let builder = std::thread::Builder::new().name("faults".into());
            let started = builder.spawn(move || gate.send_late());
            *thread = Some(started.context("cannot start a thread")?);
        }
        Ok(())
    }

    /// Adds a rule; returns its number.
    ///
    /// # Errors
    /// Returns an error if too many rules exist, or if no thread can be started.
    pub fn add(&self, rule: Rule) -> anyhow::Result<RuleId> {
        if matches!(rule.action, Action::Delay(_) | Action::Reorder(_)) {
            self.send_late()?;
        }
        if rule.action.site() != Site::Packet {
            self.ticker.start()?;
        }
        Ok(self.gate.add(rule)?)
    }

    /// Removes one rule, or all. If all are removed, packets that wait are sent at once.
    ///
    /// # Errors
    /// Returns an error if no such rule exists.
    pub fn clear(&self, rule: Option<u32>) -> anyhow::Result<()> {
        let Some(number) = rule else {
            self.gate.clear();
            return Ok(());
        };
        if !self.gate.remove(RuleId::new(number)) {
            bail!("there is no rule {number}");
        }
        Ok(())
    }

    /// Returns the rules with their counters.
    #[must_use]
    pub fn view(&self) -> FaultsView {
        fault_view::view(&self.gate)
    }
}

/// Acts on changes of the rules.
#[derive(Debug)]
struct Changes {
    gate: Weak<Gate<VfioHost, PoolClock>>,
    bell: Bell,
}

impl Observer for Changes {
    fn changed(&self) {
        if let Some(gate) = self.gate.upgrade() {
            gate.want();
        }
        self.bell.ring();
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        self.gate.end();
        if self.thread.lock().take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that sends delayed packets panicked");
        }
    }
}
