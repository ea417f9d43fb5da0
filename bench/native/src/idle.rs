//! Many idle QPs next to a busy one.

use vrnic_abi::admin::{CreateQp, ModifyQp, Opcode, command};
use vrnic_abi::qp::{State, Type};
use vrnic_abi::uar::SLOTS;
use vrnic_figures::{Operation, Quantity, Subject};
use vrnic_testdriver::qp::{INIT, RTR, RTS, attributes};
use vrnic_testdriver::vmm::vfio::Endpoint;
use zerocopy::IntoBytes;

use crate::rate::{self, Rate, Runs};
use crate::report::Report;
use crate::rig::{Pair, Rig};

/// Slots that an endpoint's QP and CQs take of their UAR.
pub(crate) const TAKEN: u32 = 3;

/// Measures the rate of a QP alone and among `count` others in RTS, and the memory that these take.
/// The two alternate, because other load on the machine changes within seconds.
///
/// # Errors
/// When an operation fails.
pub(crate) fn measure(
    report: &mut Report,
    rig: &Rig,
    count: u32,
    Runs { repeats, span }: Runs,
) -> anyhow::Result<()> {
    let mut pair = Pair::new(rig, false);
    let maker = Maker::new(&pair.a);
    let (mut alone, mut among, mut grown) = (Rate::default(), Rate::default(), 0);
    for round in 0..repeats {
        alone = alone.better(rate::run(rig, &mut pair, Operation::Write, 64, span)?);
        let before = rig.memory()?;
        let idle = maker.make(&pair.a, count, pair.b.qpn)?;
        if round == 0 {
            grown = rig.memory()?.saturating_sub(before);
        }
        among = among.better(rate::run(rig, &mut pair, Operation::Write, 64, span)?);
        idle.destroy(&pair.a)?;
    }
    for (subject, rate) in [(Subject::OneQp, alone), (Subject::AmongIdle(count), among)] {
        report.figure(subject, Quantity::Millions, rate.per_second() / 1e6);
        report.figure(subject, Quantity::WorkerNs, rate.worker_ns());
    }
    let ratio = among.per_second() / alone.per_second();
    report.figure(Subject::RateAmongIdle, Quantity::ToAlone, ratio);
    let each = grown as f64 / f64::from(count.max(1));
    report.figure(Subject::IdleQp, Quantity::Bytes, each);
    Ok(())
}

/// Idle QPs, and the UARs that were made for them.
#[derive(Default)]
struct Idle {
    qps: Vec<u32>,
    uars: Vec<u32>,
}

impl Idle {
    fn destroy(self, on: &Endpoint) -> anyhow::Result<()> {
        for qpn in self.qps {
            on.guest.on_object(Opcode::DestroyQp, qpn)?;
        }
        for uar in self.uars {
            on.guest.on_object(Opcode::FreeUar, uar)?;
        }
        Ok(())
    }
}

/// Makes idle QPs. All of them have the same ring, to which no work request is ever posted.
pub(crate) struct Maker {
    ring: u64,
    attributes: u64,
}

impl Maker {
    pub(crate) fn new(on: &Endpoint) -> Self {
        Self { ring: on.guest.ram().alloc(4096), attributes: on.guest.ram().alloc(4096) }
    }

    /// Makes `count`. The first ones share the UAR, and some the doorbell group, of the endpoint's
    /// own.
    fn make(&self, on: &Endpoint, count: u32, peer: u32) -> anyhow::Result<Idle> {
        let mut idle = Idle::default();
        let (mut uar, mut free) = (on.uar, SLOTS - TAKEN);
        for _ in 0..count {
            if free == 0 {
                uar = on.guest.on_object(Opcode::AllocUar, on.context)?;
                idle.uars.push(uar);
                free = SLOTS;
            }
            let qpn = self.create(on, uar)?;
            self.connect(on, qpn, on.guest.mac(), peer)?;
            idle.qps.push(qpn);
            free -= 1;
        }
        Ok(idle)
    }

    /// Creates a QP with this doorbell slot of a UAR.
    pub(crate) fn create(&self, on: &Endpoint, uar: u32) -> anyhow::Result<u32> {
        let params = CreateQp {
            sq_table: self.ring.into(),
            rq_table: self.ring.into(),
            sq_page_shift: 12,
            rq_page_shift: 12,
            sq_log_size: 4,
            sq_log_stride: 7,
            rq_log_size: 4,
            rq_log_stride: 5,
            pdn: on.pdn.into(),
            send_cqn: on.send_cq.cqn.into(),
            recv_cqn: on.recv_cq.cqn.into(),
            uar: uar.into(),
            qp_type: Type::Rc as u8,
            ..CreateQp::default()
        };
        let (qpn, ..) = on.guest.create_qp(&params)?;
        Ok(qpn)
    }

    /// Moves a QP to RTS, connected to the QP with this MAC and number.
    pub(crate) fn connect(
        &self,
        on: &Endpoint,
        qpn: u32,
        mac: [u8; 6],
        peer: u32,
    ) -> anyhow::Result<()> {
        let mut attr = attributes(mac, peer);
        for (state, mask) in [(State::Init, INIT), (State::Rtr, RTR), (State::Rts, RTS)] {
            attr.state = state as u8;
            on.guest.ram().write(self.attributes, attr.as_bytes());
            let params = ModifyQp::new(qpn, mask.bits(), self.attributes);
            on.guest.command::<command::ModifyQp>(&params)?;
        }
        Ok(())
    }
}
