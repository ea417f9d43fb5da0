// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Direct verbs that hand queues over to another poster (`vrnicdv.h`, `vrnicqueues.h`,
//! docs/vrnicdv.md).

use std::ffi::c_int;
use std::ptr;

use rustix::io::Errno;
use vrnic_abi::cq::{Cqe, Opcode as CqOpcode};
use vrnic_abi::rq::RqWqe;
use vrnic_abi::sq::{Flags, Opcode, Sge, SqWqe};
use vrnic_abi::uar::{ARMED_OFFSET, SUMMARY_OFFSET};
use vrnic_queues::handover::{BellPlace, CqHandover, QpHandover, RingPlace};
use vrnic_queues::layout::WqeHeader;
use vrnic_queues::mapping::Area;
use vrnic_queues::qp::Halves;
use vrnic_queues::send::Place;
use vrnicdv::handover::{Area as DvArea, CqLayout, Doorbell, QpLayout, Queues, Ring};

use crate::ffi::bindings as c;
use crate::ffi::dv::check_context;
use crate::ffi::{cq, qp, status};

/// The header has the formats and the numbers of the adapter.
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<SqWqe>() == size_of::<c::vrnicdv_wqe>());
    assert!(offset_of!(SqWqe, wr_id) == offset_of!(c::vrnicdv_wqe, wr_id));
    assert!(offset_of!(SqWqe, opcode) == offset_of!(c::vrnicdv_wqe, opcode));
    assert!(offset_of!(SqWqe, flags) == offset_of!(c::vrnicdv_wqe, flags));
    assert!(offset_of!(SqWqe, count) == offset_of!(c::vrnicdv_wqe, count));
    assert!(offset_of!(SqWqe, imm) == offset_of!(c::vrnicdv_wqe, imm_data));
    assert!(offset_of!(SqWqe, raddr) == offset_of!(c::vrnicdv_wqe, remote_addr));
    assert!(offset_of!(SqWqe, rkey) == offset_of!(c::vrnicdv_wqe, rkey));
    assert!(offset_of!(SqWqe, stamp) == offset_of!(c::vrnicdv_wqe, stamp));
    assert!(size_of::<Sge>() == size_of::<c::vrnicdv_sge>());
    assert!(offset_of!(Sge, addr) == offset_of!(c::vrnicdv_sge, addr));
    assert!(offset_of!(Sge, length) == offset_of!(c::vrnicdv_sge, length));
    assert!(offset_of!(Sge, lkey) == offset_of!(c::vrnicdv_sge, lkey));
    assert!(size_of::<RqWqe>() == size_of::<c::vrnicdv_recv_wqe>());
    assert!(offset_of!(RqWqe, wr_id) == offset_of!(c::vrnicdv_recv_wqe, wr_id));
    assert!(offset_of!(RqWqe, count) == offset_of!(c::vrnicdv_recv_wqe, count));
    assert!(size_of::<Cqe>() == size_of::<c::vrnicdv_cqe>());
    assert!(offset_of!(Cqe, wr_id) == offset_of!(c::vrnicdv_cqe, wr_id));
    assert!(offset_of!(Cqe, qpn) == offset_of!(c::vrnicdv_cqe, qpn));
    assert!(offset_of!(Cqe, byte_len) == offset_of!(c::vrnicdv_cqe, byte_len));
    assert!(offset_of!(Cqe, imm) == offset_of!(c::vrnicdv_cqe, imm_data));
    assert!(offset_of!(Cqe, src_qpn) == offset_of!(c::vrnicdv_cqe, src_qpn));
    assert!(offset_of!(Cqe, timestamp) == offset_of!(c::vrnicdv_cqe, timestamp));
    assert!(offset_of!(Cqe, wqe_index) == offset_of!(c::vrnicdv_cqe, wqe_index));
    assert!(offset_of!(Cqe, vendor_err) == offset_of!(c::vrnicdv_cqe, vendor_err));
    assert!(offset_of!(Cqe, smac) == offset_of!(c::vrnicdv_cqe, smac));
    assert!(offset_of!(Cqe, vlan) == offset_of!(c::vrnicdv_cqe, vlan));
    assert!(offset_of!(Cqe, srqn) == offset_of!(c::vrnicdv_cqe, srqn));
    assert!(offset_of!(Cqe, key) == offset_of!(c::vrnicdv_cqe, key));
    assert!(offset_of!(Cqe, opcode) == offset_of!(c::vrnicdv_cqe, opcode));
    assert!(offset_of!(Cqe, status) == offset_of!(c::vrnicdv_cqe, status));
    assert!(offset_of!(Cqe, flags) == offset_of!(c::vrnicdv_cqe, flags));
    assert!(offset_of!(Cqe, stamp) == offset_of!(c::vrnicdv_cqe, stamp));
    assert!(SUMMARY_OFFSET == c::VRNICDV_SUMMARY && ARMED_OFFSET == c::VRNICDV_ARMED);
    assert!(Opcode::Send as u32 == c::VRNICDV_OP_SEND);
    assert!(Opcode::SendImm as u32 == c::VRNICDV_OP_SEND_IMM);
    assert!(Opcode::Write as u32 == c::VRNICDV_OP_WRITE);
    assert!(Opcode::WriteImm as u32 == c::VRNICDV_OP_WRITE_IMM);
    assert!(Opcode::Read as u32 == c::VRNICDV_OP_READ);
    assert!(Opcode::CmpSwp as u32 == c::VRNICDV_OP_CMP_SWP);
    assert!(Opcode::FetchAdd as u32 == c::VRNICDV_OP_FETCH_ADD);
    assert!(CqOpcode::Recv as u32 == c::VRNICDV_OP_RECV);
    assert!(CqOpcode::RecvWriteImm as u32 == c::VRNICDV_OP_RECV_WRITE_IMM);
    assert!(Flags::SIGNALED.bits() as u32 == c::VRNICDV_WQE_SIGNALED);
    assert!(Flags::SOLICITED.bits() as u32 == c::VRNICDV_WQE_SOLICITED);
    assert!(Flags::FENCE.bits() as u32 == c::VRNICDV_WQE_FENCE);
    assert!(Flags::INLINE.bits() as u32 == c::VRNICDV_WQE_INLINE);
};

