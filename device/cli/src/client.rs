//! Requests to the daemon.

use std::time::Duration;

use anyhow::{Context, bail};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use vrnic_control_api::{AdapterView, Address, PortView, ResourceRow};

/// Longest time to wait for the daemon.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum length of an answer in bytes. The longest page of objects is much shorter.
const ANSWER_MAX: usize = 64 << 20;

/// A page of objects.
#[derive(Deserialize)]
struct Page {
    items: Vec<Value>,
    next: Option<u32>,
}

/// A connection to the daemon's monitor.
pub(crate) struct Client {
    address: Address,
    runtime: Runtime,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Client {
    pub(crate) fn new(address: Address) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { address, runtime })
    }

    /// Returns all functions.
    pub(crate) fn functions(&self) -> anyhow::Result<Vec<AdapterView>> {
        parse(&self.get("/functions")?)
    }

    /// Returns all rows of the table of resources.
    pub(crate) fn resources(&self) -> anyhow::Result<Vec<ResourceRow>> {
        parse(&self.get("/resources")?)
    }

    /// Returns all ports of the switch.
    pub(crate) fn ports(&self) -> anyhow::Result<Vec<PortView>> {
        parse(&self.get("/ports")?)
    }

    /// Returns all objects of a kind. Reads them page by page.
    pub(crate) fn objects(&self, function: &str, kind: &str) -> anyhow::Result<Vec<Value>> {
        let mut all = Vec::new();
        let mut from = Some(0);
        while let Some(number) = from {
            let text = self.get(&format!("/functions/{function}/{kind}?from={number}"))?;
            let page: Page = parse(&text)?;
            all.extend(page.items);
            // Otherwise a daemon that repeats a page would cause an endless loop.
            from = page.next.filter(|next| *next > number);
        }
        Ok(all)
    }

    /// Returns the body of the answer to a request.
    pub(crate) fn get(&self, path: &str) -> anyhow::Result<String> {
        self.runtime.block_on(async {
            let answer = timeout(TIMEOUT, self.request(path)).await;
            answer.with_context(|| {
                format!("the daemon did not answer within {} s", TIMEOUT.as_secs())
            })?
        })
    }

    async fn request(&self, path: &str) -> anyhow::Result<String> {
        let stream = TokioIo::new(self.connect().await?);
        let (mut sender, connection) = handshake(stream).await?;
        let connection = tokio::spawn(connection);
        let request = Request::get(path).header(HOST, "vrnicd").body(Empty::<Bytes>::new())?;
        let answer = sender.send_request(request).await.context("the daemon did not answer")?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
        let body = body
            .map_err(|error| anyhow::anyhow!(error))
            .context("the daemon's reply was cut off")?;
        connection.abort();
        let body =
            String::from_utf8(body.to_bytes().into()).context("the daemon's reply is not text")?;
        if status != StatusCode::OK {
            bail!("the daemon refused the request for {path}: {}", body.trim());
        }
        Ok(body)
    }

    async fn connect(&self) -> anyhow::Result<Box<dyn Stream>> {
        Ok(match &self.address {
            Address::Path(path) => {
                Box::new(UnixStream::connect(path).await.with_context(|| {
                    format!(
                        "cannot connect to {}; is vrnicd running with --monitor?",
                        path.display()
                    )
                })?)
            }
            Address::Tcp(address) => {
                Box::new(TcpStream::connect(address).await.with_context(|| {
                    format!("cannot connect to {address}; is vrnicd running with --monitor?")
                })?)
            }
        })
    }
}

fn parse<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    serde_json::from_str(text).context(
        "the daemon's reply has an unexpected form; vrnic and vrnicd may be of different versions",
    )
}
