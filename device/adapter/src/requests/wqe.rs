//! Work queue entries. They are copied out of the queue once, and then parsed and checked.

use vrnic_abi::qp::{Destination, Service, Type};
use vrnic_abi::rq::RqWqe;
use vrnic_abi::sq::{
    AtomicSeg, BindMwSeg, Class, CommandFlags, CommandSeg, DATAGRAM_LEN, DatagramSeg, Flags,
    FlushFlags, HEADER_LEN, MAX_DATAGRAM, MAX_FRAME, MAX_MESSAGE, MAX_SEGMENT, MAX_SEGMENT_HEADERS,
    MAX_SGE, MIN_MSS, MemFlags, Opcode, RegMrSeg, SegmentSeg, Sge, SqWqe, XRC_LEN, XrcSeg,
};
use vrnic_abi::{Key, Srqn, cq, rq};
use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::domain::User;

/// A length that no message has.
const NO_LENGTH: u64 = u64::MAX;

/// A scatter/gather entry in native form.
#[derive(Clone, Copy, Debug, Default)]
pub struct Segment {
    /// Address in the region.
    pub addr: u64,
    /// Number of bytes.
    pub len: u32,
    /// Key of the region.
    pub key: Key,
}

/// The identifiers of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WqeId {
    /// The user's work request ID.
    pub wr_id: u64,
    /// The index of the WQE in its queue.
    pub index: u32,
}

/// The position of a work request's scatter/gather entries in the copy of its WQE.
#[derive(Clone, Copy, Debug, Default)]
pub struct SegmentList {
    offset: usize,
    count: usize,
    total: u64,
}

impl SegmentList {
    /// Returns a list of `count` entries at `offset`, or `None` if they do not fit into the WQE or
    /// are too many.
    fn parse(raw: &[u8], offset: usize, count: usize) -> Option<Self> {
        let mut this = Self { offset, count, total: 0 };
        if count > MAX_SGE as usize || raw.len() < offset + count * size_of::<Sge>() {
            return None;
        }
        this.total = this.iter(raw).map(|segment| u64::from(segment.len)).sum();
        Some(this)
    }

    /// Returns the entries.
    #[inline]
    pub fn iter<'a>(&self, raw: &'a [u8]) -> impl Iterator<Item = Segment> + Clone + use<'a> {
        let entries = raw.get(self.offset..).unwrap_or_default();
        entries.chunks_exact(size_of::<Sge>()).take(self.count).filter_map(|bytes| {
            let sge = Sge::ref_from_bytes(bytes).ok()?;
            Some(Segment { addr: sge.addr.get(), len: sge.length.get(), key: sge.lkey })
        })
    }

    /// Returns the offset of the end of the entries.
    fn end(&self) -> usize {
        self.offset + self.count * size_of::<Sge>()
    }

    /// Returns the number of entries.
    #[inline]
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count as u64
    }

    /// Returns the total number of bytes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }
}

/// A send work request.
#[derive(Clone, Copy, Debug)]
pub struct SendWqe {
    /// The work request ID, from the WQE.
    pub wr_id: u64,
    /// The index of the WQE in the send queue.
    pub index: u32,
    /// The operation of the work request.
    pub opcode: Opcode,
    /// The flags of the work request.
    pub flags: Flags,
    /// Immediate data.
    pub imm: [u8; 4],
    /// Remote address.
    pub raddr: u64,
    /// Remote key.
    pub rkey: Key,
    /// The value to swap in, or to add, of an atomic; [`FlushFlags`] of a FLUSH.
    pub swap_add: u64,
    /// The value to compare with, of a compare and swap; the number of bytes of a FLUSH.
    pub compare: u64,
    /// Segments of the data. If the data is inline, the list is empty and shows the offset of the
    /// data.
    pub segments: SegmentList,
    /// Message length in bytes.
    pub length: u64,
}

/// The parameters of a SEGMENT.
#[derive(Clone, Copy, Debug)]
pub struct Segmentation<'a> {
    /// Maximum number of bytes of payload in a frame.
    pub mss: u16,
    /// The headers of the large segment, from Ethernet to TCP.
    pub headers: &'a [u8],
    /// The offset of the entries of the payload in the WQE.
    body: usize,
}

