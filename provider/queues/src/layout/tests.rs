// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Shows: queues: the layout of queues in memory of programs

use abi::admin::{NO_QUEUE, TagForm};
use abi::uverbs::{CQ_ANY_VECTOR, QpReqFlags};

use super::*;
use crate::allocator::Resource;

const LIMITS: Limits = Limits { max_wr: 1 << 15, max_sge: 16, max_inline: 480, max_cqe: 1 << 20 };
const CAP: QpCap =
    QpCap { max_send_wr: 100, max_recv_wr: 3, max_send_sge: 1, max_recv_sge: 2, max_inline: 0 };

fn layout(cap: &QpCap, policy: SqPolicy) -> Result<QpLayout, Errno> {
    QpLayout::new(cap, &LIMITS, policy, QpExtras::default())
}

#[test]
fn the_driver_chooses_the_vector_of_those_that_do_not_care() {
    let ring = CqRing::allocate(10, &LIMITS, &Source::pages(Resource::Cq)).expect("a ring");
    assert_eq!("any".parse(), Ok(VectorPolicy::Any));
    for (vector, policy, flags) in [
        (0, VectorPolicy::Asked, 0),
        (1, VectorPolicy::Asked, 0),
        (0, VectorPolicy::Any, CQ_ANY_VECTOR),
        (1, VectorPolicy::Any, 0),
    ] {
        assert_eq!(ring.request(vector, policy).flags, flags, "{vector} {policy:?}");
    }
}

#[test]
fn commands_make_room_for_their_data() {
    let commands = Some(CommandTag { iscsi: true, offset: 4 });
    let extras = QpExtras { reactive: true, commands, max_command_sge: 4, ..QpExtras::default() };
    let of = |cap: &QpCap, extras| QpLayout::new(cap, &LIMITS, SqPolicy::Guest, extras);
    let layout = of(&QpCap { max_inline: 48, ..CAP }, extras).expect("valid");
    // 32 of header, 16, 4 segments of 16, 48 inline.
    assert_eq!(layout.send.map(Shape::stride), Some(256));
    let request =
        QpRings::allocate(layout, &Source::pages(Resource::Qp)).expect("memory").request();
    assert_eq!(request.flags.get(), QpReqFlags::REACTIVE.bits());
    assert_eq!((request.tag_form, request.tag_offset.get()), (TagForm::Iscsi as u8, 4));
    for bad in [
        QpExtras { max_command_sge: 17, ..extras },
        QpExtras { max_command_sge: 0, ..extras },
        QpExtras { commands: None, ..extras },
        QpExtras { header: WqeHeader::Datagram, ..extras },
    ] {
        assert_eq!(of(&CAP, bad), Err(Errno::INVAL), "{bad:?}");
    }
    let long = QpCap { max_inline: 420, ..CAP };
    assert_eq!(of(&long, extras), Err(Errno::INVAL), "too long for any stride");
}

#[test]
fn the_kernel_learns_the_options_of_a_queue_pair() {
    let plain = QpExtras::default();
    for (extras, flags) in [
        (plain, QpReqFlags::empty()),
        (QpExtras { no_sq_keys: true, ..plain }, QpReqFlags::NO_SQ_KEYS),
        (QpExtras { windows_only: true, ..plain }, QpReqFlags::WINDOWS_ONLY),
        (QpExtras { acknowledged: true, ..plain }, QpReqFlags::ACKNOWLEDGED),
    ] {
        let layout = QpLayout::new(&CAP, &LIMITS, SqPolicy::Guest, extras).expect("valid");
        let request =
            QpRings::allocate(layout, &Source::pages(Resource::Qp)).expect("memory").request();
        assert_eq!(request.flags.get(), flags.bits(), "{extras:?}");
    }
}

#[test]
fn rings_are_rounded_up() {
    let layout = layout(&CAP, SqPolicy::Auto).expect("valid");
    assert_eq!(layout.send, Some(Shape { log_size: 7, log_stride: 6 }));
    assert_eq!(layout.recv, Some(Shape { log_size: 2, log_stride: 6 }));
    assert!(!layout.send_in_device);
    let request =
        QpRings::allocate(layout, &Source::pages(Resource::Qp)).expect("memory").request();
    assert_ne!(request.sq_buf.get(), 0);
    assert_eq!(request.rq_buf.get() % 4096, 0);
    assert_eq!(request.flags.get(), 0);
}

#[test]
fn inline_data_asks_for_device_memory() {
    let cap = QpCap { max_inline: 220, ..CAP };
    let layout = layout(&cap, SqPolicy::Auto).expect("valid");
    assert!(layout.send_in_device);
    assert_eq!(layout.send.map(Shape::stride), Some(256));
    let request =
        QpRings::allocate(layout, &Source::pages(Resource::Qp)).expect("memory").request();
    assert_eq!(request.sq_buf.get(), 0);
    assert_eq!(request.flags.get(), QpReqFlags::SQ_IN_DEVICE.bits());
    assert_eq!(
        QpRings::allocate(layout.in_guest(), &Source::pages(Resource::Qp))
            .expect("memory")
            .request()
            .flags
            .get(),
        0
    );
}

