//! Connections of watchers. Any local user may connect many times, send slowly, or not read the
//! answer, so connections are limited in number, in the size of a request and in time.

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
use crate::worker::pool::now_ns;

/// Watchers that are connected at the same time; more wait in the socket's queue.
const CONNECTIONS: usize = 32;
/// Longest time from the start of a request, or from the end of the last one, to the end of its
/// header.
const HEADER: Duration = Duration::from_secs(3);
/// Longest time of a connection. A watcher that asks for more connects again.
const CONNECTION: Duration = Duration::from_secs(30);
/// Largest header of a request in bytes; the least that hyper takes.
const HEADER_BYTES: usize = 8192;
/// Most lines of a header.
const HEADER_LINES: usize = 64;
/// Pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// A socket that watchers connect to.
pub(super) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// A watcher's connection.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Listener {
    /// To be called in the runtime that will accept.
    pub(super) fn unix(listener: std::os::unix::net::UnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        UnixListener::from_std(listener).map(Self::Unix)
    }

    /// To be called in the runtime that will accept.
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
pub(super) async fn serve(listener: Listener, watched: Watched) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let limiter = Limiter::default();
    loop {
        // The semaphore is never closed, so this is always a permit.
        let permit = Arc::clone(&room).acquire_owned().await.ok();
        match listener.accept().await {
            Ok(stream) => {
                tokio::spawn(watcher(stream, watched.clone(), permit));
            }
            // Descriptors have run out, or the watcher has gone already.
            Err(error) => {
                limiter.warn(now_ns(), || {
                    tracing::warn!(%error, "the monitor cannot accept a connection");
                });
                sleep(PAUSE).await;
            }
        }
    }
}

/// Serves one watcher until it leaves, breaks a limit or its time is over.
async fn watcher(stream: Box<dyn Stream>, watched: Watched, _permit: Option<OwnedSemaphorePermit>) {
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
