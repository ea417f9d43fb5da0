//! Execution of requests on the memory and the receives of a host.

use vrnic_roce::responder::{Arrival, Arriving, Verdict};
use vrnic_roce::wire::headers::{AtomicEth, Imm, Reth};
use vrnic_roce::wire::{Rkey, SendEnd};

use crate::host::{BASE, Host, KEY, RECEIVE, Received};

impl Host {
    /// Executes a request.
    pub(crate) fn execute(&mut self, arrival: &Arrival, payload: &[u8]) -> Verdict {
        assert_eq!(arrival.bytes as usize, payload.len());
        match arrival.work {
            Arriving::Send(end) => self.send(arrival, end, payload),
            Arriving::Write(reth, end) => self.write(arrival, reth, end, payload),
            Arriving::Read(reth) => match self.remote(reth) {
                Some(_) => Verdict::Executed,
                None => Verdict::Access,
            },
            Arriving::CompareSwap(AtomicEth { addr, key, swap_or_add, compare }) => {
                self.exchange(addr, key, |old| if old == compare { swap_or_add } else { old })
            }
            Arriving::FetchAdd(AtomicEth { addr, key, swap_or_add, .. }) => {
                self.exchange(addr, key, |old| old.wrapping_add(swap_or_add))
            }
            Arriving::AtomicWrite(reth) => match self.remote(reth) {
                Some(word) => {
                    word.copy_from_slice(payload);
                    self.executed_once += 1;
                    Verdict::Executed
                }
                None => Verdict::Access,
            },
            Arriving::Flush(feth, reth) => {
                let reth =
                    if feth.is_of_region() { Reth { addr: BASE, length: 1, ..reth } } else { reth };
                self.executed_once += 1;
                if self.remote(reth).is_some() { Verdict::Executed } else { Verdict::Access }
            }
        }
    }

    fn take_receive(&mut self) -> Option<u64> {
        if self.current.is_none() {
            self.current = self.receives.pop_front();
        }
        self.current
    }

    fn send(&mut self, arrival: &Arrival, end: Option<SendEnd>, payload: &[u8]) -> Verdict {
        let Some(addr) = self.take_receive() else { return Verdict::NotReady };
        let total = arrival.at + arrival.bytes;
        if total > RECEIVE {
            return Verdict::Invalid;
        }
        let to = self.bytes(addr + u64::from(arrival.at), arrival.bytes).expect("a receive");
        to.copy_from_slice(payload);
        if let Some(end) = end {
            self.current = None;
            let bytes = self.bytes(addr, total).expect("a receive").to_vec();
            let (imm, invalidated) = match end {
                SendEnd::Plain => (None, None),
                SendEnd::Imm(imm) => (Some(imm), None),
                SendEnd::Invalidate(key) => (None, Some(key)),
            };
            let solicited = arrival.solicited;
            let received = Received { bytes, imm, invalidated, solicited, is_write: false };
            self.received.push(received);
        }
        Verdict::Executed
    }

    fn write(
        &mut self,
        arrival: &Arrival,
        reth: Reth,
        end: Option<Option<Imm>>,
        payload: &[u8],
    ) -> Verdict {
        if self.remote(reth).is_none() {
            return Verdict::Access;
        }
        if end.flatten().is_some() && self.take_receive().is_none() {
            return Verdict::NotReady;
        }
        if !payload.is_empty() {
            let to = self.bytes(reth.addr + u64::from(arrival.at), arrival.bytes);
            to.expect("the whole was checked").copy_from_slice(payload);
        }
        if let Some(Some(imm)) = end {
            self.current = None;
            self.received.push(Received {
                bytes: Vec::new(),
                imm: Some(imm),
                invalidated: None,
                solicited: arrival.solicited,
                is_write: true,
            });
        }
        Verdict::Executed
    }

    /// Returns the memory that a peer names. Without bytes, the key and the address have no meaning
    /// (C9-88).
    pub(crate) fn remote(&mut self, reth: Reth) -> Option<&mut [u8]> {
        if reth.length == 0 {
            return Some(&mut []);
        }
        if reth.key == KEY { self.bytes(reth.addr, reth.length) } else { None }
    }

    fn exchange(&mut self, addr: u64, key: Rkey, new: impl Fn(u64) -> u64) -> Verdict {
        let Some(word) = self.remote(Reth { addr, key, length: 8 }) else {
            return Verdict::Access;
        };
        let old = u64::from_le_bytes((&*word).try_into().expect("8 bytes"));
        word.copy_from_slice(&new(old).to_le_bytes());
        Verdict::Old(old)
    }
}
