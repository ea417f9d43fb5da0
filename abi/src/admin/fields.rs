// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Descriptions of the fields of INSPECT's records. The monitor's JSON, the tables of `vrnic show`,
//! the driver's debugfs files and its attributes in `rdma resource` are derived from them.

use core::ffi::CStr;

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{
    Carried, ConnectionRecord, CqRecord, Doing, EqRecord, Inspected, KeyKind, KeyRecord, NONE,
    QpRecord, RingRecord, SrqRecord, TcpState,
};
use crate::connection::Stage;
use crate::qp::{Access, NO_VLAN, State, Type};
use crate::uar::{ARM_NEXT, ARM_SOLICITED};

/// A field, with its names in the places where it is shown.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The field's key in JSON, and the head of its column in a table.
    pub key: &'static str,
    /// The field's name in a line of text.
    pub word: &'static str,
    /// The field's name in `rdma resource`; `None` if it is not shown there, or if the RDMA core
    /// shows it itself.
    pub attr: Option<&'static CStr>,
    /// True if tables have a column for it.
    pub column: bool,
}

impl Field {
    /// Returns a field that has this name in JSON and in text.
    #[must_use]
    pub const fn new(key: &'static str) -> Self {
        Self { key, word: key, attr: None, column: false }
    }

    const fn word(self, word: &'static str) -> Self {
        Self { word, ..self }
    }

    const fn attr(self, attr: &'static CStr) -> Self {
        Self { attr: Some(attr), ..self }
    }

    const fn column(self) -> Self {
        Self { column: true, ..self }
    }
}

