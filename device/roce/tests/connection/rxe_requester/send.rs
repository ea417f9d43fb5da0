//! The next packet of a requester like rxe's.

use vrnic_roce::requester::{Remote, Transmit, Work, WorkRequest};
use vrnic_roce::time::AckTimeout;
use vrnic_roce::wire::headers::{AtomicEth, Reth};
use vrnic_roce::wire::opcode::Transport;
use vrnic_roce::wire::{Body, Head, Part, Request};

use super::{JIFFY, RxeRequester, State};

/// Number of packets that may follow the oldest packet without an answer.
const WINDOW: u32 = 128;
/// Number of packets without a request for an acknowledgement.
const UNASKED: u32 = 64;

impl RxeRequester {
    pub(super) fn send(&mut self, now: u64) -> Option<Transmit> {
        if self.failed {
            return None;
        }
        if self.go_back && self.not_ready_until.is_none() {
            self.restart();
        }
        let all_slots = self.slots == self.config.max_rd_atomic;
        let beyond = self.acked.plus(WINDOW).is_before(self.next);
        let wqe = self.queue.get_mut(self.at)?;
        if (wqe.request.fence && !all_slots) || beyond {
            return None;
        }
        if wqe.request.work.has_answer() && !wqe.counted {
            self.slots = self.slots.checked_sub(1)?;
            wqe.counted = true;
        }
        let transmit = self.packet()?;
        self.sent += 1;
        self.timer.get_or_insert(now + self.timeout());
        Some(transmit)
    }

    pub(super) fn timeout(&self) -> u64 {
        let nanos =
            AckTimeout::new(self.config.timeout).duration().map_or(u128::MAX, |t| t.as_nanos());
        (u64::try_from(nanos).expect("a time-out") / JIFFY).max(1) * JIFFY
    }

    /// Returns the next packet of the entry at the cursor, and advances the cursor.
    fn packet(&mut self) -> Option<Transmit> {
        let (mtu, psn) = (self.config.mtu, self.next);
        let wqe = self.queue.get_mut(self.at)?;
        let request = wqe.request;
        let answered = request.work.has_answer();
        let left = request.length - wqe.done;
        let has_payload = !answered || matches!(request.work, Work::AtomicWrite(_));
        let bytes = if has_payload { left.min(mtu.bytes()) } else { 0 };
        let (first, last) = (answered || wqe.done == 0, answered || bytes == left);
        let mut head = Head::new(Transport::Rc, self.config.destination, psn);
        head.migrated = false;
        head.ack_request = last || self.unasked > UNASKED;
        self.unasked = if head.ack_request { 0 } else { self.unasked + 1 };
        let receives = matches!(request.work, Work::Send(_) | Work::Write(_, Some(_)));
        head.solicited = last && request.solicited && receives;
        let body = Body::Request(body(&request, wqe.done, first, last));
        let range = wqe.done..wqe.done + bytes;
        let count = if request.work.is_read() { mtu.packets(left) } else { 1 };
        if first {
            let count = if answered { count } else { mtu.packets(left) };
            (wqe.first, wqe.last) = (psn, psn.plus(count - 1));
        }
        wqe.done += bytes;
        wqe.state = if last { State::Pending } else { State::Processing };
        self.next = psn.plus(count);
        self.at += usize::from(last);
        Some(Transmit { head, body, id: request.id, range })
    }

    /// Moves the cursor back to the oldest number without an answer.
    fn restart(&mut self) {
        self.go_back = false;
        self.at = 0;
        self.next = self.acked;
        let (acked, mtu) = (self.acked, self.config.mtu);
        let started = self.queue.iter_mut().take_while(|wqe| wqe.state != State::Posted);
        for (place, wqe) in started.enumerate() {
            let work = &wqe.request.work;
            wqe.done = match (place, work.is_read()) {
                // The bytes that a READ has received are kept.
                (0, true) => wqe.done,
                (0, false) if !work.has_answer() => {
                    (acked.since(wqe.first) * mtu.bytes()).min(wqe.request.length)
                }
                _ => 0,
            };
            wqe.state = State::Posted;
        }
    }
}

/// Returns the request of a packet at an offset.
fn body(request: &WorkRequest, done: u32, first: bool, last: bool) -> Request {
    let left = request.length - done;
    match request.work {
        Work::Send(end) => Request::Send(Part::new(first.then_some(()), last.then_some(end))),
        Work::Write(to, imm) => {
            let reth = Reth { addr: to.addr, key: to.key, length: left };
            Request::Write(Part::new(first.then_some(reth), last.then_some(imm)))
        }
        Work::Read(from) => {
            let addr = from.addr + u64::from(done);
            Request::Read(Reth { addr, key: from.key, length: left })
        }
        Work::CompareSwap { word, compare, swap } => {
            let (addr, key) = (word.addr, word.key);
            Request::CompareSwap(AtomicEth { addr, key, swap_or_add: swap, compare })
        }
        Work::FetchAdd { word, add } => {
            let (addr, key) = (word.addr, word.key);
            Request::FetchAdd(AtomicEth { addr, key, swap_or_add: add, compare: 0 })
        }
        Work::AtomicWrite(Remote { addr, key }) => {
            Request::AtomicWrite(Reth { addr, key, length: left })
        }
        Work::Flush(feth, Remote { addr, key }) => {
            Request::Flush(feth, Reth { addr, key, length: left })
        }
    }
}
