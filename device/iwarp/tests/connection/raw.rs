//! A responder that receives FPDUs which the test builds.

use vrnic_iwarp::mpa::framer::{Form, Fpdu, Framer};
use vrnic_iwarp::mpa::markers::Markers;
use vrnic_iwarp::mpa::start::Wishes;
use vrnic_iwarp::stream::{Config, Early, Event};
use vrnic_iwarp::tcp::{Delivery, Offered, Sink, StreamPos, Then};
use vrnic_iwarp::wire::ddp::{Header, Model, Msn, Queue, Stag};
use vrnic_iwarp::wire::rdmap::Opcode;
use vrnic_iwarp::wire::terminate::Cause;

use crate::pipe::Pair;

/// A responder that receives FPDUs which the test builds, without markers.
pub(crate) struct Raw {
    pub(crate) pair: Pair,
    framer: Framer,
    pub(crate) start: u64,
}

impl Raw {
    /// Returns a responder that recognises the start of an FPDU by a right CRC.
    pub(crate) fn new(crc: bool) -> Self {
        Self::with(crc, Early { by_crc: Some(0), ..Early::default() })
    }

    pub(crate) fn with(crc: bool, early: Early) -> Self {
        let wishes = Wishes { crc, peer_to_peer: false, ird: 2, ord: 2, ..Wishes::default() };
        let config = Config { wishes, early, ..Config::default() };
        let form = Form { crc, markers: Markers(false) };
        Self { pair: Pair::new(5, config, config), framer: Framer::new(form), start: 0 }
    }

    pub(crate) fn deliver(&mut self, octets: &[u8]) -> Then {
        let end = &mut self.pair.ends[1];
        let at = StreamPos(self.start);
        let delivery = Delivery { at, bytes: octets, acknowledged: false };
        let delivered = end.stream.sink(&mut end.ram).deliver(&delivery);
        self.start += delivered.taken as u64;
        end.collect();
        delivered.then
    }

    /// Delivers octets that TCP has stored. Returns how many were taken.
    pub(crate) fn deliver_stored(&mut self, octets: &[u8]) -> (usize, Then) {
        let end = &mut self.pair.ends[1];
        let delivery = Delivery { at: StreamPos(self.start), bytes: octets, acknowledged: true };
        let delivered = end.stream.sink(&mut end.ram).deliver(&delivery);
        self.start += delivered.taken as u64;
        end.collect();
        (delivered.taken, delivered.then)
    }

    /// Offers early octets, which are `ahead` octets ahead of their turn.
    pub(crate) fn offer(&mut self, ahead: usize, octets: &[u8]) -> Offered {
        let end = &mut self.pair.ends[1];
        let at = StreamPos(self.start).plus(ahead as u64);
        let offered = end.stream.sink(&mut end.ram).offer(at, octets);
        end.collect();
        offered
    }

    /// Reports that the stream has reached octets which were placed early.
    pub(crate) fn filled(&mut self, octets: usize) -> Then {
        let end = &mut self.pair.ends[1];
        let (from, to) = (StreamPos(self.start), StreamPos(self.start).plus(octets as u64));
        self.start = to.0;
        let then = end.stream.sink(&mut end.ram).filled(from, to);
        end.collect();
        then
    }

    pub(crate) fn fpdu(&mut self, header: Header, payload: &[u8]) -> Vec<u8> {
        let header = header.octets();
        let ulpdu = [header.octets(), payload].concat();
        let which = Fpdu { start: self.start, ulpdu: ulpdu.len() };
        let mut fpdu = vec![0; (which.end() - which.start) as usize];
        let copy = |into: &mut [u8]| {
            into.copy_from_slice(&ulpdu);
            Ok::<(), ()>(())
        };
        self.framer.build(&which, &mut fpdu, copy).expect("no error");
        fpdu
    }

    pub(crate) fn untagged(&mut self, opcode: Opcode, msn: u32, mo: u32, payload: &[u8]) -> Then {
        let queue = opcode.queue().unwrap_or(Queue::Send);
        let model = Model::Untagged { invalidate: Stag(0), queue, msn: Msn(msn), mo };
        let header =
            Header { last: mo != 0 || payload.len() != 8, control: opcode.control(), model };
        let fpdu = self.fpdu(header, payload);
        self.deliver(&fpdu)
    }

    pub(crate) fn cause(&self) -> Cause {
        let cause = self.pair.ends[1].events.iter().find_map(|event| match event {
            Event::TerminateSent(cause) => Some(*cause),
            _ => None,
        });
        cause.expect("a Terminate was sent")
    }
}