/// Names of the numbers of a queue in `rdma resource`: size, producer index and consumer index.
pub type RingAttrs = [&'static CStr; 3];

const SQ: RingAttrs = [c"sq_size", c"sq_pi", c"sq_ci"];
const RQ: RingAttrs = [c"rq_size", c"rq_pi", c"rq_ci"];
const OUT: RingAttrs = [c"size", c"pi", c"ci"];

/// The value of a field.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// A number.
    Number(u64),
    /// A number that may be absent.
    Maybe(Option<u64>),
    /// An address or an identifier. Text shows it in hexadecimal.
    Hex(u64),
    /// A key. Text shows it in hexadecimal.
    Key(u32),
    /// Access rights other than local read.
    Rights(Access),
    /// Yes or no. Text shows 1 or 0.
    Flag(bool),
    /// A name.
    Word(&'static CStr),
    /// A number that text shows as a name.
    Code(u32, &'static CStr),
    /// An IP address, of IPv4 in the last four bytes, and a port if that is not zero.
    Address {
        /// True for IPv6.
        ipv6: bool,
        /// The bytes of the address; those of IPv4 are the last four.
        address: [u8; 16],
        /// The port.
        port: u16,
    },
    /// The peer of a connected QP: its QP and its port's MAC.
    Peer(Option<(u32, [u8; 6])>),
    /// A queue of work requests. A queue without entries does not exist.
    Work {
        /// The queue's numbers.
        ring: RingRecord,
        /// True if it is in device memory.
        in_device: bool,
        /// The queue's names in `rdma resource`.
        attrs: RingAttrs,
    },
    /// A queue of completions or events, shown as its three numbers.
    Out {
        /// The queue's numbers.
        ring: RingRecord,
        /// The queue's names in `rdma resource`; `None` if it is not shown there.
        attrs: Option<RingAttrs>,
    },
}

/// A receiver of the fields of a record.
pub trait Show {
    /// The error of the receiver.
    type Error;

    /// Shows a field.
    ///
    /// # Errors
    /// The error of the receiver, for example that a buffer is full.
    fn field(&mut self, field: Field, value: Value) -> Result<(), Self::Error>;
}

/// A record of INSPECT.
pub trait Record: FromBytes + IntoBytes + Immutable + Send + Sync + 'static {
    /// The kind of objects.
    const KIND: Inspected;

    /// The object's number.
    fn number(&self) -> u32;

    /// Passes all fields to `to`, in the order in which they are shown.
    ///
    /// # Errors
    /// The first error of the receiver.
    fn show<S: Show>(&self, to: &mut S) -> Result<(), S::Error>;
}

fn number(number: impl Into<u32>) -> Value {
    Value::Number(number.into().into())
}

fn maybe(number: impl Into<u32>) -> Value {
    let number = number.into();
    Value::Maybe(if number == NONE { None } else { Some(number.into()) })
}

impl Record for QpRecord {
    const KIND: Inspected = Inspected::Qp;

    fn number(&self) -> u32 {
        self.qpn.get()
    }

    fn show<S: Show>(&self, to: &mut S) -> Result<(), S::Error> {
        let f = Field::new;
        let in_device = self.sq_in_device != 0;
        let peer = self.dest_qpn.get();
        let peer = if peer == NONE { None } else { Some((peer, self.dmac)) };
        to.field(f("qpn").word("qp").column(), number(self.qpn))?;
        to.field(f("kind").word("type").column(), Value::Word(type_name(self.kind)))?;
        to.field(f("state").column(), Value::Word(state_name(self.state)))?;
        to.field(f("context").column(), number(self.context))?;
        to.field(f("pdn").word("pd").column(), number(self.pdn))?;
        to.field(f("send_cqn").word("send_cq").attr(c"send_cqn").column(), number(self.send_cqn))?;
        to.field(f("recv_cqn").word("recv_cq").attr(c"recv_cqn").column(), number(self.recv_cqn))?;
        to.field(f("srqn").word("srq").attr(c"srqn").column(), maybe(self.srqn))?;
        to.field(f("peer").column(), Value::Peer(peer))?;
        to.field(f("path_mtu").attr(c"path_mtu"), number(self.path_mtu))?;
        to.field(f("uar").attr(c"uar"), number(self.uar))?;
        to.field(f("slot").attr(c"slot"), number(self.slot))?;
        to.field(f("worker").attr(c"worker").column(), number(self.worker))?;
        let memory = if in_device { c"device" } else { c"guest" };
        to.field(f("sq_memory").attr(c"sq_memory"), Value::Word(memory))?;
        let send = Value::Work { ring: self.sq, in_device, attrs: SQ };
        to.field(f("send").word("sq").column(), send)?;
        let recv = Value::Work { ring: self.rq, in_device: false, attrs: RQ };
        to.field(f("recv").word("rq").column(), recv)?;
        to.field(f("requester"), Value::Word(doing_name(self.doing)))?;
        if matches!(Doing::from_raw(self.doing), Some(Doing::Working | Doing::Waiting)) {
            to.field(f("wr_id"), Value::Hex(self.wr_id.get()))?;
            to.field(f("moved"), Value::Number(self.done.get()))?;
            to.field(f("retries"), number(self.retries))?;
            to.field(f("rnr_retries"), number(self.rnr_retries))?;
        }
        if let Some(stage) = Stage::from_raw(self.connection) {
            to.field(f("connection"), Value::Word(stage_name(stage)))?;
        }
        to.field(f("receiving"), Value::Flag(self.receiving != 0))
    }
}

impl Record for CqRecord {
    const KIND: Inspected = Inspected::Cq;

    fn number(&self) -> u32 {
        self.cqn.get()
    }

    fn show<S: Show>(&self, to: &mut S) -> Result<(), S::Error> {
        let f = Field::new;
        let ring = RingRecord { size: self.size, posted: self.produced, next: self.consumed };
        let armed = match self.armed.get() {
            ARM_NEXT => c"next",
            ARM_SOLICITED => c"solicited",
            _ => c"no",
        };
        to.field(f("cqn").word("cq").column(), number(self.cqn))?;
        to.field(f("context").column(), number(self.context))?;
        to.field(f("eqn").word("eq").column(), number(self.eqn))?;
        to.field(f("users").column(), number(self.users))?;
        to.field(f("uar"), number(self.uar))?;
        to.field(f("slot"), number(self.slot))?;
        to.field(f("ring").column(), Value::Out { ring, attrs: Some(OUT) })?;
        to.field(f("armed").attr(c"armed"), Value::Code(self.armed.get(), armed))?;
        to.field(f("held").attr(c"held"), number(self.held))?;
        to.field(f("failed").attr(c"failed").column(), Value::Flag(self.failed.get() != 0))
    }
}

impl Record for EqRecord {
    const KIND: Inspected = Inspected::Eq;

    fn number(&self) -> u32 {
        self.eqn.get()
    }

    fn show<S: Show>(&self, to: &mut S) -> Result<(), S::Error> {
        let f = Field::new;
        let ring = RingRecord { size: self.size, posted: self.produced, next: self.consumed };
        to.field(f("eqn").word("eq").column(), number(self.eqn))?;
        to.field(f("vector").column(), number(self.vector))?;
        to.field(f("cqs").column(), number(self.cqs))?;
        to.field(f("ring").column(), Value::Out { ring, attrs: None })
    }
}

impl Record for SrqRecord {
    const KIND: Inspected = Inspected::Srq;

    fn number(&self) -> u32 {
        self.srqn.get()
    }

    fn show<S: Show>(&self, to: &mut S) -> Result<(), S::Error> {
        let f = Field::new;
        to.field(f("srqn").word("srq").column(), number(self.srqn))?;
        to.field(f("context").column(), number(self.context))?;
        to.field(f("pdn").word("pd").column(), number(self.pdn))?;
        to.field(f("xrcdn").word("xrcd").column(), maybe(self.xrcdn))?;
        to.field(f("users").attr(c"users").column(), number(self.users))?;
        to.field(f("uar").attr(c"uar"), number(self.uar))?;
        to.field(f("slot").attr(c"slot"), number(self.slot))?;
        let recv = Value::Work { ring: self.ring, in_device: false, attrs: RQ };
        to.field(f("recv").word("rq").column(), recv)?;
        to.field(f("limit").attr(c"limit").column(), number(self.limit))?;
        to.field(f("failed").attr(c"failed").column(), Value::Flag(self.failed.get() != 0))
    }
}

impl Record for KeyRecord {
    const KIND: Inspected = Inspected::Key;

    fn number(&self) -> u32 {
        self.key.get() >> 8
    }

    fn show<S: Show>(&self, to: &mut S) -> Result<(), S::Error> {
        let f = Field::new;
        let valid = self.valid != 0;
        to.field(f("key").column(), Value::Key(self.key.get()))?;
        let kind = Value::Word(key_kind_name(self.kind));
        to.field(f("kind").word("type").attr(c"kind").column(), kind)?;
        to.field(f("pdn").word("pd").column(), number(self.pdn))?;
        let state = if valid { c"valid" } else { c"free" };
        to.field(f("state").attr(c"state"), Value::Word(state))?;
        if valid {
            let rights = Value::Rights(Access::from_bits_truncate(self.access.get()));
            to.field(f("qpn").word("qp").column(), maybe(self.qpn))?;
            to.field(f("access").attr(c"access").column(), rights)?;
            to.field(f("address").word("base").column(), Value::Hex(self.base.get()))?;
            to.field(f("length").column(), Value::Number(self.length.get()))?;
            let page = 1 << self.page_shift.min(63);
            let page = Value::Maybe(if self.page_shift == 0 { None } else { Some(page) });
            to.field(f("page_size").attr(c"page_size").column(), page)?;
        }
        to.field(f("windows").attr(c"windows"), number(self.windows))?;
        to.field(f("one_touch").column(), Value::Flag(self.one_touch != 0))
    }
}

impl ConnectionRecord {
    /// Returns an end of the connection.
    const fn end(&self, address: [u8; 16], port: U16) -> Value {
        Value::Address { ipv6: self.ip == 6, address, port: port.get() }
    }
}

impl Record for ConnectionRecord {
    const KIND: Inspected = Inspected::Connection;

    fn number(&self) -> u32 {
        self.qpn.get()
    }

    /// Uses the names of `ss -ti` for fields that it has.
    fn show<S: Show>(&self, to: &mut S) -> Result<(), S::Error> {
        let f = Field::new;
        let carried = Value::Word(carried_name(self.carried));
        to.field(f("qpn").word("qp").column(), number(self.qpn))?;
        to.field(f("context"), number(self.context))?;
        to.field(f("carries").attr(c"carries").column(), carried)?;
        to.field(f("local").column(), self.end(self.local, self.local_port))?;
        to.field(f("remote").column(), self.end(self.remote, self.remote_port))?;
        if let Some(state) = TcpState::from_raw(self.state) {
            to.field(f("tcp_state").attr(c"tcp_state").column(), Value::Word(tcp_name(state)))?;
        }
        to.field(f("traffic_class"), number(self.traffic_class))?;
        to.field(f("hop_limit"), number(self.hop_limit))?;
        let vlan = if self.vlan.get() == NO_VLAN { NONE } else { self.vlan.get().into() };
        to.field(f("vlan"), maybe(vlan))?;
        to.field(f("mss").attr(c"mss"), number(self.mss.get()))?;
        to.field(f("rtt_us").word("rtt").attr(c"rtt_us").column(), maybe(self.rtt))?;
        to.field(f("rttvar_us").word("rttvar"), maybe(self.rtt_var))?;
        to.field(f("rto_us").word("rto").attr(c"rto_us"), maybe(self.rto))?;
        to.field(f("cwnd").attr(c"cwnd").column(), maybe(self.cwnd))?;
        to.field(f("ssthresh").attr(c"ssthresh"), maybe(self.ssthresh))?;
        to.field(f("snd_wnd").attr(c"snd_wnd").column(), maybe(self.snd_wnd))?;
        to.field(f("rcv_wnd").attr(c"rcv_wnd").column(), maybe(self.rcv_wnd))?;
        to.field(f("unacked").attr(c"unacked").column(), number(self.unacked))?;
        to.field(f("retries").attr(c"retries"), number(self.retries))?;
        to.field(f("retry_limit").attr(c"retry_limit"), number(self.retry_limit))?;
        to.field(f("retrans").attr(c"retrans").column(), number(self.retrans))?;
        to.field(f("timeouts").attr(c"timeouts"), number(self.timeouts))?;
        to.field(f("keepalive_ms").word("keepalive"), maybe(self.keepalive))?;
        to.field(f("user_timeout_ms").word("user_timeout"), maybe(self.user_timeout))?;
        to.field(f("segs_out"), Value::Number(self.segs_out.get()))?;
        if Carried::from_raw(self.carried) == Some(Carried::Roce) {
            return Ok(());
        }
        let bytes = |key, attr, value: U64| (f(key).attr(attr), Value::Number(value.get()));
        for (field, value) in [
            bytes("bytes_sent", c"bytes_sent", self.bytes_sent),
            bytes("bytes_acked", c"bytes_acked", self.bytes_acked),
            bytes("bytes_received", c"bytes_received", self.bytes_received),
        ] {
            to.field(field, value)?;
        }
        to.field(f("age_ms").word("age").attr(c"age_ms").column(), Value::Number(self.age.get()))
    }
}

fn carried_name(raw: u8) -> &'static CStr {
    match Carried::from_raw(raw) {
        Some(Carried::Iwarp) => c"iwarp",
        Some(Carried::Bytes) => c"bytes",
        Some(Carried::Iscsi) => c"iscsi",
        Some(Carried::Roce) => c"roce",
        None => c"?",
    }
}

