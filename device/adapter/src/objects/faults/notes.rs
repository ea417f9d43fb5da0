//! Comments on the packets of a traced QP for captures: the work request that a packet belongs to,
//! and the step.

use std::collections::{HashSet, VecDeque};
use std::fmt;

use vrnic_abi::Qpn;
use vrnic_faults::Opcode;
use vrnic_packet::Nanos;
use vrnic_roce::Psn;
use vrnic_roce::wire::opcode::Operation;

/// The most work requests that are known. Further ones replace the oldest.
const MAX_REQUESTS: usize = 1024;
/// The most packets of which it is known that they were sent again.
const MAX_RESENT: usize = 4096;

/// The last work requests of a traced QP, with the sequence numbers of their packets.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    known: VecDeque<Request>,
    /// The time of the last doorbell.
    rung: Option<Nanos>,
    /// The sequence numbers of packets that were sent again.
    resent: HashSet<u32>,
}

/// A work request.
#[derive(Debug)]
struct Request {
    index: u32,
    fetched: Nanos,
    /// The time of the last doorbell before it was fetched.
    rung: Option<Nanos>,
    /// The first packet of the request, and the packet after the last one that was sent.
    packets: Option<[Psn; 2]>,
}

impl Requests {
    /// Records a doorbell.
    pub(crate) fn ring(&mut self, at: Nanos) {
        self.rung = Some(at);
    }

    /// Records that a work request was fetched. One that must wait is fetched again.
    pub(crate) fn fetch(&mut self, at: Nanos, index: u32) {
        if self.known.back().is_some_and(|last| last.index == index) {
            return;
        }
        if self.known.len() >= MAX_REQUESTS {
            self.known.pop_front();
        }
        self.known.push_back(Request { index, fetched: at, rung: self.rung, packets: None });
    }

    /// Records the sequence number of a packet of a work request that is about to be sent.
    pub(crate) fn send(&mut self, index: u32, psn: Psn) {
        let mut known = self.known.iter_mut().rev();
        let Some(request) = known.find(|request| request.index == index) else { return };
        let [_, end] = request.packets.get_or_insert([psn; 2]);
        if !psn.is_before(*end) {
            *end = psn.next();
            self.resent.remove(&psn.get());
        } else if self.resent.len() < MAX_RESENT {
            self.resent.insert(psn.get());
        }
    }

    /// Returns the comment on a message that is copied.
    pub(crate) fn of_copy(&self, at: Nanos, qpn: Qpn, index: u32) -> String {
        match self.known.iter().rev().find(|request| request.index == index) {
            Some(request) => request.note(at, qpn, &"copied"),
            None => format!("QP {qpn}, work request {index}: copied"),
        }
    }

    /// Returns the comment on a packet with this opcode that leaves or has arrived.
    pub(crate) fn of_packet(
        &self,
        at: Nanos,
        qpn: Qpn,
        packet: Option<(Opcode, Option<Psn>)>,
        leaves: bool,
    ) -> String {
        let way = if leaves { "sent" } else { "received" };
        let Some((Opcode::Roce(opcode), Some(psn))) = packet else {
            let what = if packet.is_some() { "TCP segment" } else { "packet" };
            return format!("QP {qpn}: {what} {way}");
        };
        let operation = opcode.operation();
        let (is_answer, is_notice) = (is_answer(operation), operation == Operation::Congestion);
        let what = match (is_notice, is_answer == leaves) {
            (true, _) => return format!("QP {qpn}: congestion notification {way}"),
            (false, true) => {
                let what = if is_answer { "answer to" } else { "request of" };
                return format!("QP {qpn}: {what} the peer {way}");
            }
            (false, false) => self.of(psn),
        };
        match what {
            Some((request, _)) if is_answer => request.note(at, qpn, &"answer received"),
            Some((request, nth)) => {
                let again = if self.resent.contains(&psn.get()) { " again" } else { "" };
                match nth {
                    0 => request.note(at, qpn, &format_args!("first packet sent{again}")),
                    _ => request.note(at, qpn, &format_args!("packet {} sent{again}", nth + 1)),
                }
            }
            None if is_answer => format!("QP {qpn}: answer received"),
            None => format!("QP {qpn}: request sent"),
        }
    }

