//! The end of a stream of messages: by the peer, by an error, by the driver, or by a time limit.

use vrnic_abi::connection::Ending;
use vrnic_abi::eq::Kind;
use vrnic_iwarp::stream::close::Happening;
use vrnic_iwarp::stream::{Event, Want};
use vrnic_packet::Nanos;

use super::turn::RdmaTurn;
use crate::datapath::transport::tcp::turn::Carrier;
use crate::host::Host;
use crate::stats::Counter;

impl<H: Host> RdmaTurn<'_, H> {
    /// Ends the connection if it has not opened, closed or ended in time. Returns the time limit.
    pub(super) fn limit(&mut self, now: Nanos) -> Option<Nanos> {
        let limit = self.content.limit(self.link, self.qp.state(), now)?;
        if limit <= now {
            self.link.life_mut().end(Ending::TimedOut);
            self.content.stream.happened(Happening::TimeOut);
            self.exchange();
        }
        Some(limit)
    }

    /// Closes the connection when all posted requests have been taken. Requests that are posted
    /// later are flushed at the end.
    pub(super) fn close(&mut self) {
        if self.has_more_requests() {
            return;
        }
        self.content.leaves = true;
        self.content.stream.disconnect(Want::Graceful);
        self.part();
        self.report_drained();
    }

    /// Handles the events of the stream. Returns whether the QP has failed.
    pub(super) fn events(&mut self) -> bool {
        let core = self.network.core();
        let mut failed = false;
        while let Some(event) = self.content.stream.next_event() {
            self.link.life_mut().follow(&event, self.content.stream.state());
            match event {
                Event::Established(_) => continue,
                Event::TerminateSent(_) => {
                    core.stats().step(Counter::TxTerminates);
                    self.qp.failed(core, Kind::QpFatal);
                }
                Event::TerminateReceived(_) => {
                    core.stats().step(Counter::RxTerminates);
                    self.qp.failed(core, Kind::QpFatal);
                }
                Event::StartFailed(_)
                | Event::GracefulDisconnect
                | Event::AbortiveDisconnect
                | Event::Closed
                | Event::BadClose => {
                    self.qp.fail();
                }
            }
            failed = true;
        }
        failed
    }
}
