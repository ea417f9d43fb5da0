//! QPs of raw packets, and flow rules.

use vrnic_abi::admin::{CreateFlow, CreateQp, NO_QUEUE, Opcode, QpFlags, command};
use vrnic_abi::flow::{Kind, Rule};
use vrnic_abi::qp::{Attr, AttrMask, State, Type};
use vrnic_abi::rss::{ENTRIES_MAX, Fields, KEY_LEN, Spread};
use zerocopy::IntoBytes;

use crate::admin::Refused;
use crate::bus::Bus;
use crate::endpoint::Endpoint;
use crate::guest::Guest;

/// Returns a rule of this kind without conditions.
#[must_use]
pub fn rule(kind: Kind) -> Rule {
    Rule { kind: kind as u8, ..Rule::default() }
}

/// Returns a table of these QPs, whose number is a power of two.
#[must_use]
pub fn table(fields: Fields, key: [u8; KEY_LEN], qpns: &[u32]) -> Spread {
    let mut entries = [vrnic_abi::Qpn::default(); ENTRIES_MAX];
    entries.iter_mut().zip(qpns).for_each(|(entry, qpn)| *entry = (*qpn).into());
    let log_entries = u8::try_from(qpns.len().ilog2()).unwrap_or(u8::MAX);
    Spread { fields: fields.bits().into(), log_entries, reserved: [0; 3], key, entries }
}

impl<B: Bus> Guest<B> {
    /// Removes a flow rule.
    ///
    /// # Errors
    /// If the adapter refuses it.
    pub fn destroy_flow(&self, id: u32) -> Result<(), Refused> {
        self.on_object(Opcode::DestroyFlow, id).map(drop)
    }
}

impl<B: Bus> Endpoint<B> {
    /// Brings a QP of raw packets to Ready to Send.
    #[track_caller]
    pub fn ready_for_frames(&self) {
        let attr = Attr { port: 1, ..Attr::default() };
        let steps = [
            (State::Init, AttrMask::STATE | AttrMask::PORT),
            (State::Rtr, AttrMask::STATE),
            (State::Rts, AttrMask::STATE),
        ];
        self.guest.take_through(self.qpn, attr, &steps);
    }

    /// Creates a flow rule for the QP. Returns its number.
    ///
    /// # Errors
    /// If the adapter refuses it.
    pub fn add_flow(&self, rule: &Rule) -> Result<u32, Refused> {
        self.add_flow_of(self.qpn, rule)
    }

    /// Creates a work queue, a QP without a send queue, in the same context and PD, and makes it
    /// ready.
    #[must_use]
    #[track_caller]
    pub fn work_queue(&self) -> Self {
        let queue = self.beside(|params| {
            params.qp_type = Type::RawPacket as u8;
            params.sq_log_size = NO_QUEUE;
        });
        let attr = Attr { port: 1, ..Attr::default() };
        let steps =
            [(State::Init, AttrMask::STATE | AttrMask::PORT), (State::Rtr, AttrMask::STATE)];
        self.guest.take_through(queue.qpn, attr, &steps);
        queue
    }

    /// Returns the parameters of a QP that spreads frames by this table.
    #[must_use]
    pub fn spread_params(&self, table: &Spread) -> CreateQp {
        let ram = self.guest.ram();
        let addr = ram.alloc(size_of::<Spread>() as u64);
        ram.write(addr, table.as_bytes());
        CreateQp {
            pdn: self.pdn.into(),
            send_cqn: self.recv_cq.cqn.into(),
            recv_cqn: self.recv_cq.cqn.into(),
            uar: self.uar.into(),
            qp_type: Type::RawPacket as u8,
            flags: QpFlags::SPREADS.bits(),
            rq_table: addr.into(),
            sq_log_size: NO_QUEUE,
            rq_log_size: NO_QUEUE,
            ..CreateQp::default()
        }
    }

    /// Creates a flow rule for this QP. Returns its number.
    ///
    /// # Errors
    /// If the adapter refuses it.
    pub fn add_flow_of(&self, qpn: u32, rule: &Rule) -> Result<u32, Refused> {
        let ram = self.guest.ram();
        let addr = ram.alloc(size_of::<Rule>() as u64);
        ram.write(addr, rule.as_bytes());
        let id = self.guest.command::<command::CreateFlow>(&CreateFlow::new(qpn, addr))?;
        Ok(id.get())
    }
}
