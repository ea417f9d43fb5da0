//! The monitor: it serves state over HTTP, on a local socket or a TCP port: metrics for Prometheus,
//! and views of the adapters' objects as JSON (docs/monitor.md).
//!
//! It reads; nothing can be changed through it. All watchers are served by one thread, which cannot
//! hold up a worker.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`serve`] | connections of watchers, and their limits |
//! | [`answer`] | which request is answered with what |
//! | [`json`] | objects as JSON |
//! | [`view`] | adapters as watchers see them |
//! | [`metrics`] | the counters of adapters in the text format of Prometheus |
//! | [`port_metrics`] | those of the switch's ports |
//! | [`fault_metrics`] | those of rules for faults |

mod answer;
mod fault_metrics;
mod json;
mod metrics;
mod port_metrics;
mod serve;
mod view;

use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Context;
use tokio::sync::oneshot;

use self::serve::Listener;
pub use self::view::AdapterView;
use crate::access::Access;
use crate::faults::Faults;
use crate::net::handle::SwitchHandle;
use crate::roster::Roster;
use crate::socket::{Address, SocketFile};

/// The contents of the monitor.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The adapters.
    pub adapters: Arc<Roster>,
    /// The switch.
    pub switch: SwitchHandle,
    /// The rules for faults.
    pub faults: Arc<Faults>,
}

/// The running monitor; on drop its thread ends, and it listens no more.
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
    /// An address that cannot be used, or a thread that the system does not give.
    pub fn start(address: &Address, access: &Access, watched: Watched) -> anyhow::Result<Self> {
        // One thread serves all watchers, so that they together take one processor at most.
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
        // The thread ends by this, and by nothing else but a panic.
        drop(self.stop.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the monitor's thread panicked");
        }
    }
}
