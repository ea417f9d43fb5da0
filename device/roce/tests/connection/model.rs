//! Random work, and the expected results.
//!
//! The model executes the same work in order, each message once. Memory is divided into areas,
//! because the specification does not define the order in which the bytes of a READ are read and
//! later WRITEs are executed.

use vrnic_roce::requester::{Completion, Outcome, Work, WorkRequest};
use vrnic_roce::wire::headers::Feth;
use vrnic_roce::wire::{Rkey, SendEnd};

use crate::host::{BASE, Host, MEMORY, RECEIVE, Received, remote, work};

/// Sources of SENDs and WRITEs, and of READs of the peer. No operation writes there.
const SOURCE: std::ops::Range<u64> = 0..192 << 10;
/// Words of atomics.
const WORDS: u64 = 192 << 10;
/// Targets of WRITEs.
const TARGET: std::ops::Range<u64> = 256 << 10..512 << 10;
/// Sinks of READs.
const SINK: std::ops::Range<u64> = 768 << 10..1024 << 10;

/// The expected results of one end's work at the other end.
#[derive(Debug, Default)]
pub(crate) struct Model {
    /// The peer's memory.
    memory: Vec<u8>,
    received: Vec<Received>,
    old_values: Vec<(u64, u64)>,
    /// The number of ATOMIC WRITEs and FLUSHes.
    executed_once: u32,
    /// Sinks and their expected bytes.
    sinks: Vec<(u64, Vec<u8>)>,
    /// The number of messages that use a receive, up to each work request.
    messages: Vec<usize>,
    posted: usize,
    sink: u64,
}

/// The set of operations to post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    All,
    /// The operations of unreliable connections.
    Unreliable,
    /// All operations without fences. If rxe has to send a request with a fence again, it may wait
    /// for ever, because its fence also waits for the request itself and for later READs and
    /// atomics (rxe_req.c, `rxe_wqe_is_fenced`).
    Rxe,
}

impl Model {
    /// Returns a model with the memory of a peer.
    pub(crate) fn new(peer: &Host) -> Self {
        Self { memory: peer.memory.clone(), ..Self::default() }
    }

    fn slice(&mut self, at: u64, length: u32) -> &mut [u8] {
        &mut self.memory[at as usize..at as usize + length as usize]
    }

    /// Posts a random work request on `host` and executes it here.
    pub(crate) fn post(&mut self, host: &mut Host, rng: &mut fastrand::Rng, mix: Mix) {
        let length = match rng.u8(..8) {
            0 => 0,
            1..=4 => rng.u32(..1500),
            _ => rng.u32(..RECEIVE),
        };
        let id = self.posted as u64;
        self.posted += 1;
        let source = rng.u64(SOURCE.start..SOURCE.end - u64::from(length));
        let imm = rng.u32(..).to_be_bytes();
        let kinds = if mix == Mix::Unreliable { 4 } else { 10 };
        let request = match rng.u8(..kinds) {
            0 => work(id, Work::Send(SendEnd::Plain), length),
            1 => work(id, Work::Send(SendEnd::Imm(imm)), length),
            2 => work(id, Work::Write(self.target(rng, length), None), length),
            3 => work(id, Work::Write(self.target(rng, length), Some(imm)), length),
            4 => work(id, Work::Send(SendEnd::Invalidate(Rkey(rng.u32(..)))), length),
            5 => work(id, Work::Read(remote(source)), length),
            6 => {
                let word = remote(WORDS + rng.u64(..4) * 8);
                // Small numbers, so that some comparisons succeed.
                work(id, Work::CompareSwap { word, compare: rng.u64(..4), swap: rng.u64(..4) }, 8)
            }
            7 => {
                let word = remote(WORDS + rng.u64(..4) * 8);
                work(id, Work::FetchAdd { word, add: rng.u64(..2) }, 8)
            }
            8 => work(id, Work::AtomicWrite(remote(WORDS + rng.u64(..4) * 8)), 8),
            _ => {
                let region = if rng.bool() { Feth::REGION } else { 0 };
                work(id, Work::Flush(Feth(Feth::GLOBAL | region), remote(source)), length)
            }
        };
        let solicited = rng.bool();
        let fence = rng.u8(..8) == 0 && mix != Mix::Rxe;
        let request = WorkRequest { solicited, signaled: rng.bool(), fence, ..request };
        let local = if request.work.is_read() { self.next_sink(length) } else { BASE + source };
        self.execute(&request, host, local);
        self.messages.push(self.received.len());
        host.post(request, local);
    }

    fn target(&self, rng: &mut fastrand::Rng, length: u32) -> vrnic_roce::requester::Remote {
        remote(rng.u64(TARGET.start..TARGET.end - u64::from(length)))
    }

