// SPDX-License-Identifier: GPL-2.0
//! The debugfs file that shows handlers with their processors, their completion queues, and the
//! queue pairs that complete there, each with its number of events.

use kernel::{debugfs::Writer, fmt, prelude::*, sync::Arc};

use crate::{
    comp_vectors::{Descriptor, Handlers},
    listeners::Listeners,
    rdma::event::Identity,
};

/// The content of the file.
pub(crate) struct Tree {
    handlers: Arc<Handlers>,
    listeners: Arc<Listeners>,
}

impl Tree {
    /// Shows these handlers, and the objects that their events are reported to.
    pub(crate) fn new(handlers: Arc<Handlers>, listeners: Arc<Listeners>) -> Self {
        Self { handlers, listeners }
    }
}

/// A queue of a queue pair, and where its completions go.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Feed {
    cq: Identity,
    qpn: u32,
    sends: bool,
}

impl Writer for Tree {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let feeds = self.feeds().map_err(|_| fmt::Error)?;
        for descriptor in self.handlers.iter() {
            self.write_handler(f, descriptor, &feeds)?;
        }
        Ok(())
    }
}

impl Tree {
    /// Returns all queues of queue pairs, by their completion queue.
    fn feeds(&self) -> Result<KVec<Feed>> {
        let mut feeds = KVec::new();
        let mut last = None;
        while let Some((qpn, link)) = self.listeners.qps.next(last) {
            last = Some(qpn);
            if let Some((send, recv)) = link.cqs() {
                let qpn = qpn.get();
                feeds.push(Feed { cq: send, qpn, sends: true }, GFP_KERNEL)?;
                feeds.push(Feed { cq: recv, qpn, sends: false }, GFP_KERNEL)?;
            }
        }
        feeds.sort_unstable();
        Ok(feeds)
    }

    fn write_handler(
        &self,
        f: &mut fmt::Formatter<'_>,
        descriptor: &Descriptor,
        feeds: &[Feed],
    ) -> fmt::Result {
        let handler = &*descriptor.handler;
        match handler.cpu() {
            Some(cpu) => f.write_fmt(fmt!("processor {cpu}"))?,
            None => f.write_str("no processor")?,
        }
        let (events, interrupts, turns) = (handler.events(), handler.interrupts(), handler.turns());
        f.write_fmt(fmt!(
            ": handler {}, {events} events, {interrupts} interrupts, {turns} turns of their thread\n",
            handler.id
        ))?;
        let Ok(cqs) = self.listeners.cqs(handler.id as usize) else { return Ok(()) };
        let mut last = None;
        while let Some((cqn, link)) = cqs.next(last) {
            last = Some(cqn);
            f.write_fmt(fmt!("  cq {cqn:?}: {} events\n", link.reports()))?;
            let cq = link.identity();
            let first = feeds.partition_point(|feed| feed.cq < cq);
            for feed in feeds.iter().skip(first).take_while(|feed| feed.cq == cq) {
                let what = if feed.sends { "sends" } else { "receives" };
                f.write_fmt(fmt!("    qp {}: {what}\n", feed.qpn))?;
            }
        }
        Ok(())
    }
}
