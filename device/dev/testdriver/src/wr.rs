//! Work requests.

use vrnic_abi::sq::{AtomicSeg, Flags, Opcode, Sge, SqWqe};
use zerocopy::IntoBytes;

/// A send work request.
#[derive(Clone, Debug)]
pub struct Wr {
    /// The identifier, which the completion contains.
    pub wr_id: u64,
    /// The operation, which may be invalid.
    pub opcode: u8,
    /// Flags. [`Flags::INLINE`] is added for inline data.
    pub flags: Flags,
    /// Immediate data.
    pub imm: [u8; 4],
    /// Remote address.
    pub raddr: u64,
    /// Remote key.
    pub rkey: u32,
    /// Segments.
    pub sges: Vec<Sge>,
    /// Data instead of segments.
    pub inline: Option<Vec<u8>>,
    /// The operands of an atomic: the value to add or swap in, and the value to compare with.
    pub atomic: Option<(u64, u64)>,
    /// The part between header and data, such as the destination of a datagram.
    pub body: Vec<u8>,
}

impl Wr {
    /// Creates a signaled work request with identifier 1.
    #[must_use]
    pub fn new(opcode: Opcode, sges: &[Sge]) -> Self {
        Self {
            wr_id: 1,
            opcode: opcode as u8,
            flags: Flags::SIGNALED,
            imm: [0; 4],
            raddr: 0,
            rkey: 0,
            sges: sges.to_vec(),
            inline: None,
            atomic: None,
            body: Vec::new(),
        }
    }

    /// Sets the remote memory.
    #[must_use]
    pub fn to(self, raddr: u64, rkey: u32) -> Self {
        Self { raddr, rkey, ..self }
    }

    /// Sets the identifier.
    #[must_use]
    pub fn id(self, wr_id: u64) -> Self {
        Self { wr_id, ..self }
    }

    /// Sets the flags.
    #[must_use]
    pub fn flags(self, flags: Flags) -> Self {
        Self { flags, ..self }
    }

    /// Sets the immediate data.
    #[must_use]
    pub fn imm(self, imm: [u8; 4]) -> Self {
        Self { imm, ..self }
    }

    /// Sets the inline data.
    #[must_use]
    pub fn inline(self, data: &[u8]) -> Self {
        Self { inline: Some(data.to_vec()), ..self }
    }

    /// Sets the operands of an atomic.
    #[must_use]
    pub fn atomic(self, swap_add: u64, compare: u64) -> Self {
        Self { atomic: Some((swap_add, compare)), ..self }
    }

    /// Sets the part between header and data.
    #[must_use]
    pub fn body(self, body: &[u8]) -> Self {
        Self { body: body.to_vec(), ..self }
    }

    /// Returns the bytes of the entry without the stamp.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut flags = self.flags;
        flags.set(Flags::INLINE, self.inline.is_some());
        let count = self.inline.as_ref().map_or(self.sges.len(), Vec::len);
        let header = SqWqe {
            wr_id: self.wr_id.into(),
            opcode: self.opcode,
            flags: flags.bits(),
            count: (count as u16).into(),
            imm: self.imm,
            raddr: self.raddr.into(),
            rkey: self.rkey.into(),
            stamp: 0.into(),
        };
        let operands = self.atomic.map(|(swap_add, compare)| AtomicSeg {
            swap_add: swap_add.into(),
            compare: compare.into(),
        });
        let data = self.inline.as_deref().unwrap_or(self.sges.as_bytes());
        [header.as_bytes(), &self.body, operands.as_ref().map_or(&[], |seg| seg.as_bytes()), data]
            .concat()
    }
}

/// Returns a segment.
#[must_use]
pub fn sge(addr: u64, length: u32, lkey: u32) -> Sge {
    Sge { addr: addr.into(), length: length.into(), lkey: lkey.into() }
}