    /// Returns the work request to which a packet or the answer with this number belongs, and the
    /// place of the packet in it, from 0. A READ has the numbers of its answers.
    fn of(&self, psn: Psn) -> Option<(&Request, u32)> {
        self.known.iter().rev().find_map(|request| {
            let [first, _] = request.packets?;
            (!psn.is_before(first)).then(|| (request, psn.since(first)))
        })
    }
}

impl Request {
    fn note(&self, at: Nanos, qpn: Qpn, step: &dyn fmt::Display) -> String {
        let since = |then: Nanos| Micros(at.0.saturating_sub(then.0));
        let (index, fetched) = (self.index, since(self.fetched));
        let doorbell = self.rung.map(|rung| format!("{} after the last doorbell, ", since(rung)));
        let doorbell = doorbell.unwrap_or_default();
        format!("QP {qpn}, work request {index}: {step} {doorbell}{fetched} after the fetch")
    }
}

/// Nanoseconds that are shown as microseconds.
struct Micros(u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03} µs", self.0 / 1000, self.0 % 1000)
    }
}

const fn is_answer(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::ReadResponseFirst
            | Operation::ReadResponseMiddle
            | Operation::ReadResponseLast
            | Operation::ReadResponseOnly
            | Operation::Acknowledge
            | Operation::AtomicAcknowledge
    )
}

#[cfg(test)]
mod tests {
    use vrnic_roce::wire::opcode::{Opcode as Roce, Transport};

    use super::*;

    fn packet(operation: Operation, psn: u32) -> Option<(Opcode, Option<Psn>)> {
        let opcode = Roce::new(Transport::Rc, operation).expect("it exists");
        Some((Opcode::Roce(opcode), Some(Psn::new(psn))))
    }

    fn note(requests: &Requests, operation: Operation, psn: u32, leaves: bool) -> String {
        requests.of_packet(Nanos(9000), Qpn::new(5), packet(operation, psn), leaves)
    }

    /// Shows: faults: comments in captures name the work request of a packet
    #[test]
    fn packets_and_answers_belong_to_the_work_request_of_their_number() {
        let mut requests = Requests::default();
        requests.fetch(Nanos(500), 7);
        requests.ring(Nanos(1000));
        requests.fetch(Nanos(2500), 8);
        requests.fetch(Nanos(2700), 8);
        for (index, psn) in [(7, 0xff_fffe), (7, 0xff_ffff), (8, 3), (8, 4), (8, 4)] {
            requests.send(index, Psn::new(psn));
        }
        let seven = "QP 5, work request 7";
        let times = "8.000 µs after the last doorbell, 6.500 µs after the fetch";
        for (operation, psn, leaves, expected) in [
            (
                Operation::ReadRequest,
                0xff_fffe,
                true,
                format!("{seven}: first packet sent 8.500 µs after the fetch"),
            ),
            (
                Operation::ReadResponseLast,
                1,
                false,
                format!("{seven}: answer received 8.500 µs after the fetch"),
            ),
            (
                Operation::WriteFirst,
                3,
                true,
                format!("QP 5, work request 8: first packet sent {times}"),
            ),
            (
                Operation::WriteLast,
                4,
                true,
                format!("QP 5, work request 8: packet 2 sent again {times}"),
            ),
            (
                Operation::Acknowledge,
                4,
                false,
                format!("QP 5, work request 8: answer received {times}"),
            ),
            (Operation::WriteOnly, 4, false, "QP 5: request of the peer received".to_owned()),
            (Operation::Acknowledge, 4, true, "QP 5: answer to the peer sent".to_owned()),
            (Operation::Acknowledge, 0xff_fffd, false, "QP 5: answer received".to_owned()),
        ] {
            assert_eq!(note(&requests, operation, psn, leaves), expected);
        }
        assert!(requests.of_copy(Nanos(9000), Qpn::new(5), 8).contains(": copied 8.000 µs"));
    }

    #[test]
    fn memory_is_bounded() {
        let mut requests = Requests::default();
        for index in 0..MAX_REQUESTS as u32 + 5 {
            requests.fetch(Nanos(0), index);
            for psn in 0..10 {
                (0..2).for_each(|_| requests.send(index, Psn::new(index * 10 + psn)));
            }
        }
        assert_eq!((requests.known.len(), requests.resent.len()), (MAX_REQUESTS, MAX_RESENT));
    }
}
