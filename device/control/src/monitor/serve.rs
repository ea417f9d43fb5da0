//! Connections of clients. Any local user may connect many times, send slowly, or not read the
//! answer. So connections are limited in number, in the size of a request and in time.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use vrnic_adapter::log_ratelimit::Limiter;

use super::Watched;
use super::answer::answer;
use crate::now;

/// Maximum number of connected clients. More clients wait in the socket's queue.
const CONNECTIONS: usize = 32;
/// Maximum time from the start of the connection, or from the end of the last request, to the end
/// of a request's header.
const HEADER: Duration = Duration::from_secs(3);
/// Maximum duration of a connection. A client that needs more time connects again.
const CONNECTION: Duration = Duration::from_secs(30);
/// Maximum length of a request's header in bytes; hyper accepts no lower limit.
const HEADER_BYTES: usize = 8192;
/// Maximum number of lines of a header.
const HEADER_LINES: usize = 64;
/// Pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// The socket that clients connect to.
pub(super) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// A client's connection.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Listener {
    /// Creates a listener. Must be called in the runtime that will accept.
    pub(super) fn unix(listener: std::os::unix::net::UnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        UnixListener::from_std(listener).map(Self::Unix)
    }

    /// Creates a listener. Must be called in the runtime that will accept.
    pub(super) fn tcp(listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener).map(Self::Tcp)
    }

    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Unix(listener) => Box::new(listener.accept().await?.0),
            Self::Tcp(listener) => Box::new(listener.accept().await?.0),
        })
    }
}

/// Serves clients until it is cancelled.
pub(super) async fn serve(listener: Listener, watched: impl Watched) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let limiter = Limiter::default();
    loop {
        // The semaphore is never closed, so a permit is always returned.
        let permit = Arc::clone(&room).acquire_owned().await.ok();
        match listener.accept().await {
            Ok(stream) => {
                tokio::spawn(watcher(stream, watched.clone(), permit));
            }
            // There are no descriptors left, or the client has already disconnected.
            Err(error) => {
                limiter.warn(now(), || {
                    tracing::warn!(%error, "the monitor cannot accept a connection");
                });
                sleep(PAUSE).await;
            }
        }
    }
}

/// Serves one client until it disconnects, exceeds a limit or its time is over.
async fn watcher(
    stream: Box<dyn Stream>,
    watched: impl Watched,
    _permit: Option<OwnedSemaphorePermit>,
) {
    let service = service_fn(|request| {
        let answer = answer(&watched, request.method(), request.uri());
        async move { Ok::<_, Infallible>(answer) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEADER)
        .max_buf_size(HEADER_BYTES)
        .max_headers(HEADER_LINES);
    let connection = http.serve_connection(TokioIo::new(stream), service);
    match timeout(CONNECTION, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a watcher's connection failed"),
        Err(_) => tracing::debug!("a watcher's connection took too long"),
    }
}
