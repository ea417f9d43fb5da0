//! The monitor: it serves state over HTTP, on a local socket or a TCP port: metrics for Prometheus,
//! and views of the adapters' objects as JSON (docs/monitor.md).
//!
//! The monitor only reads; it changes nothing. One thread serves all clients, and cannot delay a
//! worker.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`serve`] | connections of clients, and their limits |
//! | [`answer`] | answers to requests |
//! | [`json`] | objects as JSON |
//! | [`view`] | adapters as clients see them |
//! | [`resource_view`], [`resource_metrics`] | the table of resources as JSON, and in the format of Prometheus |
//! | [`metrics`] | the counters of adapters in the text format of Prometheus |
//! | [`port_metrics`] | the counters of the switch's ports, in the same format |
//! | [`fault_metrics`] | the counters of rules for faults, in the same format |

mod answer;
mod fault_metrics;
mod json;
mod metrics;
mod port_metrics;
mod resource_metrics;
mod resource_view;
mod serve;
mod view;

use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Context;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use vrnic_control_api::Address;

use self::serve::Listener;
use crate::faults::Faults;
use crate::hosted::roster::Roster;
use crate::net::handle::SwitchHandle;
use crate::resources::table::ResourceTable;
use crate::socket::SocketFile;
use crate::socket::access::Access;

/// The data that the monitor shows.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The adapters of the daemon.
    pub adapters: Arc<Roster>,
    /// The table of resources.
    pub resources: Arc<Mutex<ResourceTable>>,
    /// The Ethernet switch of the daemon.
    pub switch: SwitchHandle,
    /// The rules for faults.
    pub faults: Arc<Faults>,
}

/// The running monitor. On drop, its thread ends and its socket is closed.
#[derive(Debug)]
pub struct Monitor {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    _file: Option<SocketFile>,
}

impl Monitor {
    /// Starts to listen.
    ///
    /// # Errors
    /// Returns an error if the address cannot be used, or if no thread can be started.
    pub fn start(address: &Address, access: &Access, watched: Watched) -> anyhow::Result<Self> {
        // One thread serves all clients, so that they use at most one CPU together.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let inside = runtime.enter();
        let (listener, file) = match address {
            Address::Path(path) => {
                let file = SocketFile::bind(path, access)?;
                (Listener::unix(file.listener().try_clone()?)?, Some(file))
            }
            Address::Tcp(address) => {
                let listener = TcpListener::bind(address)
                    .with_context(|| format!("cannot listen at {address}"))?;
                (Listener::tcp(listener)?, None)
            }
        };
        drop(inside);
        let (stop, stopped) = oneshot::channel();
        let serve = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve::serve(listener, watched) => {}
                    _ = stopped => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name("monitor".into()).spawn(serve)?;
        Ok(Self { stop: Some(stop), thread: Some(thread), _file: file })
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // The thread ends by this, or by a panic.
        drop(self.stop.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the monitor's thread panicked");
        }
    }
}
