//! One end of a connection.

use anyhow::{Context, Result, ensure};

use super::env::{End, Env};
use super::region::Region;
use crate::model::{QpAttr, QpCap, QpExtras, State, access, mask, qp_type};
use crate::rpc::client::CallError;
use crate::rpc::values::CreateQp;

/// Queue key of QPs for datagrams.
pub(crate) const QKEY: u32 = 0x1122_3344;

/// Parameters of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) cap: QpCap,
    /// Entries of each CQ.
    pub(crate) cqe: i32,
    /// True if the CQs report to a completion channel.
    pub(crate) channel: bool,
    /// Rights of the peer.
    pub(crate) access: u32,
    /// ACK timeout code: 4.096 µs · 2^n.
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    /// RNR timer code: 12 is 0.64 ms.
    pub(crate) min_rnr_timer: u8,
    pub(crate) rd_atomic: u8,
    pub(crate) signal_all: bool,
    /// Type of the QP.
    pub(crate) qp_type: u32,
    /// Settings of a QP that only direct verbs have.
    pub(crate) extras: Option<QpExtras>,
    /// The SRQ of its agent that it takes receives from, in place of a queue of its own.
    pub(crate) srq: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cap: QpCap { send_wr: 64, recv_wr: 64, send_sge: 1, recv_sge: 1, inline: 0 },
            cqe: 256,
            channel: false,
            access: access::ALL,
            timeout: 16,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            rd_atomic: 16,
            signal_all: false,
            qp_type: qp_type::RC,
            extras: None,
            srq: None,
        }
    }
}

impl Options {
    /// For cases in which the peer does not answer: gives up after about a tenth of a second.
    pub(crate) fn impatient() -> Self {
        Self { timeout: 13, retry_cnt: 2, rnr_retry: 2, ..Self::default() }
    }
}

/// A PD, two CQs and a QP.
pub(crate) struct Side {
    pub(crate) end: End,
    pub(crate) pd: u32,
    pub(crate) send_cq: u32,
    pub(crate) recv_cq: u32,
    pub(crate) channel: Option<u32>,
    pub(crate) qp: u32,
    pub(crate) qpn: u32,
    pub(crate) cap: QpCap,
    pub(crate) options: Options,
}

impl Side {
    /// Creates the objects; the QP is in Reset.
    pub(crate) fn new(end: &End, options: &Options) -> Result<Self> {
        let pd = end.agent.alloc_pd()?;
        Self::within(end, pd, options)
    }

    /// Creates a side as [`Self::new`] does, in an existing PD.
    pub(crate) fn within(end: &End, pd: u32, options: &Options) -> Result<Self> {
        let agent = &end.agent;
        let channel = options.channel.then(|| agent.create_channel()).transpose()?;
        let cq = || agent.create_cq(options.cqe, channel, 0);
        let (send, recv) = (cq()?, cq()?);
        let made = agent.create_qp(CreateQp {
            pd,
            send_cq: send.cq,
            recv_cq: recv.cq,
            qp_type: options.qp_type,
            cap: options.cap,
            signal_all: options.signal_all,
            extras: options.extras,
            srq: options.srq,
        })?;
        Ok(Self {
            end: end.clone(),
            pd,
            send_cq: send.cq,
            recv_cq: recv.cq,
            channel,
            qp: made.qp,
            qpn: made.qpn,
            cap: made.cap,
            options: *options,
        })
    }

    /// Attributes that bring this side to RTS, towards a QP of `peer`.
    pub(crate) fn attr_towards(&self, peer: &End, qpn: u32) -> QpAttr {
        let limit = |n: u8, max: u32| n.min(u8::try_from(max).unwrap_or(u8::MAX));
        QpAttr {
            access: self.options.access,
            port: 1,
            path_mtu: self.end.info.active_mtu.min(peer.info.active_mtu),
            dest_qpn: qpn,
            rq_psn: 0x1234,
            sq_psn: 0x1234,
            max_rd_atomic: limit(self.options.rd_atomic, self.end.info.max_qp_init_rd_atom),
            max_dest_rd_atomic: limit(self.options.rd_atomic, self.end.info.max_qp_rd_atom),
            min_rnr_timer: self.options.min_rnr_timer,
            timeout: self.options.timeout,
            retry_cnt: self.options.retry_cnt,
            rnr_retry: self.options.rnr_retry,
            dgid: peer.info.gid,
            sgid_index: self.end.info.gid_index,
            hop_limit: 64,
            qkey: QKEY,
            ..QpAttr::default()
        }
    }