/// The frames of an entry of a QP of raw packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames {
    /// The number of frames.
    pub count: u64,
    /// The bytes of all frames, with the headers of each.
    pub bytes: u64,
}

/// The reason for which an entry was refused, with the fields of its completion.
#[derive(Clone, Copy, Debug)]
pub struct Malformed {
    /// The identifiers of the work request.
    pub id: WqeId,
    /// The opcode of the completion.
    pub opcode: cq::Opcode,
    /// Status of the completion.
    pub status: cq::Status,
}

impl SendWqe {
    /// Returns the identifiers of the work request.
    #[inline]
    #[must_use]
    pub const fn id(&self) -> WqeId {
        WqeId { wr_id: self.wr_id, index: self.index }
    }

    /// Returns a value for [`Self::parse_into`] to fill.
    pub const EMPTY: Self = Self {
        wr_id: 0,
        index: 0,
        opcode: Opcode::Send,
        flags: Flags::empty(),
        imm: [0; 4],
        raddr: 0,
        rkey: Key::new(0),
        swap_add: 0,
        compare: 0,
        segments: SegmentList { offset: 0, count: 0, total: 0 },
        length: 0,
    };

    /// Parses and checks the entry `bytes` with this index of the send queue of a QP of this type.
    ///
    /// # Errors
    /// Returns an error if opcode, flags, count or length are not valid by docs/adapter.md.
    pub fn parse(kind: Type, bytes: &[u8], index: u32) -> Result<Self, Malformed> {
        let mut send = Self::EMPTY;
        send.parse_into(kind, bytes, index)?;
        Ok(send)
    }

    /// Parses in place. Moving the result would cost as much as parsing, because the loads of a
    /// move wait for the narrower stores before it.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::parse`]. The value is then meaningless.
    #[inline(always)]
    pub fn parse_into(&mut self, kind: Type, bytes: &[u8], index: u32) -> Result<(), Malformed> {
        let Ok((header, _)) = SqWqe::ref_from_prefix(bytes) else {
            return Err(Malformed {
                id: WqeId { wr_id: 0, index },
                opcode: cq::Opcode::Send,
                status: cq::Status::GeneralErr,
            });
        };
        let wr_id = header.wr_id.get();
        let opcode = Opcode::from_raw(header.opcode);
        let refuse = |status| Malformed {
            id: WqeId { wr_id, index },
            opcode: opcode.map_or(cq::Opcode::Send, |opcode| opcode.info().completion),
            status,
        };
        let bad = refuse(cq::Status::LocQpOpErr);
        let opcode = opcode.ok_or(bad)?;
        let flags = Flags::from_bits(header.flags).ok_or(bad)?;
        (self.wr_id, self.index) = (wr_id, index);
        (self.opcode, self.flags) = (opcode, flags);
        self.imm = header.imm;
        (self.raddr, self.rkey) = (header.raddr.get(), header.rkey);
        (self.swap_add, self.compare) = (0, 0);
        self.segments = SegmentList::default();
        self.length = 0;
        let count = usize::from(header.count.get());
        if kind != Type::RawPacket && is_of_raw_packets(opcode, flags)
            || kind != Type::Rc && !opcode.info().is_offered(kind)
        {
            return Err(bad);
        }
        let info = kind.info();
        let body = match info.destination {
            Destination::None => HEADER_LEN,
            Destination::Address => HEADER_LEN + DATAGRAM_LEN,
            Destination::Srq => HEADER_LEN + XRC_LEN,
        };
        let longest = match info.service {
            Service::Reliable | Service::Unreliable | Service::Bytes => MAX_MESSAGE,
            Service::Datagram => MAX_DATAGRAM,
            Service::RawPacket if opcode == Opcode::Segment => MAX_SEGMENT,
            Service::RawPacket => MAX_FRAME,
        };
        if kind != Type::Rc && !destination_is_sound(kind, bytes) {
            return Err(bad);
        }
        self.parse_body(bytes, body as usize, count).ok_or(bad)?;
        if self.length > u64::from(longest) {
            return Err(refuse(cq::Status::LocLenErr));
        }
        Ok(())
    }

