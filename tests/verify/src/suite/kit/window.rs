//! A window over a part of a region.

use anyhow::{Result, ensure};

use super::region::Region;
use super::side::Side;
use crate::model::{Bind, Status, access, flags, wc_opcode};
use crate::rpc::client::CallError;

/// Rights of a region that windows may be bound to.
pub(crate) const BINDABLE: u32 = access::LOCAL_WRITE | access::MW_BIND;
/// Rights of most windows.
pub(crate) const READ_WRITE: u32 = access::REMOTE_READ | access::REMOTE_WRITE;

/// A window of a side.
pub(crate) struct Window {
    pub(crate) mw: u32,
    pub(crate) mw_type: u32,
    /// The key that it was bound by last, or made with.
    pub(crate) rkey: u32,
}

impl Window {
    /// Allocates one of type 1 or 2.
    pub(crate) fn new(side: &Side, mw_type: u32) -> Result<Self> {
        let made = side.end.agent.alloc_mw(side.pd, mw_type)?;
        Ok(Self { mw: made.mw, mw_type, rkey: made.rkey })
    }

    /// Binds it to `len` bytes of `region` from `offset` on, which must succeed.
    pub(crate) fn bind(
        &mut self,
        side: &Side,
        region: &Region,
        (offset, len): (u64, u64),
        access: u32,
    ) -> Result<()> {
        let bind = signaled(region.addr + offset, len, access);
        self.post(side, Some(region), bind)?;
        let wc = side.expect_sent(bind.wr_id, Status::Success)?;
        ensure!(wc.opcode == wc_opcode::BIND_MW, "completion of a binding: {wc:?}");
        Ok(())
    }

    /// Posts a binding in the way of its type, under a new key. The key that it has when this is
    /// refused stays the old one.
    pub(crate) fn post(
        &mut self,
        side: &Side,
        region: Option<&Region>,
        bind: Bind,
    ) -> Result<(), CallError> {
        let (qp, mw, mr) = (side.qp, self.mw, region.map(|region| region.mr));
        if self.mw_type == 1 || bind.one_touch {
            self.rkey = side.end.agent.bind_mw(qp, mw, mr, bind)?;
        } else {
            let rkey = self.rkey & !0xff | self.rkey.wrapping_add(1) & 0xff;
            side.end.agent.post_bind(qp, mw, rkey, mr, bind)?;
            self.rkey = rkey;
        }
        Ok(())
    }

    /// Frees it.
    pub(crate) fn free(&self, side: &Side) -> Result<(), CallError> {
        side.end.agent.dealloc_mw(self.mw)
    }
}

/// A signaled binding.
pub(crate) fn signaled(addr: u64, length: u64, access: u32) -> Bind {
    Bind { wr_id: 0xb1d, flags: flags::SIGNALED, addr, length, access, one_touch: false }
}
