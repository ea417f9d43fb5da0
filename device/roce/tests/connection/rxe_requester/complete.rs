//! Answers and time-outs of a requester like rxe's.

use vrnic_roce::requester::{Completion, Outcome, Work, WorkRequest};
use vrnic_roce::time::rnr_delay;
use vrnic_roce::wire::syndrome::RnrTimer;
use vrnic_roce::wire::{Nak, ReadPart, Response, Syndrome};

use super::{Answer, Event, JIFFY, RxeRequester, State, Wqe};

impl RxeRequester {
    /// Takes an answer, or checks whether the timer has ended. Returns whether the task goes on.
    pub(super) fn complete(&mut self, now: u64) -> (bool, Option<Event>) {
        if self.failed {
            while let Some(wqe) = self.queue.pop_front() {
                self.completed(&wqe.request, Outcome::Flushed);
            }
            return (false, None);
        }
        let timed_out = std::mem::take(&mut self.timed_out);
        if self.go_back {
            return (false, None);
        }
        match self.answers.pop_front() {
            Some(answer) => self.answer(now, &answer),
            None => (self.idle(now, timed_out), None),
        }
    }

    fn idle(&mut self, now: u64, timed_out: bool) -> bool {
        match self.queue.front() {
            Some(wqe) if timed_out => wqe.state != State::Posted && self.retry(true),
            _ => {
                if self.acked.is_before(self.next) {
                    self.timer = Some(now + self.timeout());
                }
                false
            }
        }
    }

    fn answer(&mut self, now: u64, answer: &Answer) -> (bool, Option<Event>) {
        let psn = answer.psn;
        while let Some(wqe) = self.queue.front() {
            let has_answer = wqe.request.work.has_answer();
            let (last, state) = (wqe.last, wqe.state);
            if state == State::Posted || (last.is_before(psn) && state != State::Pending) {
                return (true, None);
            }
            if last.is_before(psn) {
                if has_answer {
                    return (self.retry(false), None);
                }
                self.progressed();
                if !last.is_before(self.acked) {
                    (self.acked, self.in_answer) = (last.next(), false);
                }
                self.succeed();
                continue;
            }
            if psn.is_before(self.acked) {
                if psn == last {
                    self.end(answer);
                    return (true, None);
                }
                if !(answer.is_plain() && self.in_answer) {
                    return (true, None);
                }
            } else if has_answer && psn != self.acked {
                return (true, None);
            }
            return self.check(now, answer);
        }
        (true, None)
    }

    fn check(&mut self, now: u64, answer: &Answer) -> (bool, Option<Event>) {
        let Some(wqe) = self.queue.front() else { return (true, None) };
        let fits = match answer.response {
            _ if !self.in_answer => answer.starts(),
            Response::Acknowledge(_) => true,
            Response::Read(ReadPart::Middle | ReadPart::Last(_)) => true,
            Response::Read(ReadPart::First(_)) => answer.psn == wqe.first,
            Response::Read(ReadPart::Only(_)) => wqe.first == wqe.last,
            Response::Atomic(..) => false,
        };
        let work = &wqe.request.work;
        match answer.response {
            _ if !fits => (self.fail(Outcome::BadResponse), None),
            Response::Read(part) => {
                let acks = part.aeth().is_none_or(|aeth| is_ack(aeth.syndrome));
                let is_empty = matches!(work, Work::AtomicWrite(_) | Work::Flush(..));
                if !acks || !(work.is_read() || is_empty) {
                    return (self.fail(Outcome::BadResponse), None);
                }
                self.progressed();
                if is_empty {
                    self.end(answer);
                    return (true, None);
                }
                self.place(answer)
            }
            Response::Atomic(aeth, value) => {
                if !is_ack(aeth.syndrome) || !work.is_atomic() {
                    return (self.fail(Outcome::BadResponse), None);
                }
                let id = wqe.request.id;
                self.progressed();
                self.end(answer);
                (true, Some(Event::Old { id, value }))
            }
            Response::Acknowledge(aeth) => (self.acknowledged(now, answer, aeth.syndrome), None),
        }
    }

