//! Start and end of the daemon's parts, and its periodic work.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`descriptors`] | the limit of file descriptors |
//! | [`assign`] | changes of the resources of functions |
//! | [`drain`] | the end of work requests that have begun, before the daemon ends |
//! | [`functions`] | creation and removal of functions |
//! | [`ports`] | the switch's ports as the settings describe them |
//! | [`running`] | what can be changed while the daemon runs |
//! | [`reload`] | what a new version of the settings changes |
//! | [`shown`] | what the monitor shows |
//! | [`priorities`] | the counters of lanes by the names of mlx5 |
//! | [`traffic`] | the adapters' packets on their way to faults and captures |
//! | [`housekeeping`] | heartbeats, and clients of busy sockets |
//! | [`watchdog`] | the progress of the threads, for systemd |

mod assign;
pub mod descriptors;
mod drain;
mod functions;
pub mod housekeeping;
mod ports;
mod priorities;
mod reload;
mod running;
mod shown;
pub mod traffic;
pub mod watchdog;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use parking_lot::Mutex;
use vrnic_adapter::datapath::transport::peers::Fabric;
use vrnic_adapter::ethernet::Uplink;
use vrnic_control::monitor::Monitor;
use vrnic_control::reconfig::Reconfig;
use vrnic_packet::Mtu;

use self::functions::Maker;
use self::housekeeping::Housekeeping;
use self::running::Running;
use self::shown::Shown;
use self::traffic::Traffic;
use self::watchdog::{Member, Watchdog};
use crate::config::ethernet::Ethernet;
use crate::config::{self, Config};
use crate::faults::Faults;
use crate::host::vfio_host::VfioHost;
use crate::hosted::roster::Roster;
use crate::memory::stall::Watched;
use crate::net::thread::SwitchThread;
use crate::worker::engines::Engines;
use crate::worker::pool::{Pool, WorkerSetup};
use crate::worker::pulse::Pinged;
use crate::worker::waker::Waker;

/// A running daemon. Dropping it ends all threads that do not serve a VMM, and removes the sockets.
pub struct Daemon {
    /// The settings at the start, with the functions, ports and uplinks of the last reload.
    config: Config,
    watchdog: Option<Watchdog>,
    members: Vec<Member>,
    // The fields are dropped in this order: first no changes, no new VMM and no Ethernet, then the
    // rest.
    reconfig: Option<Reconfig>,
    running: Arc<Running>,
    roster: Arc<Roster>,
    _switch: SwitchThread,
    _monitor: Option<Monitor>,
    _housekeeping: Housekeeping,
    _workers: Pool,
}

impl Daemon {
    /// Starts what `config` describes.
    ///
    /// # Errors
    /// Returns an error if a socket cannot be used, or if the system lacks a resource.
    pub fn start(config: &Config) -> anyhow::Result<Self> {
        let roster: Arc<Roster> = Arc::default();
        let switch = switch(&roster)?;
        let workers = workers(config).context("cannot create workers")?;
        let attendant = switch.attendant(workers.len());
        workers.iter().for_each(|worker| worker.engines.add(Arc::clone(&attendant)));
        let busy_sockets = Arc::default();
        let fabric = fabric(config, &switch);
        let faults = Arc::new(Faults::new(&fabric, &roster));
        let captures = Arc::clone(switch.handle().captures());
        fabric.watch.attach(Arc::new(Traffic { faults: Arc::clone(&faults), captures }));
        let resources = Arc::new(Mutex::new(config.resources()));
        let maker = Maker {
            access: config.access,
            limits: config.limits,
            resources: Arc::clone(&resources),
            rules: config.map_rules,
            vectors: config.vectors,
            mpa_crc: config.mpa_crc,
            keepalive: config.keepalive,
            fabric,
            engines: workers.iter().map(|worker| Arc::clone(&worker.engines)).collect(),
            switch: switch.handle().clone(),
            roster: Arc::clone(&roster),
            busy_sockets: Arc::clone(&busy_sockets),
            faults: Arc::clone(&faults),
        };
        let (adapters, ports) = (Arc::clone(&roster), switch.handle().clone());
        let shown = Shown { adapters, resources, switch: ports, faults: Arc::clone(&faults) };
        let running = Running::start(maker, &config.ethernet, faults)?;
        let running = Arc::new(running);
        let monitor = config.monitor.as_ref();
        let monitor = monitor.map(|at| Monitor::start(at, &config.access, shown)).transpose();
        let monitor = monitor.context("cannot start the monitor")?;
        let housekeeping = Housekeeping::start(Arc::clone(&roster), busy_sockets);
        let housekeeping = housekeeping.context("cannot start the housekeeping thread")?;
        let reconfig = config.control.as_ref().map(|path| {
            let running = Arc::clone(&running);
            Reconfig::start(path, Watched::begin, Box::new(move |request| running.handle(request)))
        });
        let reconfig = reconfig.transpose().context("cannot open the control socket")?;
        let members = members(&workers, &switch, &housekeeping);
        let workers = Pool::start(workers, &config.idle).context("cannot start workers")?;
        running.announce();
        Ok(Self {
            config: config.clone(),
            watchdog: None,
            members,
            reconfig,
            running,
            roster,
            _switch: switch,
            _monitor: monitor,
            _housekeeping: housekeeping,
            _workers: workers,
        })
    }

