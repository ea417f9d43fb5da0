//! Work queue entries, copied out of the queue once and checked.

use vrnic_abi::rq::RqWqe;
use vrnic_abi::sq::{AtomicSeg, Flags, HEADER_LEN, MAX_MESSAGE, MAX_SGE, Opcode, Sge, SqWqe};
use vrnic_abi::{cq, rq};
use zerocopy::FromBytes;

/// A scatter/gather entry in native form.
#[derive(Clone, Copy, Debug, Default)]
pub struct Segment {
    /// Address in the region.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// Key of the region.
    pub key: u32,
}

/// Scatter/gather entries.
#[derive(Clone, Copy, Debug)]
pub struct Segments {
    list: [Segment; MAX_SGE as usize],
    count: usize,
    total: u64,
}

impl Default for Segments {
    fn default() -> Self {
        Self { list: [Segment::default(); MAX_SGE as usize], count: 0, total: 0 }
    }
}

impl Segments {
    fn parse(bytes: &[u8], count: usize) -> Option<Self> {
        let mut this = Self { count, ..Self::default() };
        for (index, segment) in this.list.iter_mut().enumerate().take(count) {
            let bytes = bytes.get(index * size_of::<Sge>()..)?;
            let (sge, _) = Sge::read_from_prefix(bytes).ok()?;
            *segment = Segment { addr: sge.addr.get(), len: sge.length.get(), key: sge.lkey.get() };
            this.total += u64::from(segment.len);
        }
        (count <= MAX_SGE as usize).then_some(this)
    }

    /// The entries.
    #[must_use]
    pub fn list(&self) -> &[Segment] {
        self.list.get(..self.count).unwrap_or_default()
    }

    /// Bytes in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }
}

/// A send work request.
#[derive(Clone, Debug)]
pub struct Send {
    /// From the WQE.
    pub wr_id: u64,
    /// Its index.
    pub index: u32,
    /// What to do.
    pub opcode: Opcode,
    /// How.
    pub flags: Flags,
    /// Immediate data.
    pub imm: [u8; 4],
    /// Remote address.
    pub raddr: u64,
    /// Remote key.
    pub rkey: u32,
    /// Operands of an atomic.
    pub operands: (u64, u64),
    /// Where the data is or goes; empty when inline.
    pub segments: Segments,
    /// Message length in bytes.
    pub length: u64,
}

/// Why an entry was refused, with what the completion needs.
#[derive(Clone, Copy, Debug)]
pub struct Malformed {
    /// From the WQE.
    pub wr_id: u64,
    /// What to call it.
    pub opcode: cq::Opcode,
    /// Status of the completion.
    pub status: cq::Status,
}

impl Send {
    /// Checks the entry with this index, which is `bytes`.
    ///
    /// # Errors
    /// When opcode, flags, count or length are not as docs/adapter.md says.
    pub fn parse(bytes: &[u8], index: u32) -> Result<Self, Malformed> {
        let Ok((header, body)) = SqWqe::read_from_prefix(bytes) else {
            return Err(Malformed {
                wr_id: 0,
                opcode: cq::Opcode::Send,
                status: cq::Status::GeneralErr,
            });
        };
        let wr_id = header.wr_id.get();
        let opcode = Opcode::from_raw(header.opcode);
        let refuse = |status| Malformed {
            wr_id,
            opcode: opcode.map_or(cq::Opcode::Send, completed),
            status,
        };
        let bad = refuse(cq::Status::LocQpOpErr);
        let opcode = opcode.ok_or(bad)?;
        let flags = Flags::from_bits(header.flags).ok_or(bad)?;
        let mut send = Self {
            wr_id,
            index,
            opcode,
            flags,
            imm: header.imm,
            raddr: header.raddr.get(),
            rkey: header.rkey.get(),
            operands: (0, 0),
            segments: Segments::default(),
            length: 0,
        };
        send.parse_body(body, usize::from(header.count.get())).ok_or(bad)?;
        if send.length > u64::from(MAX_MESSAGE) {
            return Err(refuse(cq::Status::LocLenErr));
        }
        Ok(send)
    }

    fn parse_body(&mut self, body: &[u8], count: usize) -> Option<()> {
        let atomic = matches!(self.opcode, Opcode::CmpSwp | Opcode::FetchAdd);
        if self.flags.contains(Flags::INLINE) {
            if atomic || self.opcode == Opcode::Read {
                return None;
            }
            body.get(..count)?;
            self.length = count as u64;
        } else if atomic {
            let (operands, rest) = AtomicSeg::read_from_prefix(body).ok()?;
            self.operands = (operands.swap_add.get(), operands.compare.get());
            self.segments = Segments::parse(rest, count)?;
            self.length = self.segments.total();
            if count != 1 || self.length != 8 {
                return None;
            }
        } else {
            self.segments = Segments::parse(body, count)?;
            self.length = self.segments.total();
        }
        Some(())
    }

    /// The inline data of the entry, which is `bytes`.
    #[must_use]
    pub fn inline<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let start = HEADER_LEN as usize;
        let data = bytes.get(start..start + usize::try_from(self.length).ok()?);
        data.filter(|_| self.flags.contains(Flags::INLINE))
    }

    /// What the completion calls it.
    #[must_use]
    pub fn completed(&self) -> cq::Opcode {
        completed(self.opcode)
    }

    /// Whether it carries immediate data.
    #[must_use]
    pub fn imm(&self) -> Option<[u8; 4]> {
        matches!(self.opcode, Opcode::SendImm | Opcode::WriteImm).then_some(self.imm)
    }
}

fn completed(opcode: Opcode) -> cq::Opcode {
    match opcode {
        Opcode::Send | Opcode::SendImm => cq::Opcode::Send,
        Opcode::Write | Opcode::WriteImm => cq::Opcode::Write,
        Opcode::Read => cq::Opcode::Read,
        Opcode::CmpSwp => cq::Opcode::CmpSwp,
        Opcode::FetchAdd => cq::Opcode::FetchAdd,
    }
}

/// A receive work request.
#[derive(Clone, Copy, Debug)]
pub struct Recv {
    /// From the WQE.
    pub wr_id: u64,
    /// Its index.
    pub index: u32,
    /// Where the data goes; `None` when the entry is malformed.
    pub segments: Option<Segments>,
}

impl Recv {
    /// Checks the entry with this index, which is `bytes`.
    #[must_use]
    pub fn parse(bytes: &[u8], index: u32) -> Self {
        let Ok((header, body)) = RqWqe::read_from_prefix(bytes) else {
            return Self { wr_id: 0, index, segments: None };
        };
        let count = usize::from(header.count.get());
        let fits = count * size_of::<Sge>() + rq::HEADER_LEN as usize <= bytes.len();
        let segments = if fits { Segments::parse(body, count) } else { None };
        Self { wr_id: header.wr_id.get(), index, segments }
    }
}
