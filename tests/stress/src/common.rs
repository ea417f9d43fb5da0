//! Settings of iWARP QPs that are connected by the connection manager.

use std::io;

use anyhow::Result;
use vrnic_verbs::context::Context;
use vrnic_verbs::cq::Cq;
use vrnic_verbs::memory::Pd;
use vrnic_verbs::model::QpCap;
use vrnic_verbs::qp::{InitAttr, Qp};

/// Objects that all connections share.
pub(crate) struct Common {
    pub(crate) pd: Pd,
    pub(crate) cq: Cq,
}

impl Common {
    pub(crate) fn new() -> Result<Self> {
        let context = Context::open(None)?;
        let (pd, cq) = (Pd::new(&context)?, Cq::new(&context, 16, None, 0, false)?);
        Ok(Self { pd, cq })
    }

    /// Returns a QP that can be connected.
    pub(crate) fn qp(&self) -> io::Result<Qp> {
        let cap = QpCap { send_wr: 1, recv_wr: 1, send_sge: 1, recv_sge: 1, inline: 0 };
        Qp::new(&InitAttr::new(&self.pd, &self.cq, cap)).map(|(qp, _)| qp)
    }
}
