//! The contents of completions, and their encoding in a completion queue.

use vrnic_abi::cq::{Cqe, Flags, Opcode, Status};
use vrnic_abi::{Key, Qpn, Srqn};
use vrnic_packet::{MacAddr, Nanos};

use crate::memory::tpt::Denied;
use crate::requests::wqe::{RecvWqe, WqeId};

/// The contents of a completion. The queue adds the other fields.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// The work request ID, from the WQE.
    pub wr_id: u64,
    /// Index of the WQE.
    pub wqe_index: u32,
    /// The QP.
    pub qpn: Qpn,
    /// Type of the work request.
    pub opcode: Opcode,
    /// The status of the work request.
    pub status: Status,
    /// The number of the check that failed; see docs/adapter.md.
    pub vendor_err: u32,
    /// Number of bytes.
    pub byte_len: u32,
    /// Immediate data.
    pub imm: Option<[u8; 4]>,
    /// True if the sender asked for a solicited event.
    pub solicited: bool,
    /// The sender's QP.
    pub src_qpn: Qpn,
    /// The source of a datagram.
    pub origin: Option<Origin>,
    /// True if the checksums of a raw packet are right.
    pub checksums: bool,
    /// The SRQ of a receive by an XRC target; otherwise zero.
    pub srqn: Srqn,
    /// The key that the work request or its message concerned.
    pub key: Option<CompletionKey>,
}

/// The error with which a work request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrError {
    /// The status of its completion.
    pub status: Status,
    /// The number of the check that failed ([`Denied`]); 0 for none.
    pub vendor_err: u32,
}

impl From<Status> for WrError {
    fn from(status: Status) -> Self {
        Self { status, vendor_err: 0 }
    }
}

impl From<Denied> for WrError {
    /// Returns the error of a request whose local memory access was denied.
    fn from(denied: Denied) -> Self {
        Self { status: Status::LocProtErr, vendor_err: denied as u32 }
    }
}

/// A key in a completion.
#[derive(Clone, Copy, Debug)]
pub enum CompletionKey {
    /// The message has invalidated the key.
    Ended(Key),
    /// The command has carried the key.
    Carried(Key),
    /// The PDU was executed for a command in the iSCSI mode.
    Executed(Executed),
}

/// A command in the iSCSI mode for which a PDU was executed.
#[derive(Clone, Copy, Debug)]
pub struct Executed {
    /// The key of the command.
    pub key: Key,
    /// The name that the consumer has for it.
    pub id: u32,
    /// True if the PDU has ended it.
    pub is_over: bool,
}

/// The source of a datagram.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// True if its network header is IPv4.
    pub ipv4: bool,
    /// MAC of the sender's port.
    pub smac: MacAddr,
    /// VLAN id.
    pub vlan: Option<u16>,
}

impl Completion {
    /// Returns a completion of a send work request.
    #[must_use]
    pub fn of_send(
        qpn: Qpn,
        WqeId { wr_id, index: wqe_index }: WqeId,
        opcode: Opcode,
        status: Status,
    ) -> Self {
        Self {
            wr_id,
            wqe_index,
            qpn,
            opcode,
            status,
            vendor_err: 0,
            byte_len: 0,
            imm: None,
            solicited: false,
            src_qpn: qpn,
            origin: None,
            checksums: false,
            srqn: Srqn::default(),
            key: None,
        }
    }

    /// Returns a completion of a receive, without what its message adds.
    #[must_use]
    pub fn of_receive(qpn: Qpn, recv: &RecvWqe, status: Status) -> Self {
        let id = WqeId { wr_id: recv.wr_id, index: recv.index };
        Self { src_qpn: Qpn::default(), ..Self::of_send(qpn, id, Opcode::Recv, status) }
    }

    /// Returns the entry at `index`, written at the time `now`.
    pub(crate) fn entry(&self, index: u32, now: Nanos) -> Cqe {
        let mut flags = Flags::empty();
        flags.set(Flags::IMM, self.imm.is_some());
        flags.set(Flags::SOLICITED, self.solicited);
        flags.set(Flags::IP_CSUM_OK, self.checksums);
        let (mut smac, mut vlan) = ([0; 6], 0);
        if let Some(origin) = &self.origin {
            flags |= Flags::GRH;
            flags.set(Flags::IPV4, origin.ipv4);
            flags.set(Flags::VLAN, origin.vlan.is_some());
            (smac, vlan) = (origin.smac.0, origin.vlan.unwrap_or(0));
        }
        let mut imm = self.imm.unwrap_or_default();
        let key = self.key.map_or(Key::default(), |key| match key {
            CompletionKey::Ended(key) => {
                flags |= Flags::INVALIDATED;
                key
            }
            CompletionKey::Carried(key) => key,
            CompletionKey::Executed(Executed { key, id, is_over }) => {
                flags |= Flags::COMMAND;
                flags.set(Flags::INVALIDATED, is_over);
                imm = id.to_le_bytes();
                key
            }
        });
        Cqe {
            wr_id: self.wr_id.into(),
            qpn: self.qpn,
            byte_len: self.byte_len.into(),
            imm,
            src_qpn: self.src_qpn,
            timestamp: now.0.into(),
            wqe_index: self.wqe_index.into(),
            vendor_err: self.vendor_err.into(),
            smac,
            vlan: vlan.into(),
            srqn: self.srqn,
            key,
            opcode: self.opcode as u8,
            status: self.status as u8,
            flags: flags.bits().into(),
            stamp: vrnic_abi::stamp(index).into(),
        }
    }
}
