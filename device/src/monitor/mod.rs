//! What the daemon tells whoever watches it, over HTTP on a local socket or a TCP port: metrics for Prometheus,
//! and views of the adapters' objects as JSON (docs/monitor.md).
//!
//! It reads; nothing can be changed through it. Watchers are served by threads of their own and cannot hold up
//! a worker.

mod answer;
mod metrics;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Context;
use tiny_http::{Listener, Server};

use crate::function::Function;
use crate::socket::SocketFile;

/// Watchers that are answered at the same time.
const THREADS: usize = 4;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(try_from = "String")]
pub enum Address {
    /// A socket file.
    Path(PathBuf),
    /// An address and a port.
    Tcp(SocketAddr),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('/') {
            return Ok(Self::Path(text.into()));
        }
        let tcp = text.parse().map(Self::Tcp);
        tcp.map_err(|_| format!("'{text}' is neither a path (with a '/') nor ADDRESS:PORT"))
    }
}

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// The running monitor; on drop it listens no more.
pub struct Monitor {
    server: Arc<Server>,
    threads: Vec<JoinHandle<()>>,
    _file: Option<SocketFile>,
}

impl std::fmt::Debug for Monitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Monitor").finish_non_exhaustive()
    }
}

impl Monitor {
    /// Starts to listen.
    ///
    /// # Errors
    /// An address that cannot be used, or threads that the system does not give.
    pub fn start(address: &Address, functions: Vec<Arc<Function>>) -> anyhow::Result<Self> {
        let (listener, file) = match address {
            Address::Path(path) => {
                let file = SocketFile::bind(path)?;
                // The server waits in accept; it is woken by its own means.
                let listener = file.listener().try_clone()?;
                listener.set_nonblocking(false)?;
                (Listener::Unix(listener), Some(file))
            }
            Address::Tcp(address) => {
                let listener = TcpListener::bind(address)
                    .with_context(|| format!("listening at {address}"))?;
                (Listener::Tcp(listener), None)
            }
        };
        let server = Server::from_listener(listener, None).map_err(|e| anyhow::anyhow!(e))?;
        let server = Arc::new(server);
        let functions: Arc<[_]> = functions.into();
        let threads = (0..THREADS).map(|_| {
            let (server, functions) = (Arc::clone(&server), Arc::clone(&functions));
            let serve = move || serve(&server, &functions);
            std::thread::Builder::new().name("monitor".into()).spawn(serve)
        });
        let threads = threads.collect::<Result<_, _>>()?;
        Ok(Self { server, threads, _file: file })
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.threads.iter().for_each(|_| self.server.unblock());
        // A thread whose watcher does not read is left to the end of the process.
    }
}

fn serve(server: &Server, functions: &[Arc<Function>]) {
    // An error is the end: `unblock`.
    while let Ok(request) = server.recv() {
        let response = answer::answer(functions, request.method(), request.url());
        // The watcher has gone, which is its own affair.
        let _gone = request.respond(response);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        assert_eq!("/run/m".parse(), Ok(Address::Path("/run/m".into())));
        assert_eq!("./m".parse(), Ok(Address::Path("./m".into())));
        assert!(matches!("127.0.0.1:9100".parse(), Ok(Address::Tcp(_))));
        assert!(matches!("[::1]:9100".parse(), Ok(Address::Tcp(_))));
        assert!("localhost".parse::<Address>().expect_err("no").contains("localhost"));
    }
}