    fn parse_body(&mut self, raw: &[u8], body: usize, count: usize) -> Option<()> {
        let body = if self.opcode == Opcode::SendCmd { Self::command(raw)?.1.end() } else { body };
        if self.opcode == Opcode::Segment {
            return self.parse_segment(raw, count);
        }
        let info = self.opcode.info();
        if self.flags.contains(Flags::INLINE) {
            if !info.may_be_inline() {
                return None;
            }
            raw.get(body..body + count)?;
            self.segments = SegmentList { offset: body, count: 0, total: 0 };
            self.length = count as u64;
        } else if self.is_local() {
            let (flags, reserved) = match self.opcode {
                Opcode::RegMr => Self::body::<RegMrSeg>(raw).map(|s| (s.flags, &s.reserved[..]))?,
                Opcode::BindMw => {
                    Self::body::<BindMwSeg>(raw).map(|s| (s.flags, &s.reserved[..]))?
                }
                _ => (0, &[][..]),
            };
            MemFlags::from_bits(flags).filter(|_| count == 0 && is_zero(reserved))?;
        } else if matches!(info.class, Class::Atomic | Class::Flush) {
            let (operands, _) = AtomicSeg::ref_from_prefix(raw.get(body..)?).ok()?;
            (self.swap_add, self.compare) = (operands.swap_add.get(), operands.compare.get());
            if info.class == Class::Flush {
                return self.is_sound_flush(count).then_some(());
            }
            self.segments = SegmentList::parse(raw, body + size_of::<AtomicSeg>(), count)?;
            self.length = self.segments.total();
            if count != 1 {
                return None;
            }
        } else {
            self.segments = SegmentList::parse(raw, body, count)?;
            self.length = self.segments.total();
            if (info.invalidate_sink || info.class == Class::AtomicWrite) && count != 1 {
                return None;
            }
        }
        if matches!(info.class, Class::Atomic | Class::AtomicWrite) && self.length != 8 {
            self.length = NO_LENGTH;
        }
        Some(())
    }

    /// Returns whether a FLUSH has no data, a length that fits its packet, and one or more flags.
    fn is_sound_flush(&self, count: usize) -> bool {
        let placement = FlushFlags::GLOBAL | FlushFlags::PERSISTENT;
        let flags = FlushFlags::from_bits(self.swap_add);
        count == 0
            && u32::try_from(self.compare).is_ok()
            && flags.is_some_and(|flags| flags.intersects(placement))
    }

    fn parse_segment(&mut self, raw: &[u8], count: usize) -> Option<()> {
        let Segmentation { headers, body, .. } = Self::segmentation(raw)?;
        self.segments = SegmentList::parse(raw, body, count)?;
        self.length = headers.len() as u64 + self.segments.total();
        (!self.flags.contains(Flags::INLINE)).then_some(())
    }

    /// Returns what the network gets from the entry `bytes` of a QP of raw packets.
    #[must_use]
    pub fn frames(&self, bytes: &[u8]) -> Frames {
        let parameters = (self.opcode == Opcode::Segment).then(|| Self::segmentation(bytes));
        let Some(Segmentation { mss, headers, .. }) = parameters.flatten() else {
            return Frames { count: 1, bytes: self.length };
        };
        let headers = headers.len() as u64;
        let count = self.length.saturating_sub(headers).div_ceil(mss.into()).max(1);
        Frames { count, bytes: self.length + (count - 1) * headers }
    }

    /// Returns the number of frames of the entry `bytes` of a QP of raw packets that are left when
    /// those of `done` bytes of its data have been sent.
    #[must_use]
    pub fn frames_from(&self, bytes: &[u8], done: u64) -> u64 {
        let sent = Self::segmentation(bytes).map_or(0, |segment| done / u64::from(segment.mss));
        self.frames(bytes).count.saturating_sub(sent)
    }

