//! The direct verbs of the vrnic adapter, which other devices do not have.

use std::io;
use std::ptr;

use vrnicdv::{Command, CqAttr, CqFlags, CqState, MemFlags, QpAttr, QpFlags, TagForm, Vrnicdv};

use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::cq::{Channel, Cq};
use crate::memory::{Mr, Pd};
use crate::model::{Bind, QpCap, Sge};
use crate::qp::{InitAttr, Qp};
use crate::window::{self, Mw};
use crate::wr::segments;
use crate::{check, extended, object};

/// Settings of a QP that only direct verbs have.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct QpExtras {
    pub reactive: bool,
    pub no_sq_keys: bool,
    pub windows_only: bool,
    /// 0: none, 1: general, 2: iSCSI.
    pub tag_form: u32,
    pub tag_offset: u32,
    pub max_command_sge: u32,
}

/// `enum vrnicdv_mem_flags`.
pub mod mem {
    use vrnicdv::MemFlags;

    pub const ONE_TOUCH: u32 = MemFlags::ONE_TOUCH.bits();
    pub const SAME_KEY: u32 = MemFlags::SAME_KEY.bits();
    pub const NO_LOCAL_READ: u32 = MemFlags::NO_LOCAL_READ.bits();
}

/// A command (a direct verb).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CommandWr {
    pub wr_id: u64,
    pub flags: u32,
    pub access: u32,
    pub one_touch: bool,
    pub tag_offset: u32,
    pub data: Vec<Sge>,
    pub message: Vec<Sge>,
}

fn functions() -> io::Result<Vrnicdv> {
    Vrnicdv::load().ok_or_else(|| io::Error::other("the device's plugin has no direct verbs"))
}

impl Cq {
    /// Creates a CQ with `vrnicdv_create_cq`. If `any_vector` is true, the driver chooses its
    /// vector. Also returns the vector.
    pub fn direct(
        context: &Context,
        cqe: i32,
        channel: Option<&Channel>,
        (vector, any_vector): (i32, bool),
    ) -> io::Result<(Self, u32)> {
        let channel = channel.map_or(ptr::null_mut(), Channel::raw);
        let mut init = extended::cq_attr(cqe, channel, vector)?;
        let (context, init) = (context.raw().cast(), (&raw mut init).cast());
        let mut attr = CqAttr::default();
        attr.flags.set(CqFlags::ANY_VECTOR, any_vector);
        // SAFETY: the context is open and the channel live or null.
        let cq = unsafe { functions()?.create_cq(context, init, &mut attr) };
        Ok((Self { raw: object(cq.cast())?, extended: true }, attr.comp_vector))
    }

    /// Creates a holding CQ with `vrnicdv_create_cq`, which reports when at most `few` entries are
    /// free.
    pub fn holding(context: &Context, cqe: i32, few: u32) -> io::Result<Self> {
        let mut init = extended::cq_attr(cqe, ptr::null_mut(), 0)?;
        let (context, init) = (context.raw().cast(), (&raw mut init).cast());
        let mut attr = CqAttr { flags: CqFlags::HOLDING, few, ..CqAttr::default() };
        // SAFETY: the context is open, and there is no channel.
        let cq = unsafe { functions()?.create_cq(context, init, &mut attr) };
        Ok(Self { raw: object(cq.cast())?, extended: true })
    }

    /// Returns the state that `vrnicdv_query_cq` tells.
    pub fn state(&self) -> io::Result<CqState> {
        // SAFETY: the queue is live.
        let state = unsafe { functions()?.query_cq(self.raw().cast()) };
        state.map_err(io::Error::from_raw_os_error)
    }
}

impl Mr {
    /// Registers memory for one message of a peer, with `vrnicdv_reg_mr`.
    pub fn for_one_touch(pd: &Pd, addr: u64, length: u64, access: u32) -> io::Result<Self> {
        Self::direct(pd, addr..addr + length, access, MemFlags::ONE_TOUCH.bits())
    }

    /// Registers a range of addresses with these flags, with `vrnicdv_reg_mr`.
    pub fn direct(
        pd: &Pd,
        memory: std::ops::Range<u64>,
        access: u32,
        mem_flags: u32,
    ) -> io::Result<Self> {
        let (pd, addr, access) = (pd.raw().cast(), memory.start as *mut _, access as i32);
        let length = (memory.end - memory.start) as usize;
        let flags = MemFlags::from_bits_retain(mem_flags);
        // SAFETY: as in `Mr::new`.
        let mr = unsafe { functions()?.reg_mr(pd, addr, length, access, flags) };
        Ok(Self { raw: object(mr.cast())? })
    }
}

impl Mw {
    /// Binds a window with these flags, with `vrnicdv_bind_mw`. This changes the key, unless the
    /// flags say otherwise.
    pub fn bind_direct(
        &mut self,
        qp: &Qp,
        mr: Option<&Mr>,
        bind: &Bind,
        mem_flags: u32,
    ) -> io::Result<()> {
        let mut wanted = window::wanted(mr, bind);
        let (qp, mw, wanted) = (qp.raw().cast(), self.raw().cast(), (&raw mut wanted).cast());
        let flags = MemFlags::from_bits_retain(mem_flags);
        // SAFETY: all handles are live and the struct complete.
        check(unsafe { functions()?.bind_mw(qp, mw, wanted, flags) })
    }
}

impl Qp {
    /// Creates a QP with `vrnicdv_create_qp`. Also returns the granted sizes.
    pub fn direct(init: &InitAttr<'_>, extras: &QpExtras) -> io::Result<(Self, QpCap)> {
        let mut flags = QpFlags::empty();
        flags.set(QpFlags::REACTIVE, extras.reactive);
        flags.set(QpFlags::NO_SQ_KEYS, extras.no_sq_keys);
        flags.set(QpFlags::WINDOWS_ONLY, extras.windows_only);
        let tag_form = match extras.tag_form {
            0 => TagForm::None,
            1 => TagForm::General,
            2 => TagForm::Iscsi,
            _ => return Err(io::Error::other("no such tag form")),
        };
        let &QpExtras { tag_offset, max_command_sge, .. } = extras;
        let attr = QpAttr { flags, tag_form, tag_offset, max_command_sge };
        let functions = functions()?;
        init.create(|pd, raw| {
            // SAFETY: the PD and what the struct names are live, and the struct is complete.
            let qp = unsafe { functions.create_qp(pd.cast(), (&raw mut *raw).cast(), &attr) };
            object(qp.cast())
        })
    }

    /// Posts a command.
    pub fn post_command(&self, wr: &CommandWr) -> io::Result<()> {
        let (mut data, mut message) = (segments(&wr.data), segments(&wr.message));
        let mut mem_flags = MemFlags::empty();
        mem_flags.set(MemFlags::ONE_TOUCH, wr.one_touch);
        let command = Command {
            wr_id: wr.wr_id,
            send_flags: wr.flags,
            access: wr.access,
            mem_flags,
            tag_offset: wr.tag_offset,
            data: data.as_mut_ptr().cast(),
            message: message.as_mut_ptr().cast(),
            num_data: data.len() as u32,
            num_message: message.len() as u32,
        };
        // SAFETY: the handle is live and the arrays outlive the call; inline data would be a mapped
        // buffer.
        check(unsafe { functions()?.post_command(self.raw().cast(), &command) })
    }
}