/// The header has the structs of the Rust crate.
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<DvArea>() == size_of::<c::vrnicdv_area>());
    assert!(offset_of!(DvArea, length) == offset_of!(c::vrnicdv_area, length));
    assert!(offset_of!(DvArea, offset) == offset_of!(c::vrnicdv_area, offset));
    assert!(size_of::<Doorbell>() == size_of::<c::vrnicdv_doorbell>());
    assert!(offset_of!(Doorbell, kick) == offset_of!(c::vrnicdv_doorbell, kick));
    assert!(offset_of!(Doorbell, bit) == offset_of!(c::vrnicdv_doorbell, bit));
    assert!(offset_of!(Doorbell, number) == offset_of!(c::vrnicdv_doorbell, number));
    assert!(size_of::<Ring>() == size_of::<c::vrnicdv_ring>());
    assert!(offset_of!(Ring, place) == offset_of!(c::vrnicdv_ring, place));
    assert!(offset_of!(Ring, entries) == offset_of!(c::vrnicdv_ring, entries));
    assert!(offset_of!(Ring, stride) == offset_of!(c::vrnicdv_ring, stride));
    assert!(offset_of!(Ring, word) == offset_of!(c::vrnicdv_ring, word));
    assert!(offset_of!(Ring, next) == offset_of!(c::vrnicdv_ring, next));
    assert!(offset_of!(Ring, freed) == offset_of!(c::vrnicdv_ring, freed));
    assert!(size_of::<QpLayout>() == size_of::<c::vrnicdv_qp_layout>());
    assert!(offset_of!(QpLayout, send) == offset_of!(c::vrnicdv_qp_layout, send));
    assert!(offset_of!(QpLayout, recv) == offset_of!(c::vrnicdv_qp_layout, recv));
    assert!(offset_of!(QpLayout, qpn) == offset_of!(c::vrnicdv_qp_layout, qpn));
    assert!(offset_of!(QpLayout, header) == offset_of!(c::vrnicdv_qp_layout, header));
    assert!(size_of::<CqLayout>() == size_of::<c::vrnicdv_cq_layout>());
    assert!(offset_of!(CqLayout, ring) == offset_of!(c::vrnicdv_cq_layout, ring));
    assert!(offset_of!(CqLayout, arm) == offset_of!(c::vrnicdv_cq_layout, arm));
    assert!(offset_of!(CqLayout, holding) == offset_of!(c::vrnicdv_cq_layout, holding));
    assert!(Queues::SEND.bits() == c::VRNICDV_SEND_QUEUE);
    assert!(Queues::RECV.bits() == c::VRNICDV_RECV_QUEUE);
};