    /// Takes bytes of a READ. They are placed after the earlier bytes, without a check of the
    /// packet's number.
    fn place(&mut self, answer: &Answer) -> (bool, Option<Event>) {
        let Some(wqe) = self.queue.front_mut() else { return (true, None) };
        let (id, offset) = (wqe.request.id, wqe.done);
        let bytes = answer.bytes.clone();
        if bytes.len() as u32 > wqe.request.length - wqe.done {
            return (self.fail(Outcome::LocalLength), None);
        }
        wqe.done += bytes.len() as u32;
        if wqe.done == wqe.request.length && answer.ends() {
            self.end(answer);
        } else {
            self.moved(answer);
        }
        (true, Some(Event::Place { id, offset, bytes }))
    }

    fn acknowledged(&mut self, now: u64, answer: &Answer, syndrome: Syndrome) -> bool {
        match syndrome {
            Syndrome::Ack(_) => {
                self.progressed();
                let whole = |wqe: &Wqe| wqe.state == State::Pending && wqe.last == answer.psn;
                if self.queue.front().is_some_and(whole) {
                    self.end(answer);
                } else {
                    self.moved(answer);
                }
                true
            }
            Syndrome::NotReady(timer) => self.not_ready(now, timer),
            Syndrome::Nak(Nak::Sequence) => {
                if self.acked.is_before(answer.psn) {
                    self.acked = answer.psn;
                }
                self.retry(false)
            }
            Syndrome::Nak(Nak::InvalidRequest) => self.fail(Outcome::RemoteInvalidRequest),
            Syndrome::Nak(Nak::RemoteAccess) => self.fail(Outcome::RemoteAccess),
            Syndrome::Nak(Nak::RemoteOperational) => self.fail(Outcome::RemoteOperational),
        }
    }

    fn not_ready(&mut self, now: u64, timer: RnrTimer) -> bool {
        if self.rnr_retries == 0 {
            return self.fail(Outcome::RnrRetryExceeded);
        }
        self.rnr_retries -= u8::from(self.rnr_retries != 7);
        let nanos = u64::try_from(rnr_delay(timer).as_nanos()).expect("less than a second");
        self.not_ready_until = Some(now + nanos.div_ceil(JIFFY) * JIFFY);
        false
    }

    fn retry(&mut self, timed_out: bool) -> bool {
        if self.retrying && !timed_out {
            return true;
        }
        if self.retries == 0 {
            return self.fail(Outcome::RetryExceeded);
        }
        self.retries -= u8::from(self.retries != 7);
        if self.acked.is_before(self.next) {
            (self.go_back, self.retrying) = (true, true);
        }
        true
    }

    fn progressed(&mut self) {
        self.retries = self.config.retry_count;
        self.rnr_retries = self.config.rnr_retry;
        self.retrying = false;
    }

    /// Completes the oldest entry with its own answer.
    fn end(&mut self, answer: &Answer) {
        if let Some(wqe) = self.queue.front_mut() {
            self.slots += u32::from(std::mem::take(&mut wqe.counted));
        }
        self.succeed();
        if !answer.psn.is_before(self.acked) {
            self.moved(answer);
        }
    }

    fn moved(&mut self, answer: &Answer) {
        self.in_answer = !answer.ends();
        if !answer.psn.is_before(self.acked) {
            self.acked = answer.psn.next();
        }
    }

    fn succeed(&mut self) {
        if let Some(wqe) = self.queue.pop_front() {
            self.at = self.at.saturating_sub(1);
            self.completed(&wqe.request, Outcome::Success);
        }
    }

    fn fail(&mut self, outcome: Outcome) -> bool {
        if let Some(wqe) = self.queue.pop_front() {
            self.completed(&wqe.request, outcome);
        }
        self.failed = true;
        (self.timer, self.not_ready_until) = (None, None);
        // The other entries are flushed when the task runs again.
        true
    }

    fn completed(&mut self, request: &WorkRequest, outcome: Outcome) {
        let WorkRequest { id, signaled, .. } = *request;
        self.completions.push_back(Completion { id, outcome, signaled });
    }
}

const fn is_ack(syndrome: Syndrome) -> bool {
    matches!(syndrome, Syndrome::Ack(_))
}
