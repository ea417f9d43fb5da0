//! Posting, polling and events.

use std::io;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::dispatch::failure;
use super::objects::Objects;
use crate::model::{AsyncEvent, Wc};
use crate::pattern::Rng;
use crate::rpc::calls::{
    Arm, Moderate, Poll, PostRecv, PostSend, PostTogether, Posted, Scribble, Scribbled, Target,
    Times, WaitAsync, WaitChannel,
};
use crate::verbs::hostile::{self, Mapping, Named};
use crate::verbs::wr::Refused;

/// Words written into a mapping between looks at the clock.
const BURST: usize = 64;

impl Objects {
    pub(super) fn arm(&mut self, c: &Arm) -> io::Result<()> {
        self.cqs.get(c.cq)?.arm(c.solicited_only)
    }

    pub(super) fn moderate(&mut self, c: &Moderate) -> io::Result<()> {
        self.cqs.get(c.cq)?.moderate(c.count, c.period)
    }

    pub(super) fn wait_channel(&mut self, c: &WaitChannel) -> io::Result<Option<u32>> {
        let identity = self.channels.get(c.channel)?.wait(Duration::from_millis(c.timeout_ms))?;
        identity
            .map(|id| {
                self.cqs
                    .find(|cq| cq.identity() == id)
                    .ok_or_else(|| io::Error::other("event of a CQ that does not exist"))
            })
            .transpose()
    }

    pub(super) fn poll(&mut self, c: &Poll) -> io::Result<Vec<Wc>> {
        let cq = self.cqs.get(c.cq)?;
        let deadline = Instant::now() + Duration::from_millis(c.timeout_ms);
        let mut done = Vec::new();
        loop {
            let more = cq.poll(c.count - done.len())?;
            let idle = more.is_empty();
            done.extend(more);
            if done.len() >= c.count || Instant::now() >= deadline {
                return Ok(done);
            }
            if idle {
                // With one processor, spinning would keep the rest of the guest from running.
                thread::yield_now();
            }
        }
    }

    pub(super) fn post_send(&mut self, c: &PostSend) -> io::Result<Posted> {
        let qp = self.qps.get(c.qp)?;
        let paths = c.requests.iter().map(|r| r.to.map(|to| self.ahs.get(to.ah)).transpose());
        let paths = paths.collect::<io::Result<Vec<_>>>()?;
        let result = qp.post_send_to(&c.requests, &paths);
        if let Some((buffer, offset, len)) = c.wipe {
            self.buffers.get(buffer)?.write(offset as usize, &vec![0; len as usize])?;
        }
        Ok(posted(c.requests.len(), result))
    }

    pub(super) fn post_together(&mut self, c: &PostTogether) -> io::Result<()> {
        self.qps.get(c.qp)?.post_together(&c.requests, c.abort)
    }

    pub(super) fn clocks(&mut self) -> io::Result<Times> {
        let raw = self.context()?.raw_clock()?;
        let day = SystemTime::now().duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
        Ok(Times { raw, day: u64::try_from(day.as_nanos()).map_err(io::Error::other)? })
    }

    pub(super) fn post_recv(&mut self, c: &PostRecv) -> io::Result<Posted> {
        let result = self.qps.get(c.qp)?.post_recv(&c.requests);
        Ok(posted(c.requests.len(), result))
    }

    pub(super) fn wait_async(&mut self, c: &WaitAsync) -> io::Result<Option<AsyncEvent>> {
        let event = self.context()?.async_event(Duration::from_millis(c.timeout_ms))?;
        Ok(event.map(|e| AsyncEvent {
            kind: e.kind,
            qp: self.qps.find(|qp| qp.identity() == e.object),
            cq: self.cqs.find(|cq| cq.identity() == e.object),
            srq: self.srqs.find(|srq| srq.identity() == e.object),
        }))
    }

    pub(super) fn scribble(&mut self, c: &Scribble) -> io::Result<Scribbled> {
        let all = hostile::mappings()?;
        let wanted = |m: &&Mapping| m.device || c.target != Target::Device;
        let targets: Vec<_> = all.iter().filter(wanted).cloned().collect();
        if !targets.iter().any(|m| m.device == (c.target == Target::Device)) {
            return Err(io::Error::other(format!("nothing to scribble on among {all:?}")));
        }
        let mut rng = Rng::new(c.seed);
        let deadline = Instant::now() + Duration::from_millis(c.duration_ms);
        let mut stores = 0;
        if c.target == Target::Entries {
            stores += hostile::plausible(&targets, &self.named()?, &mut rng);
            thread::sleep(deadline.saturating_duration_since(Instant::now()));
        }
        while Instant::now() < deadline {
            for mapping in &targets {
                mapping.scribble(&mut rng, BURST);
                stores += BURST as u64;
            }
        }
        let bytes = targets.iter().map(|m| m.len() as u64).sum();
        Ok(Scribbled { mappings: targets.len() as u64, bytes, stores })
    }

    /// Every buffer with every key.
    fn named(&self) -> io::Result<Vec<Named>> {
        let keys: Vec<_> = self.mrs.iter().map(|(_, mr)| mr.keys()).collect();
        let addrs = self.buffers.iter().map(|(_, buffer)| buffer.addr());
        let named: Vec<_> = addrs
            .flat_map(|addr| keys.iter().map(move |(key, _)| Named { addr, key: *key }))
            .collect();
        match named.is_empty() {
            true => Err(io::Error::other("no region for entries to name")),
            false => Ok(named),
        }
    }
}

pub(super) fn posted(all: usize, result: Result<(), Refused>) -> Posted {
    match result {
        Ok(()) => Posted { count: all, refused: None },
        Err(r) => Posted { count: r.posted, refused: Some(failure(&r.error)) },
    }
}
