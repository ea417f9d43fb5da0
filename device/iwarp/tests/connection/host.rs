//! An end of a connection: a stream, and plain vectors for its memory.

use std::collections::{HashMap, VecDeque};

use vrnic_iwarp::rdmap::memory::{
    Destination, Early, Ended, Inbound, Memory, Operation, ReadSource, Refused,
};
use vrnic_iwarp::rdmap::work::{Completion, Outcome, Work, WorkRequest};
use vrnic_iwarp::stream::close::Order;
use vrnic_iwarp::stream::{Event, Stream};
use vrnic_iwarp::tcp::{Gone, StreamPos, Undone};
use vrnic_iwarp::wire::ddp::{Stag, Tagged};

/// The STag of all memory of an end. Its tagged offsets are offsets in the memory.
pub(crate) const ALL: Stag = Stag(0x0100);
/// An STag with read-only access.
pub(crate) const READ_ONLY: Stag = Stag(0x0200);
/// An STag that is valid for one WRITE or READ.
pub(crate) const ONE_TOUCH: Stag = Stag(0x0300);

/// A posted receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receive {
    pub(crate) at: usize,
    pub(crate) len: usize,
}

/// A completed receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) at: usize,
    pub(crate) len: usize,
    pub(crate) solicited: bool,
    pub(crate) invalidated: Option<Stag>,
    pub(crate) immediate: Option<[u8; 8]>,
}

/// The memory of an end, and the state of its use.
#[derive(Debug, Default)]
pub(crate) struct Ram {
    pub(crate) octets: Vec<u8>,
    /// The offsets of the memory of work requests.
    pub(crate) work: HashMap<u64, usize>,
    pub(crate) receives: VecDeque<Receive>,
    pub(crate) received: Vec<Received>,
    /// STags that are invalid.
    pub(crate) invalid: Vec<Stag>,
    /// Work requests whose memory does not exist any more.
    pub(crate) gone: Vec<u64>,
    /// True if the next messages that end have to wait.
    pub(crate) later: bool,
    /// True if the turn has ended.
    pub(crate) over: bool,
    /// True if octets of WRITEs are on their way to the memory.
    pub(crate) moving: bool,
    /// The position of the last segment of the one-touch WRITE, until the stream reaches that
    /// position.
    touched: Option<StreamPos>,
    /// Number of segments that were placed.
    pub(crate) placed: usize,
}

impl Ram {
    pub(crate) fn new(seed: u64, len: usize) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut octets = vec![0; len];
        rng.fill(&mut octets);
        Self { octets, ..Self::default() }
    }

    fn range(&self, at: usize, len: usize) -> Option<&[u8]> {
        self.octets.get(at..at.checked_add(len)?)
    }

    fn check(&self, at: Tagged, len: usize, write: bool) -> Result<usize, Refused> {
        if self.invalid.contains(&at.stag) || ![ALL, READ_ONLY, ONE_TOUCH].contains(&at.stag) {
            return Err(Refused::Invalid);
        }
        if write && at.stag == READ_ONLY {
            return Err(Refused::Rights);
        }
        let start = usize::try_from(at.to).map_err(|_| Refused::Bounds)?;
        self.range(start, len).map(|_| start).ok_or(Refused::Bounds)
    }

    fn write(&mut self, at: usize, octets: &[u8]) {
        self.octets[at..at + octets.len()].copy_from_slice(octets);
    }

    /// Takes octets of a SEND.
    fn send(&mut self, inbound: &Inbound, octets: &[u8]) -> Result<(), Refused> {
        let receive = *self.receives.front().ok_or(Refused::NotReady)?;
        let end = inbound.at as usize + octets.len();
        if end > receive.len {
            return Err(Refused::TooLong);
        }
        self.write(receive.at + inbound.at as usize, octets);
        Ok(())
    }

    /// Checks the last segment of a WRITE to the one-touch STag.
    fn touch(&self, at: Tagged, last: bool) -> Result<(), Refused> {
        let twice = last && at.stag == ONE_TOUCH && self.touched.is_some();
        if twice { Err(Refused::Rights) } else { Ok(()) }
    }
}

impl Memory for Ram {
    fn read(&mut self, work: u64, at: u32, into: &mut [u8]) -> Result<(), Undone> {
        if self.gone.contains(&work) {
            return Err(Gone.into());
        }
        let start = self.work.get(&work).ok_or(Gone)? + at as usize;
        into.copy_from_slice(self.range(start, into.len()).ok_or(Gone)?);
        Ok(())
    }

    fn store(&mut self, work: u64, at: u32, octets: &[u8]) -> Result<(), Undone> {
        if self.gone.contains(&work) {
            return Err(Gone.into());
        }
        let start = self.work.get(&work).ok_or(Gone)? + at as usize;
        self.write(start, octets);
        Ok(())
    }

    fn read_source(&mut self, source: &ReadSource, at: u32, into: &mut [u8]) -> Result<(), Undone> {
        let start = self.check(source.at, 0, false).map_err(|_| Gone)? + at as usize;
        into.copy_from_slice(self.range(start, into.len()).ok_or(Gone)?);
        Ok(())
    }

