//! QPs of raw packets, and flow rules.

use vrnic_abi::admin::{CreateFlow, Opcode, command};
use vrnic_abi::flow::{Kind, Rule};
use vrnic_abi::qp::{Attr, AttrMask, State};
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
        let ram = self.guest.ram();
        let addr = ram.alloc(size_of::<Rule>() as u64);
        ram.write(addr, rule.as_bytes());
        let id = self.guest.command::<command::CreateFlow>(&CreateFlow::new(self.qpn, addr))?;
        Ok(id.get())
    }
}