/// Implements `vrnicdv_hand_over_qp`.
///
/// # Safety
/// `qp` must be a live queue pair of libibverbs, and there must be room for the layout.
#[unsafe(no_mangle)]
pub(in crate::ffi) unsafe extern "C" fn vrnicdv_hand_over_qp(
    qp: *mut c::ibv_qp,
    queues: u32,
    layout: *mut c::vrnicdv_qp_layout,
) -> c_int {
    // SAFETY: the caller passes a live queue pair of libibverbs.
    status(unsafe { hand_over_qp(qp, queues) }.map(|found| {
        // SAFETY: the caller passes room for the layout.
        unsafe { layout.write(found) };
    }))
}

/// # Safety
/// `qp` must be a live queue pair of libibverbs.
unsafe fn hand_over_qp(qp: *mut c::ibv_qp, queues: u32) -> Result<c::vrnicdv_qp_layout, Errno> {
    // SAFETY: the caller passes a live queue pair, whose context is live too.
    unsafe { check_context((*qp).context) }?;
    if queues & !(c::VRNICDV_SEND_QUEUE | c::VRNICDV_RECV_QUEUE) != 0 {
        return Err(Errno::INVAL);
    }
    let halves = Halves {
        sends: queues & c::VRNICDV_SEND_QUEUE != 0,
        recvs: queues & c::VRNICDV_RECV_QUEUE != 0,
    };
    // SAFETY: the caller passes a live queue pair, which is one of this plugin.
    let own = unsafe { qp::own(qp) }.ok_or(Errno::INVAL)?;
    let QpHandover { qpn, header, bell, send, recv } = own.hand_over(halves)?;
    Ok(c::vrnicdv_qp_layout {
        doorbell: doorbell(&bell),
        send: send.as_ref().map(ring).unwrap_or_default(),
        recv: recv.as_ref().map(ring).unwrap_or_default(),
        qpn: qpn.get(),
        header: match header {
            WqeHeader::Connected => c::VRNICDV_HEADER_CONNECTED,
            WqeHeader::Datagram => c::VRNICDV_HEADER_DATAGRAM,
            WqeHeader::Xrc => c::VRNICDV_HEADER_XRC,
            WqeHeader::Raw => c::VRNICDV_HEADER_RAW,
        },
    })
}

/// Implements `vrnicdv_hand_over_cq`.
///
/// # Safety
/// `cq` must be a live completion queue of libibverbs, and there must be room for the layout.
#[unsafe(no_mangle)]
pub(in crate::ffi) unsafe extern "C" fn vrnicdv_hand_over_cq(
    cq: *mut c::ibv_cq,
    layout: *mut c::vrnicdv_cq_layout,
) -> c_int {
    // SAFETY: the caller passes a live completion queue of libibverbs.
    status(unsafe { hand_over_cq(cq) }.map(|found| {
        // SAFETY: the caller passes room for the layout.
        unsafe { layout.write(found) };
    }))
}

/// # Safety
/// `cq` must be a live completion queue of libibverbs.
unsafe fn hand_over_cq(cq: *mut c::ibv_cq) -> Result<c::vrnicdv_cq_layout, Errno> {
    // SAFETY: the caller passes a live completion queue, whose context is live too.
    unsafe { check_context((*cq).context) }?;
    // SAFETY: the caller passes a live completion queue, which is one of this plugin.
    let queue = unsafe { cq::own(cq) }.ok_or(Errno::INVAL)?;
    let found: CqHandover = queue.hand_over();
    Ok(c::vrnicdv_cq_layout {
        doorbell: doorbell(&found.bell),
        ring: ring(&found.ring),
        arm: found.arm,
        holding: found.holding.into(),
    })
}

fn doorbell(bell: &BellPlace) -> c::vrnicdv_doorbell {
    c::vrnicdv_doorbell {
        page: area(&bell.page),
        kick: area(&bell.kick),
        bit: bell.bit,
        number: bell.number.get(),
        ..c::vrnicdv_doorbell::default()
    }
}

fn ring(ring: &RingPlace) -> c::vrnicdv_ring {
    c::vrnicdv_ring {
        memory: area(&ring.memory),
        place: match ring.place {
            Place::Guest => c::VRNICDV_PLACE_PROGRAM,
            Place::Device => c::VRNICDV_PLACE_ADAPTER,
        },
        entries: ring.entries,
        stride: ring.stride,
        word: ring.word,
        next: ring.next,
        freed: ring.freed,
    }
}

fn area(area: &Area) -> c::vrnicdv_area {
    // CAST: an address of this process.
    let address = ptr::with_exposed_provenance_mut(area.address as usize);
    c::vrnicdv_area { address, length: area.length, offset: area.offset }
}
