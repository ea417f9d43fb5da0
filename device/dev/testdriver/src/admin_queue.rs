//! The admin queue, as the driver sees it.

use vrnic_abi::admin::{Completion, PARAMS_LEN, Submission};
use vrnic_abi::stamp;
use vrnic_queues::ring::Ring;
use zerocopy::IntoBytes;

use crate::memory::{Ram, load, stamp_of, write};

/// log2 of the bytes of a command or a completion.
const LOG_ENTRY: u8 = 6;
/// Byte offset of the stamp of a completion.
const STAMP_OFFSET: u32 = std::mem::offset_of!(Completion, stamp) as u32;

/// The driver's side of the admin rings.
#[derive(Debug)]
pub struct AdminQueue {
    /// Guest address of the commands.
    pub sq: u64,
    /// Guest address of the completions.
    pub cq: u64,
    commands: Ring,
    completions: Ring,
    pi: u32,
    ci: u32,
}

impl AdminQueue {
    /// Returns rings of `1 << log` entries in fresh memory.
    pub(crate) fn new(ram: &Ram, log: u8) -> Self {
        let [sq, cq] = [(); 2].map(|()| ram.alloc(1 << (log + LOG_ENTRY)));
        let ring = |addr| ram.ring(addr, log, LOG_ENTRY).expect("guest memory");
        Self { sq, cq, commands: ring(sq), completions: ring(cq), pi: 0, ci: 0 }
    }

    /// Writes a command into the ring without starting it. Returns its id.
    pub fn post(&mut self, opcode: u16, flags: u16, params: [u8; PARAMS_LEN]) -> u32 {
        let id = self.pi ^ 0x5a5a;
        let command =
            Submission { opcode: opcode.into(), flags: flags.into(), id: id.into(), params };
        write(self.commands.entry(self.pi), 0, command.as_bytes()).expect("an entry");
        self.pi = self.pi.wrapping_add(1);
        id
    }

    /// Returns the producer index.
    #[must_use]
    pub fn producer(&self) -> u32 {
        self.pi
    }

    /// Takes the next completion, if there is one.
    pub fn poll(&mut self) -> Option<Completion> {
        let entry = self.completions.entry(self.ci);
        if stamp_of(entry, STAMP_OFFSET) != stamp(self.ci) {
            return None;
        }
        self.ci = self.ci.wrapping_add(1);
        Some(load(entry))
    }
}
