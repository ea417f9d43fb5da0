//! The direct verbs of the vrnic adapter: the only part of the suite that other devices lack.

use std::io;

use vrnicdv::{Command, CqAttr, CqFlags, MemFlags, QpAttr, QpFlags, TagForm, Vrnicdv};

use super::qp::Qp;
use super::wr::segments;
use super::{check, ffi, object};
use crate::model::{CommandWr, QpExtras};

fn functions() -> io::Result<Vrnicdv> {
    Vrnicdv::load().ok_or_else(|| io::Error::other("the device's plugin has no direct verbs"))
}

/// `vrnicdv_create_qp`.
///
/// # Safety
/// PD and CQs must be live.
pub(super) unsafe fn create_qp(
    pd: *mut ffi::ibv_pd,
    init: &mut ffi::ibv_qp_init_attr,
    extras: &QpExtras,
) -> io::Result<std::ptr::NonNull<ffi::ibv_qp>> {
    let mut flags = QpFlags::empty();
    flags.set(QpFlags::REACTIVE, extras.reactive);
    let tag_form = match extras.tag_form {
        0 => TagForm::None,
        1 => TagForm::General,
        2 => TagForm::Iscsi,
        _ => return Err(io::Error::other("no such tag form")),
    };
    let (tag_offset, max_command_sge) = (extras.tag_offset, extras.max_command_sge);
    let attr = QpAttr { flags, tag_form, tag_offset, max_command_sge };
    // SAFETY: as the caller promises.
    let qp = unsafe { functions()?.create_qp(pd.cast(), (&raw mut *init).cast(), &attr) };
    object(qp.cast())
}

/// `vrnicdv_create_cq`, for which the driver chooses the vector if `any_vector` says so; also gives
/// the vector.
///
/// # Safety
/// The context must be open, and the channel live or null.
pub(super) unsafe fn create_cq(
    context: *mut ffi::ibv_context,
    mut init: ffi::ibv_cq_init_attr_ex,
    any_vector: bool,
) -> io::Result<(std::ptr::NonNull<ffi::ibv_cq>, u32)> {
    let mut attr = CqAttr::default();
    attr.flags.set(CqFlags::ANY_VECTOR, any_vector);
    // SAFETY: as the caller promises.
    let cq = unsafe { functions()?.create_cq(context.cast(), (&raw mut init).cast(), &mut attr) };
    Ok((object(cq.cast())?, attr.comp_vector))
}

/// `vrnicdv_reg_mr` with one touch.
///
/// # Safety
/// The PD must be live, and the memory such that the device may write it.
pub(super) unsafe fn reg_one_touch(
    pd: *mut ffi::ibv_pd,
    (addr, length): (u64, u64),
    access: u32,
) -> io::Result<std::ptr::NonNull<ffi::ibv_mr>> {
    let (addr, length, access) = (addr as *mut _, length as usize, access as i32);
    // SAFETY: as the caller promises.
    let mr = unsafe { functions()?.reg_mr(pd.cast(), addr, length, access, MemFlags::ONE_TOUCH) };
    object(mr.cast())
}

/// `vrnicdv_bind_mw` with one touch.
pub(super) fn bind_one_touch(
    qp: *mut ffi::ibv_qp,
    mw: *mut ffi::ibv_mw,
    bind: &mut ffi::ibv_mw_bind,
) -> io::Result<()> {
    let bind: *mut ffi::ibv_mw_bind = bind;
    // SAFETY: handles of this layer are live, and the struct is complete.
    let bound =
        unsafe { functions()?.bind_mw(qp.cast(), mw.cast(), bind.cast(), MemFlags::ONE_TOUCH) };
    check(bound)
}

impl Qp {
    /// Posts a command.
    pub(crate) fn post_command(&self, wr: &CommandWr) -> io::Result<()> {
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
