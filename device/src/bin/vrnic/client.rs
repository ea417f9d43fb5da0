//! Asking the daemon.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::de::DeserializeOwned;
use vrnic_adapter::inspect::{FunctionView, Page};
use vrnic_device::monitor::Address;

/// Longest time to wait for the daemon.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the daemon answers.
pub(crate) struct Client {
    address: Address,
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

impl Client {
    pub(crate) fn new(address: Address) -> Self {
        Self { address }
    }

    /// All functions.
    pub(crate) fn functions(&self) -> anyhow::Result<Vec<FunctionView>> {
        parse(&self.get("/functions")?)
    }

    /// All objects of a kind, page by page.
    pub(crate) fn objects<T: DeserializeOwned>(
        &self,
        function: &str,
        kind: &str,
    ) -> anyhow::Result<Vec<T>> {
        let mut all = Vec::new();
        let mut from = Some(0);
        while let Some(number) = from {
            let text = self.get(&format!("/functions/{function}/{kind}?from={number}"))?;
            let page: Page<T> = parse(&text)?;
            all.extend(page.items);
            // A daemon that does not go on would keep us here.
            from = page.next.filter(|next| *next > number);
        }
        Ok(all)
    }

    /// The body of the answer to a request.
    pub(crate) fn get(&self, path: &str) -> anyhow::Result<String> {
        let mut stream = self.connect()?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).context("the daemon's answer")?;
        let (head, body) = answer.split_once("\r\n\r\n").context("the answer is not HTTP")?;
        let status = head.split(' ').nth(1).unwrap_or_default();
        if status != "200" {
            bail!("the daemon refuses {path}: {}", body.trim());
        }
        Ok(body.to_owned())
    }

    fn connect(&self) -> anyhow::Result<Box<dyn Stream>> {
        Ok(match &self.address {
            Address::Path(path) => {
                let stream = UnixStream::connect(path).with_context(|| {
                    format!(
                        "no daemon answers at {}; is vrnicd running with --monitor?",
                        path.display()
                    )
                })?;
                stream.set_read_timeout(Some(PATIENCE))?;
                Box::new(stream)
            }
            Address::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, PATIENCE)
                    .with_context(|| format!("no daemon answers at {address}"))?;
                stream.set_read_timeout(Some(PATIENCE))?;
                Box::new(stream)
            }
        })
    }
}

fn parse<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    serde_json::from_str(text).context("the daemon's answer; is it of this version?")
}