    fn next_sink(&mut self, length: u32) -> u64 {
        if SINK.start + self.sink + u64::from(length) > SINK.end {
            self.sink = 0;
            self.sinks.clear();
        }
        let at = BASE + SINK.start + self.sink;
        self.sink += u64::from(length);
        at
    }

    fn execute(&mut self, request: &WorkRequest, host: &mut Host, local: u64) {
        let WorkRequest { id, length, solicited, .. } = *request;
        let bytes = host.bytes(local, length).expect("local memory").to_vec();
        match request.work {
            Work::Send(end) => {
                let (imm, invalidated) = match end {
                    SendEnd::Plain => (None, None),
                    SendEnd::Imm(imm) => (Some(imm), None),
                    SendEnd::Invalidate(key) => (None, Some(key)),
                };
                let received = Received { bytes, imm, invalidated, solicited, is_write: false };
                self.received.push(received);
            }
            Work::Write(to, imm) => {
                self.slice(to.addr - BASE, length).copy_from_slice(&bytes);
                if imm.is_some() {
                    let bytes = Vec::new();
                    let received =
                        Received { bytes, imm, invalidated: None, solicited, is_write: true };
                    self.received.push(received);
                }
            }
            Work::Read(from) => {
                let bytes = self.slice(from.addr - BASE, length).to_vec();
                self.sinks.push((local, bytes));
            }
            Work::CompareSwap { word, compare, swap } => {
                self.exchange(id, word.addr, |old| if old == compare { swap } else { old });
            }
            Work::FetchAdd { word, add } => {
                self.exchange(id, word.addr, |old| old.wrapping_add(add));
            }
            Work::AtomicWrite(word) => {
                self.slice(word.addr - BASE, 8).copy_from_slice(&bytes);
                self.executed_once += 1;
            }
            Work::Flush(..) => self.executed_once += 1,
        }
    }

    fn exchange(&mut self, id: u64, addr: u64, new: impl Fn(u64) -> u64) {
        let word = self.slice(addr - BASE, 8);
        let old = u64::from_le_bytes((&*word).try_into().expect("8 bytes"));
        word.copy_from_slice(&new(old).to_le_bytes());
        self.old_values.push((id, old));
    }

    /// Returns the number of work requests that were posted.
    pub(crate) fn posted(&self) -> usize {
        self.posted
    }

    /// Checks the results of the work of `host` at `peer`.
    pub(crate) fn check(&self, host: &Host, peer: &Host) {
        let ids: Vec<u64> = host.completions.iter().map(|completion| completion.id).collect();
        assert!(ids.is_sorted() && ids.len() == self.posted, "of {}: {host:?}", self.posted);
        let failed = host.completions.iter().find(|done| done.outcome != Outcome::Success);
        assert_eq!(failed, None, "{:?}", host.requester);
        assert!(peer.received == self.received, "messages differ");
        assert_eq!(host.old_values, self.old_values);
        assert_eq!(peer.executed_once, self.executed_once, "ATOMIC WRITEs and FLUSHes");
        let area = SOURCE.start as usize..TARGET.end as usize;
        assert!(peer.memory[area.clone()] == self.memory[area], "memory differs");
        assert_eq!(self.memory.len(), MEMORY);
        for (addr, bytes) in &self.sinks {
            let at = (addr - BASE) as usize;
            assert!(host.memory[at..at + bytes.len()] == bytes[..], "a READ's bytes differ");
        }
    }
}

impl Model {
    /// Checks that an unreliable connection has delivered some of the messages, whole and in order.
    /// Returns their number.
    pub(crate) fn check_some(&self, host: &Host, peer: &Host) -> usize {
        assert_eq!(host.completions.len(), self.posted);
        let mut sent = self.received.iter();
        for received in &peer.received {
            assert!(sent.any(|message| message == received), "not a message, or out of order");
        }
        peer.received.len()
    }

    /// Checks a connection that may have failed: the peer has executed the first messages in order
    /// and among them all that have completed. Returns the number of completed work requests.
    pub(crate) fn check_begun(&self, host: &Host, peer: &Host) -> usize {
        assert_eq!(host.completions.len(), self.posted);
        let good = |done: &&Completion| done.outcome == Outcome::Success;
        let count = host.completions.iter().take_while(good).count();
        let messages = count.checked_sub(1).map_or(0, |last| self.messages[last]);
        assert!(self.received.starts_with(&peer.received), "not a message, or out of order");
        assert!(peer.received.len() >= messages, "completed, and not executed");
        assert!(self.old_values.starts_with(&host.old_values), "an atomic's value differs");
        count
    }

    /// Returns the number of messages that use a receive.
    pub(crate) fn messages(&self) -> usize {
        self.received.len()
    }
}

/// Sets the words of atomics to small numbers.
pub(crate) fn clear_words(host: &mut Host) {
    host.bytes(BASE + WORDS, 32).expect("words").fill(0);
}