    /// Modifies the QP.
    pub(crate) fn modify(&self, state: State, attr: &QpAttr, mask: u32) -> Result<(), CallError> {
        let attr = QpAttr { state: state as u32, ..*attr };
        self.end.agent.modify_qp(self.qp, attr, mask)
    }

    /// Changes the state alone.
    pub(crate) fn to(&self, state: State) -> Result<()> {
        self.modify(state, &QpAttr::default(), mask::STATE)
            .with_context(|| format!("{} to {state:?}", self.name()))
    }

    /// Reset to Init.
    pub(crate) fn to_init(&self) -> Result<()> {
        let attr = self.attr_towards(&self.end, 0);
        Ok(self.modify(State::Init, &attr, mask::TO_INIT)?)
    }

    /// Init to RTR, towards a QP of `peer`.
    pub(crate) fn to_rtr(&self, peer: &End, qpn: u32) -> Result<()> {
        let attr = self.attr_towards(peer, qpn);
        Ok(self.modify(State::Rtr, &attr, mask::TO_RTR)?)
    }

    /// RTR to RTS.
    pub(crate) fn to_rts(&self) -> Result<()> {
        let attr = self.attr_towards(&self.end, 0);
        Ok(self.modify(State::Rts, &attr, mask::TO_RTS)?)
    }

    /// From Reset to RTS, towards a QP of `peer`.
    pub(crate) fn connect(&self, peer: &End, qpn: u32) -> Result<()> {
        self.to_init()?;
        self.to_rtr(peer, qpn)?;
        self.to_rts()
    }

    /// The attributes as the device has them.
    pub(crate) fn query(&self) -> Result<QpAttr> {
        Ok(self.end.agent.query_qp(self.qp)?)
    }

    /// Fails if the QP is in another state.
    pub(crate) fn expect_state(&self, state: State) -> Result<()> {
        let found = self.query()?.state;
        ensure!(found == state as u32, "{}: QP state {found}, not {state:?}", self.name());
        Ok(())
    }

    /// Destroys the QP.
    pub(crate) fn destroy(&self) -> Result<()> {
        Ok(self.end.agent.destroy_qp(self.qp)?)
    }

    /// A region of this side's PD with all rights.
    pub(crate) fn region(&self, len: u64, misalign: u64) -> Result<Region> {
        Region::new(&self.end, self.pd, len, misalign, access::ALL)
    }

    /// For messages.
    pub(crate) fn name(&self) -> &'static str {
        self.end.agent.name()
    }
}

/// Two connected sides.
pub(crate) struct Link {
    pub(crate) a: Side,
    pub(crate) b: Side,
}

impl Link {
    /// Between the two ends of a case.
    pub(crate) fn new(env: &Env, options: &Options) -> Result<Self> {
        Self::between(&env.a, &env.b, options)
    }

    /// Between any two ends.
    pub(crate) fn between(a: &End, b: &End, options: &Options) -> Result<Self> {
        Self::of(Side::new(a, options)?, Side::new(b, options)?)
    }

    /// Connects two sides whose QPs are in Reset.
    pub(crate) fn of(a: Side, b: Side) -> Result<Self> {
        b.connect(&a.end, a.qpn)?;
        a.connect(&b.end, b.qpn)?;
        Ok(Self { a, b })
    }

    /// Returns the connection as seen from the other end.
    pub(crate) fn reversed(self) -> Self {
        Self { a: self.b, b: self.a }
    }
}
