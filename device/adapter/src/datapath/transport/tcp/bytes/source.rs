//! The bytes of the sends. They are read from the program's memory whenever TCP sends them, also
//! again, so nothing is copied before that.

use std::sync::Arc;

use vrnic_tcp::{Gone, Source, StreamPos, Undone};

use crate::datapath::sgl::SgList;
use crate::datapath::turn::TurnContext;
use crate::host::Host;
use crate::objects::core::Core;
use crate::objects::qp::Qp;
use crate::objects::qp::outstanding::Outstanding;
use crate::objects::qp::tcp::bytes::sends::{Place, Sends};
use crate::slice::Slice;

/// The outstanding sends of a QP.
pub(super) struct Outbound<'a, H: Host> {
    pub(super) core: &'a Arc<Core<H>>,
    pub(super) qp: &'a Arc<Qp<H>>,
    pub(super) sends: &'a Sends,
    pub(super) outstanding: &'a Outstanding,
    pub(super) slice: &'a Slice<'a, H>,
}

impl<H: Host> Source for Outbound<'_, H> {
    fn end(&self) -> StreamPos {
        self.sends.end()
    }

    fn cut(&self, _at: StreamPos, limit: usize) -> usize {
        limit
    }

    fn read(&mut self, at: StreamPos, into: &mut [u8]) -> Result<(), Undone> {
        let here = TurnContext::new(self.core, self.qp, self.slice);
        let (mut at, mut rest) = (at, into);
        while !rest.is_empty() {
            let Place { index, offset, left } = self.sends.place(at).ok_or(Gone)?;
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
            let (part, behind) = rest.split_at_mut_checked(count).ok_or(Gone)?;
            let (posted, raw) = self.outstanding.find(index.into()).ok_or(Gone)?;
            let mut source = SgList::default();
            source.add_source(&here, self.qp.user(), &posted.send, raw).map_err(|_| Gone)?;
            source.read::<H>(&here.memory, offset, part).map_err(|_| Gone)?;
            self.slice.charge_copy(count as u64);
            here.moved(count as u64);
            (at, rest) = (at.plus(count as u64), behind);
        }
        Ok(())
    }
}