    /// Returns the parameters of the SEGMENT in the entry `bytes`.
    #[must_use]
    pub fn segmentation(bytes: &[u8]) -> Option<Segmentation<'_>> {
        let seg: &SegmentSeg = Self::body(bytes)?;
        let (mss, len) = (seg.mss.get(), usize::from(seg.header_len.get()));
        let start = HEADER_LEN as usize + size_of::<SegmentSeg>();
        let headers = bytes.get(start..start + len)?;
        let sound = mss >= MIN_MSS && len <= MAX_SEGMENT_HEADERS as usize && is_zero(&seg.reserved);
        let body = start + len.next_multiple_of(size_of::<Sge>());
        sound.then_some(Segmentation { mss, headers, body })
    }

    /// Returns the inline data of the entry `bytes`.
    #[must_use]
    pub fn inline<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let start = self.segments.offset;
        let data = bytes.get(start..start + usize::try_from(self.length).ok()?);
        data.filter(|_| self.flags.contains(Flags::INLINE))
    }

    /// Returns the destination of the datagram in the entry `bytes`.
    #[must_use]
    pub fn destination(bytes: &[u8]) -> Option<&DatagramSeg> {
        let rest = bytes.get(HEADER_LEN as usize..)?;
        DatagramSeg::ref_from_prefix(rest).ok().map(|(destination, _)| destination)
    }

    /// Returns the SRQ of the request of an XRC initiator in the entry `bytes`.
    #[must_use]
    pub fn xrc_srqn(bytes: &[u8]) -> Srqn {
        Self::body::<XrcSeg>(bytes).map_or(Srqn::default(), |seg| seg.srqn)
    }

    /// Returns whether it sends no message: it concerns a key or an address range of its adapter.
    #[inline]
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.opcode.info().class == Class::Local
    }

    /// Returns the key that the READ in the entry `bytes` invalidates when its data has arrived.
    #[must_use]
    pub fn ending_key(&self, bytes: &[u8]) -> Option<Key> {
        let sink = self.segments.iter(bytes).next();
        sink.filter(|_| self.opcode.info().invalidate_sink).map(|segment| segment.key)
    }

    /// Returns the part of the entry `bytes` after the header.
    #[must_use]
    pub fn body<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8]) -> Option<&T> {
        T::ref_from_prefix(bytes.get(HEADER_LEN as usize..)?).ok().map(|(body, _)| body)
    }

    /// Returns the segment with the parameters of the SEND_CMD in `bytes`, and the data that the
    /// peer may access.
    #[must_use]
    pub fn command(bytes: &[u8]) -> Option<(&CommandSeg, SegmentList)> {
        let seg: &CommandSeg = Self::body(bytes)?;
        CommandFlags::from_bits(seg.flags).filter(|_| seg.reserved == [0; 5])?;
        let offset = HEADER_LEN as usize + size_of::<CommandSeg>();
        let data = SegmentList::parse(bytes, offset, usize::from(seg.data_count.get()))?;
        (data.count > 0).then_some((seg, data))
    }

    /// Returns its opcode in completions.
    #[must_use]
    pub fn completed(&self) -> cq::Opcode {
        self.opcode.info().completion
    }

    /// Returns the immediate data, if it has any.
    #[must_use]
    pub fn imm(&self) -> Option<[u8; 4]> {
        self.opcode.info().immediate.then_some(self.imm)
    }
}

/// Returns whether only QPs of raw packets have the opcode, or one of the flags.
#[inline(always)]
fn is_of_raw_packets(opcode: Opcode, flags: Flags) -> bool {
    opcode == Opcode::Segment || flags.contains(Flags::IP_CSUM)
}

fn is_zero(reserved: &[u8]) -> bool {
    reserved.iter().all(|byte| *byte == 0)
}