    fn answered(&mut self, source: &ReadSource) {
        if source.at.stag == ONE_TOUCH {
            self.invalid.push(ONE_TOUCH);
        }
    }

    fn place(&mut self, inbound: &Inbound, octets: &[u8]) -> Result<(), Refused> {
        match inbound.operation {
            Operation::Send(_) => self.send(inbound, octets)?,
            Operation::Immediate(_) => self.send(inbound, &[])?,
            Operation::Write(at) => {
                let start = self.check(at, octets.len(), true)?;
                self.touch(at, inbound.last)?;
                self.write(start, octets);
            }
            Operation::Read(at) => {
                self.check(at, inbound.len as usize, false)?;
            }
            Operation::Atomic(..) => return Err(Refused::Disabled),
        }
        self.placed += 1;
        Ok(())
    }

    fn place_ahead(&mut self, early: &Early, octets: &[u8]) -> bool {
        let at = match early.destination {
            Destination::Write(at) => {
                let Ok(start) = self.check(at, octets.len(), true) else { return false };
                if self.touch(at, early.last).is_err() {
                    return false;
                }
                if early.last && at.stag == ONE_TOUCH {
                    self.touched = Some(early.end);
                }
                start
            }
            Destination::Send { receive, at } => {
                assert!(receive < 16);
                let Some(receive) = self.receives.get(receive as usize) else { return false };
                if at as usize + octets.len() > receive.len {
                    return false;
                }
                receive.at + at as usize
            }
        };
        self.placed += 1;
        self.write(at, octets);
        true
    }

    fn is_moving(&self, _number: u64) -> bool {
        self.moving
    }

    fn end(&mut self, inbound: &Inbound) -> Result<Ended, Refused> {
        assert!(!self.moving, "a message ends before its octets have arrived");
        if let Operation::Write(Tagged { stag: ONE_TOUCH, .. }) = inbound.operation {
            assert!(self.touched.is_none_or(|end| end == inbound.end));
            self.touched = None;
            self.invalid.push(ONE_TOUCH);
        }
        let (invalidated, immediate) = match inbound.operation {
            Operation::Send(invalidate) => (invalidate, None),
            Operation::Immediate(data) => (None, Some(data)),
            _ => return Ok(Ended::Now),
        };
        if let Some(stag) = invalidated {
            if self.invalid.contains(&stag) {
                return Err(Refused::NotInvalidated);
            }
            self.invalid.push(stag);
        }
        let receive = self.receives.pop_front().ok_or(Refused::Gone)?;
        let (at, len) = (receive.at, (inbound.at + inbound.len) as usize);
        let solicited = inbound.solicited;
        self.received.push(Received { at, len, solicited, invalidated, immediate });
        Ok(if std::mem::take(&mut self.later) { Ended::Later } else { Ended::Now })
    }

    fn is_over(&self) -> bool {
        self.over
    }

    fn atomic(&mut self, inbound: &Inbound) -> Result<u64, Refused> {
        let Operation::Atomic(word, op) = inbound.operation else { return Err(Refused::Disabled) };
        let at = self.check(word, 8, true)?;
        let octets = self.octets[at..at + 8].try_into().expect("eight octets");
        let old = u64::from_ne_bytes(octets);
        self.write(at, &op.apply(old).to_ne_bytes());
        Ok(old)
    }
}

/// An end of a connection.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) stream: Stream,
    pub(crate) ram: Ram,
    pub(crate) completions: Vec<Completion>,
    pub(crate) events: Vec<Event>,
    pub(crate) orders: Vec<Order>,
    next: u64,
}

impl End {
    pub(crate) fn new(stream: Stream, seed: u64) -> Self {
        let ram = Ram::new(seed, 1 << 18);
        let (completions, events, orders) = (Vec::new(), Vec::new(), Vec::new());
        Self { stream, ram, completions, events, orders, next: 0 }
    }

    /// Posts a work request whose memory starts at `at`. Returns its identifier.
    pub(crate) fn post(&mut self, work: Work, at: usize, length: u32) -> u64 {
        let id = self.next;
        self.next += 1;
        self.ram.work.insert(id, at);
        let request = WorkRequest { id, work, length, signaled: true, fence: false };
        self.stream.push(request).expect("room in the send queue");
        id
    }

    pub(crate) fn receive(&mut self, at: usize, len: usize) {
        self.ram.receives.push_back(Receive { at, len });
    }

    /// Takes completions, events and orders from the stream.
    pub(crate) fn collect(&mut self) {
        while let Some(completion) = self.stream.next_completion() {
            self.completions.push(completion);
        }
        while let Some(event) = self.stream.next_event() {
            self.events.push(event);
        }
        while let Some(order) = self.stream.next_order() {
            self.orders.push(order);
        }
    }

    pub(crate) fn outcomes(&self) -> Vec<(u64, Outcome)> {
        self.completions.iter().map(|done| (done.id, done.outcome)).collect()
    }
}
