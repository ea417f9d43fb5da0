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
//! | [`resource_metrics`] | the table of resources in the format of Prometheus |
//! | [`metrics`] | the counters of adapters in the text format of Prometheus |
//! | [`port_metrics`] | the counters of the switch's ports, in the same format |
//! | [`fault_metrics`] | the counters of rules for faults, in the same format |

mod answer;
mod fault_metrics;
mod json;
mod metrics;
mod port_metrics;
mod resource_metrics;
mod serve;
mod view;

use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Context;
use tokio::sync::oneshot;
use vrnic_adapter::adapter::Adapter;
use vrnic_adapter::host::Host;
use vrnic_control_api::faults::FaultsView;
use vrnic_control_api::{AdapterView, Address, PortView, ResourceRow};

use self::serve::Listener;
use crate::socket::SocketFile;
use crate::socket::access::Access;

/// The data that the monitor shows.
pub trait Watched: Clone + Send + Sync + 'static {
    /// The host of the adapters.
    type Host: Host;

    /// The names and the help texts of counters that [`Self::complete`] adds.
    const COUNTERS: &'static [(&'static str, &'static str)] = &[];

    /// Returns the adapters.
    fn adapters(&self) -> Vec<Arc<Adapter<Self::Host>>>;

    /// Returns the rows of the table of resources.
    fn resources(&self) -> Vec<ResourceRow>;

    /// Returns the ports of the switch.
    fn ports(&self) -> Vec<PortView>;

    /// Returns the rules for faults.
    fn faults(&self) -> FaultsView;

    /// Adds what the host of an adapter counts to its view.
    fn complete(&self, _adapter: &Adapter<Self::Host>, _view: &mut AdapterView) {}

    /// Returns the views of all adapters.
    fn views(&self) -> Vec<AdapterView> {
        let view = |adapter: &Arc<Adapter<Self::Host>>| {
            let mut view = view::of(adapter);
            self.complete(adapter, &mut view);
            view
        };
        self.adapters().iter().map(view).collect()
    }
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
    pub fn start(
        address: &Address,
        access: &Access,
        watched: impl Watched,
    ) -> anyhow::Result<Self> {
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