    /// Starts the watchdog, which tells systemd that the threads make progress. systemd ends the
    /// daemon if it receives no message for `interval`.
    ///
    /// # Errors
    /// Returns an error if no thread can be started.
    pub fn start_watchdog(&mut self, interval: Duration) -> anyhow::Result<()> {
        let watchdog = Watchdog::start(interval, self.members.clone());
        self.watchdog = Some(watchdog.context("cannot start the watchdog")?);
        Ok(())
    }

    /// Adds the objects that are new in the settings `new`, and changes the resources of functions
    /// and of the adapter to those of `new`. Logs the changes that need a new start.
    pub fn reload(&mut self, new: Config) {
        reload::log_fixed(&self.config, &new);
        self.running.assign_again(&new.ethernet.functions, &new.physical);
        self.running.reload(&self.config.ethernet, &new.ethernet);
        let fabric = self.config.ethernet.fabric;
        self.config.ethernet = Ethernet { fabric, ..new.ethernet };
    }

    /// Lets the work requests that have begun end, and tells the drivers that the adapters stop.
    /// Waits for the time of the settings, or until `is_urgent` returns true. Then the daemon is
    /// ready to be dropped.
    pub fn drain(&mut self, is_urgent: impl FnMut() -> bool) {
        // No function is added meanwhile.
        drop(self.reconfig.take());
        drain::drain(&self.roster.all(), self.config.drain, is_urgent);
    }

    /// Returns the number of adapters.
    #[must_use]
    pub fn adapters(&self) -> usize {
        self.running.functions()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.watchdog.take());
        drop(self.reconfig.take());
        self.running.close();
    }
}

/// Starts the Ethernet switch, which tells the adapters of the roster about the MTU of the network.
fn switch(roster: &Arc<Roster>) -> anyhow::Result<SwitchThread> {
    let roster = Arc::clone(roster);
    let limit = move |mtu: Mtu| {
        roster.all().iter().for_each(|hosted| hosted.limit_mtu(mtu));
    };
    let switch = SwitchThread::start(Box::new(limit));
    switch.context("cannot start the Ethernet switch")
}

/// Returns a network for the adapters, still without adapters. Frames to MACs of other stations go
/// to the switch.
fn fabric(config: &Config, switch: &SwitchThread) -> Arc<Fabric<VfioHost>> {
    let fabric = Fabric::default();
    fabric.attach(Arc::clone(switch.handle().outbox()) as Arc<dyn Uplink>);
    if config.ethernet.fabric == config::ethernet::Fabric::Wire {
        fabric.use_packets_only();
    }
    Arc::new(fabric)
}

/// Returns the threads that all guests depend on.
fn members(
    workers: &[WorkerSetup],
    switch: &SwitchThread,
    housekeeping: &Housekeeping,
) -> Vec<Member> {
    let workers = workers.iter().enumerate().map(|(number, worker)| {
        (format!("worker-{number}"), Arc::clone(&worker.engines) as Arc<dyn Pinged>)
    });
    let others = [
        ("switch".to_owned(), switch.handle().pinged()),
        ("housekeeping".to_owned(), housekeeping.pinged()),
    ];
    workers.chain(others).collect()
}

/// Returns workers without adapters.
fn workers(config: &Config) -> std::io::Result<Vec<WorkerSetup>> {
    let setup = |index: usize| {
        let engines = Arc::new(Engines::new(Arc::new(Waker::new()?)));
        Ok(WorkerSetup { engines, cpu: config.pin.get(index).copied() })
    };
    (0..config.workers).map(setup).collect()
}
