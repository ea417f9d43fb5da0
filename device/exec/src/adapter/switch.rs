//! The Ethernet switch between the adapters of a run and other runs or daemons. The daemon's crate
//! has one. It is not used directly, because that crate has the program `vrnic`, and with it this
//! crate.

use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use vrnic_adapter::ethernet::{Frame, Offered, Uplink};
use vrnic_packet::MacAddr;

/// Starts a switch without ports.
pub type Start = fn() -> io::Result<Arc<dyn Switch>>;

/// An adapter at a port.
pub trait Port: Debug + Send + Sync {
    /// Takes a frame whose destination is the adapter's MAC or a group, or gives it back.
    fn offer(&self, frame: Frame) -> Offered;

    /// Returns whether the adapter has room for more frames.
    fn has_room(&self) -> bool;
}

/// The way to another run or a daemon.
#[derive(Debug)]
pub enum Way {
    /// A connection, which is not made again when it ends.
    Connected(OwnedFd),
    /// The socket at which a daemon listens. The connection is made again and again.
    Daemon(PathBuf),
}

/// A trunk, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrunkView {
    /// The name.
    pub name: String,
    /// True if there is a peer.
    pub up: bool,
}

/// A switch. It has a thread of its own. While the worker of the adapters is awake, the worker runs
/// it by [`Self::poll`].
pub trait Switch: Debug + Send + Sync {
    /// Returns what takes the frames of adapters.
    fn uplink(&self) -> Arc<dyn Uplink>;

    /// Adds the port of an adapter.
    ///
    /// # Errors
    /// The error of the system.
    fn add_adapter(&self, name: &str, mac: MacAddr, adapter: Arc<dyn Port>) -> io::Result<()>;

    /// Adds a trunk.
    ///
    /// # Errors
    /// The error of the system.
    fn add_trunk(&self, name: &str, way: Way) -> io::Result<()>;

    /// Removes a trunk.
    fn remove(&self, name: &str);

    /// Returns all trunks.
    fn trunks(&self) -> Vec<TrunkView>;

    /// Forwards frames that wait. Returns whether there were any. Only the worker calls this.
    fn poll(&self) -> bool;

    /// Records that the worker is about to sleep, or has woken. A switch begins with a worker that
    /// sleeps.
    fn set_asleep(&self, asleep: bool);

    /// Returns whether frames of adapters wait.
    fn has_work(&self) -> bool;
}
