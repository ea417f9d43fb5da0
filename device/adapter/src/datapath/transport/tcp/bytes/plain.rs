//! Bytes without a structure: those of sends go to receives.

use vrnic_abi::connection::Ending;
use vrnic_abi::cq::Status;
use vrnic_abi::sq::Opcode;
use vrnic_packet::Nanos;
use vrnic_tcp::Connection;
use vrnic_tcp::connection::Transmit;
use vrnic_tcp::wire::{Flags, Segment};

use super::source::Outbound;
use super::turn::{Mode, ToeTurn};
use crate::datapath::send_queue::Turn;
use crate::datapath::transport::tcp::turn::Traffic;
use crate::datapath::turn::TurnContext;
use crate::datapath::wqe_fetch::Batch;
use crate::host::Host;
use crate::objects::qp::break_promise;
use crate::objects::qp::outstanding::{End, Posted};
use crate::objects::qp::tcp::bytes::Plain;
use crate::objects::qp::tcp::bytes::receives::Receives;
use crate::requests::wqe::SendWqe;

impl<H: Host> Traffic<H> for ToeTurn<'_, H, Plain<H>> {
    /// Also offers the peer as many bytes as the receives can take.
    fn receive(&mut self, now: Nanos) {
        self.with_inbox(|mut inbox, _, tcp| {
            if inbox.deliver_early() && inbox.receives.held {
                inbox.receives.held = false;
                tcp.resume(now, &mut inbox);
            }
            inbox.release(tcp);
            inbox.tell_end();
            let early = u32::try_from(inbox.receives.early().len()).unwrap_or(u32::MAX);
            tcp.set_window(inbox.window().saturating_sub(early));
        });
    }

    fn fill(&mut self, now: Nanos, into: &mut [u8]) -> Option<Transmit> {
        let (core, qp, slice) = (self.network.core(), self.qp, self.slice);
        let (tcp, outstanding) = self.link.io();
        let sends = &self.content.mode.sends;
        tcp.transmit(now, &mut Outbound { core, qp, sends, outstanding, slice }, into)
    }

    fn idle(&mut self, now: Option<Nanos>) -> Option<Nanos> {
        self.link.idle(now, || self.content.mode.sends.shrink())
    }

    fn switch(&mut self, batch: &mut Batch) -> Option<Turn> {
        self.content.mode.switch.is_some().then(|| self.before_messages(batch))
    }
}

impl<H: Host> Mode<H> for ToeTurn<'_, H, Plain<H>> {
    fn post(&mut self, _here: &TurnContext<'_, H>, send: &SendWqe, raw: &[u8]) {
        let sends = send.opcode == Opcode::Send;
        let end = (!sends).then_some(End::Failed(Status::LocQpOpErr.into()));
        let posted = Posted { send: *send, opcode: send.completed(), command: None, end };
        self.link.outstanding_mut().post(posted, raw);
        if sends {
            let una = self.link.tcp().acknowledged();
            self.content.mode.sends.push(send.index, send.length, una);
        }
    }

    fn acknowledge(&mut self) {
        let una = self.link.tcp().acknowledged();
        while let Some(index) = self.content.mode.sends.pop_acknowledged(una) {
            self.link.outstanding_mut().end(index.into(), End::Done);
        }
    }

    fn stop(&mut self) -> bool {
        self.content.mode.sends.finish();
        true
    }

    fn has_stopped(&self) -> bool {
        self.content.mode.sends.is_over()
    }

    fn break_off(&mut self, ending: Ending) {
        break_promise(self.content.mode.switch.take(), ending);
    }
}

/// Notes the position after a segment with PSH, if receives complete there.
pub(in crate::datapath::transport::tcp) fn note_push(
    tcp: &Connection,
    receives: &mut Receives,
    Segment { header, payload }: &Segment<'_>,
) {
    if payload.is_empty() || !header.flags.contains(Flags::PSH) || receives.are_filled() {
        return;
    }
    // CAST: segments are shorter than 2³² bytes.
    let end = header.seq.plus(payload.len() as u32);
    if let Some(at) = tcp.position(end) {
        receives.mark(at);
    }
}