/// Returns whether the reserved fields of the destination segment in an entry are zero, if QPs of
/// this type have such a segment.
fn destination_is_sound(kind: Type, bytes: &[u8]) -> bool {
    match kind.info().destination {
        Destination::None => true,
        Destination::Address => SendWqe::destination(bytes)
            .is_some_and(|DatagramSeg { av, .. }| av.reserved == [0; 3] && av.reserved2.get() == 0),
        Destination::Srq => SendWqe::body(bytes)
            .is_some_and(|seg: &XrcSeg| seg.reserved.iter().all(|word| word.get() == 0)),
    }
}

/// A receive work request.
#[derive(Clone, Copy, Debug)]
pub struct RecvWqe {
    /// The work request ID, from the WQE.
    pub wr_id: u64,
    /// The index of the WQE in the receive queue.
    pub index: u32,
    /// The QP or SRQ that names the keys of its segments.
    pub user: User,
    /// The segments for the data, or `None` if the entry is malformed.
    pub segments: Option<SegmentList>,
}

impl RecvWqe {
    /// Parses and checks the entry `bytes` with this index of a queue of `user`.
    #[must_use]
    pub fn parse(bytes: &[u8], index: u32, user: User) -> Self {
        let Ok((header, _)) = RqWqe::ref_from_prefix(bytes) else {
            return Self { wr_id: 0, index, user, segments: None };
        };
        let count = usize::from(header.count.get());
        let reserved = u32::from(header.reserved.get()) | header.reserved2.get();
        let segments =
            SegmentList::parse(bytes, rq::HEADER_LEN as usize, count).filter(|_| reserved == 0);
        Self { wr_id: header.wr_id.get(), index, user, segments }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use vrnic_abi::qp::AddressVector;
    use zerocopy::IntoBytes;

    use super::*;

    /// Returns an entry with this opcode, in which everything else is zero except what is required.
    fn entry(opcode: Opcode) -> [u8; 128] {
        let mut bytes = [0; 128];
        let header = SqWqe { opcode: opcode as u8, ..SqWqe::default() };
        let command = CommandSeg { data_count: 1.into(), ..CommandSeg::default() };
        let (head, body) = bytes.split_at_mut(HEADER_LEN as usize);
        head.copy_from_slice(header.as_bytes());
        if opcode == Opcode::SendCmd {
            body[..size_of::<CommandSeg>()].copy_from_slice(command.as_bytes());
        }
        bytes
    }

    #[test]
    fn reserved_bytes_are_zero() {
        let bytes = |offset: usize, len| offset..offset + len;
        let cases = [
            (Type::Rc, Opcode::RegMr, bytes(offset_of!(RegMrSeg, reserved), 6)),
            (Type::Rc, Opcode::BindMw, bytes(offset_of!(BindMwSeg, reserved), 15)),
            (Type::Rc, Opcode::SendCmd, bytes(offset_of!(CommandSeg, reserved), 5)),
            (Type::XrcIni, Opcode::Send, bytes(offset_of!(XrcSeg, reserved), 12)),
            (Type::Ud, Opcode::Send, bytes(offset_of!(AddressVector, reserved), 3)),
            (Type::Ud, Opcode::Send, bytes(offset_of!(AddressVector, reserved2), 4)),
        ];
        for (kind, opcode, reserved) in cases {
            assert!(SendWqe::parse(kind, &entry(opcode), 0).is_ok(), "{opcode:?}");
            for at in reserved {
                let mut bytes = entry(opcode);
                bytes[HEADER_LEN as usize + at] = 1;
                let refused = SendWqe::parse(kind, &bytes, 0).err().map(|why| why.status);
                assert_eq!(refused, Some(cq::Status::LocQpOpErr), "{opcode:?}, byte {at}");
            }
        }
        let receive = RqWqe::new(1, 0);
        assert!(RecvWqe::parse(receive.as_bytes(), 0, User::default()).segments.is_some());
        for at in offset_of!(RqWqe, reserved)..size_of::<RqWqe>() {
            let mut bytes = receive.as_bytes().to_vec();
            bytes[at] = 1;
            assert!(
                RecvWqe::parse(&bytes, 0, User::default()).segments.is_none(),
                "byte {at} of a receive"
            );
        }
    }
}