/// Returns the name that `ss` has for a state.
const fn tcp_name(state: TcpState) -> &'static CStr {
    match state {
        TcpState::Established => c"ESTAB",
        TcpState::FinWait1 => c"FIN-WAIT-1",
        TcpState::FinWait2 => c"FIN-WAIT-2",
        TcpState::TimeWait => c"TIME-WAIT",
        TcpState::Closed => c"UNCONN",
        TcpState::CloseWait => c"CLOSE-WAIT",
        TcpState::LastAck => c"LAST-ACK",
        TcpState::Closing => c"CLOSING",
    }
}

fn type_name(raw: u8) -> &'static CStr {
    Type::from_raw(raw).map_or(c"?", |kind| kind.info().name)
}

fn state_name(raw: u8) -> &'static CStr {
    match State::from_raw(raw) {
        Some(State::Reset) => c"RESET",
        Some(State::Init) => c"INIT",
        Some(State::Rtr) => c"RTR",
        Some(State::Rts) => c"RTS",
        Some(State::Sqd) => c"SQD",
        Some(State::Sqe) => c"SQE",
        Some(State::Err) => c"ERR",
        None => c"?",
    }
}

const fn stage_name(stage: Stage) -> &'static CStr {
    match stage {
        Stage::Opening => c"opening",
        Stage::Open => c"open",
        Stage::Closing => c"closing",
        Stage::Closed => c"closed",
        Stage::Gone => c"gone",
    }
}

fn doing_name(raw: u8) -> &'static CStr {
    match Doing::from_raw(raw) {
        Some(Doing::Nothing) => c"nothing",
        Some(Doing::Working) => c"working",
        Some(Doing::Waiting) => c"waiting",
        Some(Doing::Busy) | None => c"busy",
    }
}

fn key_kind_name(raw: u8) -> &'static CStr {
    match KeyKind::from_raw(raw) {
        Some(KeyKind::Region) => c"region",
        Some(KeyKind::Fast) => c"fast_region",
        Some(KeyKind::Window1) => c"window1",
        Some(KeyKind::Window2) => c"window2",
        Some(KeyKind::Command) => c"command",
        Some(KeyKind::Leaving) => c"leaving",
        None => c"?",
    }
}
