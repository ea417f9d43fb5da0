//! The switch for `vrnic exec --join`: that of the daemon, without a daemon.

use std::fmt;
use std::io;
use std::sync::Arc;

use vrnic_adapter::ethernet::{Frame, Offered, Uplink};
use vrnic_adapter::slice::SLICE;
use vrnic_control_api::port_view::Kind;
use vrnic_exec::adapter::switch::{Port, Switch, TrunkView, Way};
use vrnic_packet::{MacAddr, VlanMac};

use crate::net::line::Line;
use crate::net::port::setup::{FrameSink, PortSetup, Vmm};
use crate::net::thread::SwitchThread;
use crate::net::uplinks::trunk::{End, Trunk};
use crate::worker::engine::Engine;

/// A running switch, and the engine by which the worker of the adapters runs it.
struct ExecSwitch {
    thread: SwitchThread,
    engine: Arc<dyn Engine>,
}

/// Starts a switch without ports.
///
/// # Errors
/// Returns an error if descriptors or threads run out.
pub fn start() -> io::Result<Arc<dyn Switch>> {
    let thread = SwitchThread::start(Box::new(|_| ()))?;
    let engine = thread.attendant(1);
    engine.set_asleep(true);
    Ok(Arc::new(ExecSwitch { thread, engine }))
}

impl fmt::Debug for ExecSwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecSwitch").finish_non_exhaustive()
    }
}

impl Switch for ExecSwitch {
    fn uplink(&self) -> Arc<dyn Uplink> {
        Arc::clone(self.thread.handle().outbox()) as Arc<dyn Uplink>
    }

    fn add_adapter(&self, name: &str, mac: MacAddr, adapter: Arc<dyn Port>) -> io::Result<()> {
        self.thread.handle().add(PortSetup {
            mac: Some(mac),
            sink: Some(Box::new(Sink(adapter))),
            ..PortSetup::new(name, Kind::Function)
        })
    }

    fn add_trunk(&self, name: &str, way: Way) -> io::Result<()> {
        let end = match way {
            Way::Connected(socket) => End::Connected(Some(socket)),
            Way::Daemon(path) => End::Connect(path),
        };
        let line: Box<dyn Line> = Box::new(Trunk::new(end));
        self.thread
            .handle()
            .add(PortSetup { line: Some(line), ..PortSetup::new(name, Kind::Trunk) })
    }

    fn remove(&self, name: &str) {
        // The switch has ended, or there is no such trunk any more.
        let _gone = self.thread.handle().remove(name);
    }

    fn trunks(&self) -> Vec<TrunkView> {
        let ports = self.thread.handle().ports().into_iter();
        let trunks = ports.filter(|port| port.kind == Kind::Trunk);
        trunks.map(|port| TrunkView { name: port.name, up: port.up }).collect()
    }

    fn poll(&self) -> bool {
        self.engine.poll(SLICE).busy
    }

    fn set_asleep(&self, asleep: bool) {
        self.engine.set_asleep(asleep);
    }

    fn has_work(&self) -> bool {
        self.engine.has_work()
    }
}

/// An adapter behind its port. It has one MAC, no guest and no TCP connections.
struct Sink(Arc<dyn Port>);

impl FrameSink for Sink {
    fn offer(&self, frame: Frame) -> Offered {
        self.0.offer(frame)
    }

    fn has_address(&self, _at: VlanMac) -> bool {
        false
    }

    fn claims(&self, _mac: MacAddr) -> bool {
        false
    }

    fn messages(&self) -> u64 {
        0
    }

    fn vmm(&self) -> Option<Vmm> {
        None
    }

    fn has_taken_over(&self, _frame: &[u8]) -> bool {
        false
    }

    fn sniff(&self, _frame: &Frame) {}

    fn note(&self, _frame: &Frame) -> Option<String> {
        None
    }

    fn has_room(&self) -> bool {
        self.0.has_room()
    }
}
