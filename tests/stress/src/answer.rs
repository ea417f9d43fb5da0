//! A server of iWARP connections. For each connection, its peer chooses what the server does.

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;

use crate::common::Common;
use vrnic_verbs::cm::{Connection, Listener, News, Request, Wishes};
use vrnic_verbs::prng::Rng;
use vrnic_verbs::qp::Qp;

/// Time for which the server waits for the next request before it checks its connections.
const TURN: Duration = Duration::from_millis(5);
/// Time after which a request is destroyed that was not answered.
const SILENCE: Duration = Duration::from_secs(2);
/// Number of requests that may wait.
const BACKLOG: i32 = 64;

/// The way in which a server answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The server accepts, and keeps the connection until its peer ends it.
    Keep,
    /// The server rejects, and sends the private data of the request back.
    Reject,
    /// The server destroys the identifier.
    Destroy,
    /// The server does not answer.
    Silence,
    /// The server accepts, and destroys the queue pair at once.
    DestroyQp,
    /// The server accepts, and disconnects at once.
    Disconnect,
    /// The server accepts, and closes the file of the connection at once.
    Close,
}

impl Answer {
    const ALL: [Self; 7] = [
        Self::Keep,
        Self::Reject,
        Self::Destroy,
        Self::Silence,
        Self::DestroyQp,
        Self::Disconnect,
        Self::Close,
    ];

    /// Returns a random answer. Every second one keeps the connection.
    pub(crate) fn chosen(rng: &mut Rng) -> Self {
        let index = rng.below(2 * Self::ALL.len() as u64) as usize;
        Self::ALL.get(index).copied().unwrap_or(Self::Keep)
    }

    /// Returns the private data of a request that wants this answer.
    pub(crate) fn request(self) -> Vec<u8> {
        vec![self as u8]
    }

    /// Like [`Self::request`], padded to `len` bytes of private data.
    pub(crate) fn request_of(self, len: u8) -> Vec<u8> {
        let more = (1..len).map(|at| at.wrapping_mul(7));
        [self as u8].into_iter().chain(more).collect()
    }

    fn of(request: &Request) -> Self {
        let index = request.private().first().copied().unwrap_or_default();
        Self::ALL.get(usize::from(index)).copied().unwrap_or(Self::Reject)
    }
}

/// The port.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[arg(long, default_value_t = 7174)]
    port: u16,
}

/// The objects of the server.
struct Server {
    common: Common,
    kept: Vec<(Connection, Option<Qp>)>,
    silent: Vec<(Request, Instant)>,
}

/// Answers requests until the process is killed.
pub(crate) fn run(options: &Serve) -> Result<()> {
    let listener = Listener::at(options.port, BACKLOG)?;
    let mut server = Server { common: Common::new()?, kept: Vec::new(), silent: Vec::new() };
    loop {
        if let Some(request) = listener.next(TURN)? {
            server.answer(request)?;
        }
        server.clean_up()?;
    }
}

impl Server {
    fn answer(&mut self, request: Request) -> Result<()> {
        let answer = Answer::of(&request);
        match answer {
            // The peer may have ended in the meantime.
            Answer::Reject => {
                let reason = request.private().to_vec();
                drop(request.reject(&reason));
            }
            Answer::Destroy => request.destroy()?,
            Answer::Silence => self.silent.push((request, Instant::now())),
            _ => self.accept(request, answer)?,
        }
        Ok(())
    }

    fn accept(&mut self, request: Request, answer: Answer) -> Result<()> {
        let qp = self.common.qp()?;
        let wishes = Wishes { qpn: qp.number(), srq: false, depth: 1, private: &[] };
        let Ok(connection) = request.accept(wishes) else {
            return destroy(qp);
        };
        match answer {
            Answer::DestroyQp => {
                destroy(qp)?;
                self.kept.push((connection, None));
            }
            Answer::Disconnect => {
                // The connection may have ended already.
                let _ = connection.disconnect();
                self.kept.push((connection, Some(qp)));
            }
            Answer::Close => {
                connection.close();
                destroy(qp)?;
            }
            _ => self.kept.push((connection, Some(qp))),
        }
        Ok(())
    }

    /// Frees connections that have ended, and requests that will not be answered.
    fn clean_up(&mut self) -> Result<()> {
        let mut at = 0;
        while let Some((connection, _)) = self.kept.get(at) {
            match connection.news(Duration::ZERO)? {
                Some(News::Disconnected | News::Failed | News::Removed | News::Rejected(_)) => {
                    let (connection, qp) = self.kept.swap_remove(at);
                    connection.destroy().map_err(|(_, error)| error)?;
                    qp.map_or(Ok(()), destroy)?;
                }
                Some(News::Established) | None => at += 1,
            }
        }
        while self.silent.first().is_some_and(|(_, since)| since.elapsed() > SILENCE) {
            self.silent.remove(0).0.destroy()?;
        }
        Ok(())
    }
}

fn destroy(qp: Qp) -> Result<()> {
    Ok(qp.destroy().map_err(|(_, error)| error)?)
}