#[test]
fn datagrams_need_room_for_their_destination() {
    let layout = |cap| {
        let extras = QpExtras { header: WqeHeader::Datagram, ..QpExtras::default() };
        QpLayout::new(&cap, &LIMITS, SqPolicy::Auto, extras)
    };
    assert_eq!(layout(CAP).expect("valid").send.map(Shape::stride), Some(128));
    let inline = QpCap { max_inline: 432, ..CAP };
    assert_eq!(layout(inline).expect("valid").send.map(Shape::stride), Some(512));
    assert_eq!(layout(QpCap { max_inline: 433, ..CAP }), Err(Errno::INVAL));
    assert_eq!(
        layout(QpCap { max_send_sge: 16, ..CAP }).expect("valid").send.map(Shape::stride),
        Some(512)
    );
}

#[test]
fn xrc_needs_room_for_the_shared_queue() {
    let layout = |cap| {
        let extras = QpExtras { header: WqeHeader::Xrc, ..QpExtras::default() };
        QpLayout::new(&cap, &LIMITS, SqPolicy::Guest, extras)
    };
    // An atomic has 32 bytes of operands and place, whatever was asked for.
    assert_eq!(layout(CAP).expect("valid").send.map(Shape::stride), Some(128));
    let inline = QpCap { max_inline: 464, ..CAP };
    assert_eq!(layout(inline).expect("valid").send.map(Shape::stride), Some(512));
    assert_eq!(layout(QpCap { max_inline: 465, ..CAP }), Err(Errno::INVAL));
}

#[test]
fn segments_need_room_for_their_headers() {
    let layout = |cap, max_headers| {
        let extras = QpExtras { header: WqeHeader::Raw, max_headers, ..QpExtras::default() };
        QpLayout::new(&cap, &LIMITS, SqPolicy::Guest, extras)
    };
    let stride =
        |cap, max_headers| layout(cap, max_headers).expect("valid").send.map(Shape::stride);
    assert_eq!(stride(CAP, 0), Some(64));
    // 32 of header, 16, the headers of 54 bytes in 64, a segment of 16.
    assert_eq!(stride(CAP, 54), Some(128));
    assert_eq!(stride(QpCap { max_inline: 200, ..CAP }, 54), Some(256), "inline data is longer");
    assert_eq!(stride(QpCap { max_send_sge: 16, ..CAP }, 192), Some(512));
    assert_eq!(layout(CAP, 193), Err(Errno::INVAL));
    let other = QpExtras { max_headers: 54, ..QpExtras::default() };
    let other = QpLayout::new(&CAP, &LIMITS, SqPolicy::Guest, other);
    assert_eq!(other, Err(Errno::INVAL), "a connection has no SEGMENTs");
}

#[test]
fn the_policy_overrides() {
    let inline = QpCap { max_inline: 1, ..CAP };
    let guest = layout(&inline, SqPolicy::Guest).expect("valid");
    assert!(!guest.send_in_device);
    assert!(layout(&CAP, SqPolicy::Device).expect("valid").send_in_device);
    assert_eq!("device".parse(), Ok(SqPolicy::Device));
    assert_eq!("Device".parse::<SqPolicy>(), Err(()));
}

#[test]
fn queues_may_be_absent() {
    let cap = QpCap { max_send_wr: 0, max_recv_wr: 0, ..CAP };
    let layout = layout(&cap, SqPolicy::Device).expect("valid");
    assert!(!layout.send_in_device);
    let request =
        QpRings::allocate(layout, &Source::pages(Resource::Qp)).expect("nothing").request();
    assert_eq!((request.sq_log_size, request.rq_log_size), (NO_QUEUE, NO_QUEUE));
    assert_eq!((request.sq_buf.get(), request.rq_buf.get()), (0, 0));
}

#[test]
fn too_much_is_refused() {
    for cap in [
        QpCap { max_send_wr: (1 << 15) + 1, ..CAP },
        QpCap { max_recv_wr: u32::MAX, ..CAP },
        QpCap { max_send_sge: 17, ..CAP },
        QpCap { max_recv_sge: 17, ..CAP },
        QpCap { max_inline: 481, ..CAP },
    ] {
        assert_eq!(layout(&cap, SqPolicy::Auto), Err(Errno::INVAL), "{cap:?}");
    }
    for (entries, sges) in [(0, 1), ((1 << 15) + 1, 1), (1, 17)] {
        let refused = SrqRing::allocate(entries, sges, &LIMITS, &Source::pages(Resource::Srq))
            .expect_err("bad");
        assert_eq!(refused, Errno::INVAL, "{entries} of {sges}");
    }
    assert_eq!(
        CqRing::allocate(0, &LIMITS, &Source::pages(Resource::Cq)).expect_err("none"),
        Errno::INVAL
    );
    assert_eq!(
        CqRing::allocate((1 << 20) + 1, &LIMITS, &Source::pages(Resource::Cq)).expect_err("many"),
        Errno::INVAL
    );
    let ring = CqRing::allocate(1000, &LIMITS, &Source::pages(Resource::Cq)).expect("fits");
    assert_eq!(ring.request(0, VectorPolicy::Asked).log_size, 10);
}
