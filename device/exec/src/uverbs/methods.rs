//! The attributes of each method (drivers/infiniband/core/uverbs_std_types_*.c).

use super::request::{Form, Known};
use super::wire::{self, HANDLE, ah, async_event, cq, device, dm, mr, mw, pd, qp, srq, xrcd};

/// Returns an attribute that the method needs.
const fn needed(id: u16, form: Form) -> Known {
    Known { id, form, needed: true }
}

/// Returns an attribute that the method does not need.
const fn optional(id: u16, form: Form) -> Known {
    Known { id, form, needed: false }
}

/// Flags and numbers of an enum have four or eight bytes.
const FLAGS: Form = Form::Struct(4, 8);
const DESTROY: &[Known] = &[needed(HANDLE, Form::Handle)];

/// An object, a method, and its attributes.
type Method = (u16, u16, &'static [Known]);

/// The methods that the supervisor knows.
const METHODS: &[Method] = &[
    (
        device::OBJECT,
        device::INVOKE_WRITE,
        &[
            optional(device::CORE_IN, Form::Struct(0, u16::MAX)),
            optional(device::CORE_OUT, Form::Out(0)),
            needed(device::WRITE_COMMAND, FLAGS),
        ],
    ),
    (
        device::OBJECT,
        device::QUERY_PORT,
        &[needed(device::PORT_NUMBER, FLAGS), needed(device::PORT_RESPONSE, Form::Out(40))],
    ),
    (
        device::OBJECT,
        device::GET_CONTEXT,
        &[
            optional(device::COMPLETION_VECTORS, Form::Out(4)),
            optional(device::CORE_SUPPORT, Form::Out(8)),
        ],
    ),
    (
        device::OBJECT,
        device::QUERY_GID_TABLE,
        &[
            needed(device::ENTRY_SIZE, FLAGS),
            optional(device::TABLE_FLAGS, FLAGS),
            needed(device::ENTRIES, Form::Out(0)),
            needed(device::ENTRY_COUNT, Form::Out(8)),
        ],
    ),
    (
        device::OBJECT,
        device::QUERY_GID_ENTRY,
        &[
            needed(device::ENTRY_PORT, FLAGS),
            needed(device::ENTRY_INDEX, FLAGS),
            optional(device::ENTRY_FLAGS, FLAGS),
            needed(device::ENTRY, Form::Out(32)),
        ],
    ),
    (async_event::OBJECT, async_event::ALLOC, &[needed(HANDLE, Form::New)]),
    (
        cq::OBJECT,
        cq::CREATE,
        &[
            needed(HANDLE, Form::New),
            needed(cq::ENTRIES, Form::In(4)),
            needed(cq::USER_HANDLE, Form::In(8)),
            optional(cq::CHANNEL, Form::Descriptor),
            needed(cq::VECTOR, Form::In(4)),
            optional(cq::FLAGS, FLAGS),
            needed(cq::RESP_ENTRIES, Form::Out(4)),
            optional(cq::EVENT_FD, Form::Descriptor),
        ],
    ),
    (
        cq::OBJECT,
        cq::DESTROY,
        &[needed(HANDLE, Form::Handle), needed(wire::EVENTS_REPORTED, Form::Out(8))],
    ),
    (
        qp::OBJECT,
        qp::CREATE,
        &[
            needed(HANDLE, Form::New),
            optional(qp::XRCD, Form::Handle),
            optional(qp::PD, Form::Handle),
            optional(qp::SRQ, Form::Handle),
            optional(qp::SEND_CQ, Form::Handle),
            optional(qp::RECV_CQ, Form::Handle),
            needed(qp::USER_HANDLE, Form::In(8)),
            needed(qp::CAP, Form::Struct(20, 20)),
            needed(qp::TYPE, FLAGS),
            optional(qp::FLAGS, FLAGS),
            optional(qp::EVENT_FD, Form::Descriptor),
            needed(qp::RESP_CAP, Form::Out(20)),
            needed(qp::RESP_NUMBER, Form::Out(4)),
        ],
    ),
    (
        srq::OBJECT,
        srq::CREATE,
        &[
            needed(HANDLE, Form::New),
            needed(srq::PD, Form::Handle),
            optional(srq::XRCD, Form::Handle),
            optional(srq::CQ, Form::Handle),
            needed(srq::USER_HANDLE, Form::In(8)),
            needed(srq::MAX_WR, Form::In(4)),
            needed(srq::MAX_SGE, Form::In(4)),
            needed(srq::LIMIT, Form::In(4)),
            needed(srq::TYPE, FLAGS),
            optional(srq::EVENT_FD, Form::Descriptor),
            needed(srq::RESP_MAX_WR, Form::Out(4)),
            needed(srq::RESP_MAX_SGE, Form::Out(4)),
            optional(srq::RESP_NUMBER, Form::Out(4)),
        ],
    ),
    (
        qp::OBJECT,
        qp::DESTROY,
        &[needed(HANDLE, Form::Handle), needed(wire::EVENTS_REPORTED, Form::Out(4))],
    ),
    (
        srq::OBJECT,
        srq::DESTROY,
        &[needed(HANDLE, Form::Handle), needed(wire::EVENTS_REPORTED, Form::Out(4))],
    ),
    (pd::OBJECT, pd::DESTROY, DESTROY),
    (ah::OBJECT, ah::DESTROY, DESTROY),
    (mr::OBJECT, mr::DESTROY, DESTROY),
    (
        mr::OBJECT,
        mr::REG_DM,
        &[
            needed(HANDLE, Form::New),
            needed(mr::OFFSET, Form::In(8)),
            needed(mr::LENGTH, Form::In(8)),
            needed(mr::PD, Form::Handle),
            needed(mr::ACCESS, FLAGS),
            needed(mr::DM, Form::Handle),
            needed(mr::RESP_LKEY, Form::Out(4)),
            needed(mr::RESP_RKEY, Form::Out(4)),
        ],
    ),
    (
        mr::OBJECT,
        mr::ADVISE,
        &[
            needed(mr::ADVISE_PD, Form::Handle),
            needed(mr::ADVICE, FLAGS),
            optional(mr::FLAGS, FLAGS),
            needed(mr::PARTS, Form::Struct(0, u16::MAX)),
        ],
    ),
    (
        dm::OBJECT,
        dm::ALLOC,
        &[
            needed(HANDLE, Form::New),
            needed(dm::LENGTH, Form::In(8)),
            needed(dm::ALIGNMENT, Form::In(4)),
        ],
    ),
    (dm::OBJECT, dm::FREE, DESTROY),
    (mw::OBJECT, mw::DESTROY, DESTROY),
    (xrcd::OBJECT, xrcd::DESTROY, DESTROY),
];

/// Returns the attributes of a method. `None` if there is no such method.
#[must_use]
pub fn attributes(object: u16, method: u16) -> Option<&'static [Known]> {
    let mut methods = METHODS.iter();
    methods.find(|known| known.0 == object && known.1 == method).map(|known| known.2)
}
