//! The bytes of the PDUs that leave. Their data is read from the guest's memory whenever TCP sends
//! it, also again.

use std::sync::Arc;

use vrnic_abi::qp::Access;
use vrnic_iscsi::Digest;
use vrnic_tcp::{Gone, Source, StreamPos, Undone};

use crate::datapath::sgl::SgList;
use crate::datapath::turn::TurnContext;
use crate::host::Host;
use crate::memory::tpt::ByteRange;
use crate::objects::core::Core;
use crate::objects::qp::Qp;
use crate::objects::qp::outstanding::Outstanding;
use crate::objects::qp::tcp::iscsi::{Data, Outgoing, Pdu, Place};
use crate::slice::Slice;

/// Number of bytes that are read at a time for a digest.
const CHUNK: usize = 4096;

/// The PDUs of a QP.
pub(super) struct Outbound<'a, H: Host> {
    pub(super) core: &'a Arc<Core<H>>,
    pub(super) qp: &'a Arc<Qp<H>>,
    pub(super) outgoing: &'a Outgoing,
    pub(super) outstanding: &'a Outstanding,
    pub(super) slice: &'a Slice<'a, H>,
}

impl<H: Host> Source for Outbound<'_, H> {
    fn end(&self) -> StreamPos {
        self.outgoing.end()
    }

    fn cut(&self, _at: StreamPos, limit: usize) -> usize {
        limit
    }

    fn read(&mut self, at: StreamPos, into: &mut [u8]) -> Result<(), Undone> {
        let here = TurnContext::new(self.core, self.qp, self.slice);
        let (mut at, mut rest) = (at, into);
        while !rest.is_empty() {
            let Place { pdu, offset } = self.outgoing.place(at).ok_or(Gone)?;
            let count = read_part(&here, self.qp, self.outstanding, pdu, offset, rest)?;
            rest = rest.get_mut(count..).unwrap_or_default();
            at = at.plus(count as u64);
        }
        Ok(())
    }
}

/// Copies bytes of one part of a PDU, from `offset` on. Returns their number, which is not zero.
fn read_part<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Qp<H>,
    outstanding: &Outstanding,
    pdu: &Pdu,
    offset: u64,
    into: &mut [u8],
) -> Result<usize, Gone> {
    let (head, length) = (pdu.head.len() as u64, u64::from(pdu.length));
    let copy = |from: &[u8], skip: u64, into: &mut [u8]| {
        let from = usize::try_from(skip).ok().and_then(|skip| from.get(skip..)).ok_or(Gone)?;
        into.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        Ok(from.len().min(into.len()))
    };
    let count = if offset < head {
        copy(&pdu.head, offset, into)?
    } else if let at = offset - head
        && at < length
    {
        let count = usize::try_from(length - at).unwrap_or(usize::MAX).min(into.len());
        let into = into.get_mut(..count).ok_or(Gone)?;
        read_data(here, qp, outstanding, pdu.data, at, into)?;
        here.slice.charge_copy(count as u64);
        here.moved(count as u64);
        count
    } else {
        copy(&pdu.tail, offset - head - length, into)?
    };
    if count > 0 { Ok(count) } else { Err(Gone) }
}

/// Copies data of a PDU from `at` on.
fn read_data<H: Host>(
    here: &TurnContext<'_, H>,
    qp: &Qp<H>,
    outstanding: &Outstanding,
    data: Data,
    at: u64,
    into: &mut [u8],
) -> Result<(), Gone> {
    let mut source = SgList::default();
    match data {
        Data::Zeros => {
            into.fill(0);
            Ok(())
        }
        Data::Request { index, skip } => {
            let (posted, raw) = outstanding.find(index.into()).ok_or(Gone)?;
            source.add_source(here, qp.user(), &posted.send, raw).map_err(|_| Gone)?;
            source.read::<H>(&here.memory, skip + at, into).map_err(|_| Gone)
        }
        Data::Command { key, offset } => {
            let range = ByteRange { addr: offset + at, len: into.len() as u64 };
            let added = source.add_command(here, qp.user(), key, range, Access::REMOTE_READ);
            added.map_err(|_| Gone)?;
            source.read::<H>(&here.memory, 0, into).map_err(|_| Gone)
        }
    }
}

/// Adds the digest of its data to a PDU.
///
/// # Errors
/// [`Gone`] if the data cannot be read.
pub(super) fn seal<H: Host>(
    here: &TurnContext<'_, H>,
    source: &SgList<'_>,
    skip: u64,
    pdu: &mut Pdu,
) -> Result<(), Gone> {
    let (mut digest, mut at, mut chunk) = (Digest::default(), 0, [0; CHUNK]);
    while at < u64::from(pdu.length) {
        let left = usize::try_from(u64::from(pdu.length) - at).unwrap_or(CHUNK).min(CHUNK);
        let chunk = chunk.get_mut(..left).ok_or(Gone)?;
        source.read::<H>(&here.memory, skip + at, chunk).map_err(|_| Gone)?;
        digest.add(chunk);
        here.slice.charge_copy(left as u64);
        at += left as u64;
    }
    pdu.seal(digest);
    Ok(())
}
