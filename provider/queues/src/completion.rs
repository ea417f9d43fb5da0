// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Completions, decoded from the adapter's entries.

use vrnic_abi as abi;
use zerocopy::transmute;

use abi::cq::{CQE_LEN, Cqe, Flags, Opcode, Status};

/// Number of words of an entry.
pub(crate) const WORDS: usize = CQE_LEN as usize / 8;
/// The word that holds the stamp, in its upper half.
pub(crate) const STAMP_WORD: usize = WORDS - 1;
/// The word that holds the QPN, in its lower half.
pub(crate) const QPN_WORD: usize = 1;
/// The word that holds the SRQN, in its lower half.
pub(crate) const SRQN_WORD: usize = 6;

/// The bit of the opcode that distinguishes receives from sends.
const RECV_BIT: u8 = Opcode::Recv as u8;

/// The part of a message that is not its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// The message has no more than data.
    None,
    /// Immediate data, in the byte order in which the peer gave it.
    Imm([u8; 4]),
    /// The key that the message has invalidated.
    Invalidated(u32),
    /// The key of the command that was sent.
    Command(u32),
}

const SUCCESS: u8 = Status::Success as u8;

/// The operation of each number, and whether the number is known. It is a table because programs
/// mix operations, which branch predictors handle badly.
static OPCODES: [(Opcode, bool); 256] = {
    let mut table = [(Opcode::Send, false); 256];
    let mut raw = 0u8;
    loop {
        table[raw as usize] = match Opcode::from_raw(raw) {
            Some(opcode) => (opcode, true),
            None if raw & RECV_BIT != 0 => (Opcode::Recv, false),
            None => (Opcode::Send, false),
        };
        if raw == u8::MAX {
            break table;
        }
        raw += 1;
    }
};

#[inline]
fn extra(flags: Flags, opcode: Opcode, cqe: &Cqe) -> Extra {
    if !flags.intersects(Flags::IMM.union(Flags::INVALIDATED)) && opcode != Opcode::SendCmd {
        Extra::None
    } else if flags.contains(Flags::IMM) {
        Extra::Imm(cqe.imm)
    } else if flags.contains(Flags::INVALIDATED) {
        Extra::Invalidated(cqe.key.get())
    } else {
        Extra::Command(cqe.key.get())
    }
}

/// Returns the status with this number, which is not success.
#[cold]
fn failure(raw: u8) -> Status {
    Status::from_raw(raw).filter(|status| *status != Status::Success).unwrap_or(Status::GeneralErr)
}

/// The completion of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The identifier from the work request.
    pub wr_id: u64,
    /// The operation.
    pub opcode: Opcode,
    /// The status of the work request.
    pub status: Status,
    /// The number of the check that failed, in case of an error.
    pub vendor_err: u32,
    /// Number of bytes received, read or swapped.
    pub byte_len: u32,
    /// The part of the message that is not its data.
    pub extra: Extra,
    /// The QP.
    pub qpn: u32,
    /// The shared receive queue, for a receive of an XRC target; else zero.
    pub srqn: u32,
    /// The sender's QP.
    pub src_qpn: u32,
    /// The network header that the receive begins with.
    pub network: Network,
    /// Index of the work request in its queue.
    pub wqe_index: u32,
    /// The adapter's clock in nanoseconds.
    pub timestamp: u64,
    /// The VLAN of a datagram.
    pub vlan: Option<u16>,
    /// The checksums of a received raw packet are right.
    pub ip_csum_ok: bool,
}

/// A network header before a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Network {
    /// The receive is from a connection, and begins with its data.
    None = 0,
    /// RoCE v2 over IPv6.
    Ipv6 = 1,
    /// RoCE v2 over IPv4; the header fills the last 20 of the 40 bytes.
    Ipv4 = 2,
}

impl Network {
    #[inline]
    fn of(flags: Flags) -> Self {
        match (flags.contains(Flags::GRH), flags.contains(Flags::IPV4)) {
            (false, _) => Self::None,
            (true, false) => Self::Ipv6,
            (true, true) => Self::Ipv4,
        }
    }
}

impl Completion {
    /// Returns the completion of the request at `wqe_index` of a queue of `qpn`, which had not
    /// completed when the adapter died.
    pub(crate) fn flushed(wr_id: u64, opcode: Opcode, qpn: u32, wqe_index: u32) -> Self {
        Self {
            wr_id,
            opcode,
            status: Status::WrFlushErr,
            vendor_err: 0,
            byte_len: 0,
            extra: Extra::None,
            qpn,
            srqn: 0,
            src_qpn: 0,
            network: Network::None,
            wqe_index,
            timestamp: 0,
            vlan: None,
            ip_csum_ok: false,
        }
    }

    /// Decodes an entry. An operation or status of a later version than ours is reported as a
    /// general error, never as a success.
    #[inline]
    pub(crate) fn decode(words: [u64; WORDS]) -> Self {
        let cqe: Cqe = transmute!(words);
        let (opcode, known) = OPCODES[usize::from(cqe.opcode)];
        let status = match cqe.status {
            SUCCESS if known => Status::Success,
            other => failure(other),
        };
        let flags = Flags::from_bits_retain(cqe.flags.get());
        Self {
            wr_id: cqe.wr_id.get(),
            opcode,
            status,
            vendor_err: cqe.vendor_err.get(),
            byte_len: cqe.byte_len.get(),
            extra: extra(flags, opcode, &cqe),
            qpn: cqe.qpn.get(),
            srqn: cqe.srqn.get(),
            src_qpn: cqe.src_qpn.get(),
            network: Network::of(flags),
            wqe_index: cqe.wqe_index.get(),
            timestamp: cqe.timestamp.get(),
            vlan: flags.contains(Flags::VLAN).then(|| cqe.vlan.get()),
            ip_csum_ok: flags.contains(Flags::IP_CSUM_OK),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cqe() -> Cqe {
        Cqe {
            wr_id: 0x1234.into(),
            qpn: 17.into(),
            byte_len: 4096.into(),
            imm: [4, 3, 2, 1],
            src_qpn: 18.into(),
            wqe_index: 5.into(),
            timestamp: 0x1122_3344_5566.into(),
            vendor_err: 6.into(),
            opcode: Opcode::RecvWriteImm as u8,
            status: Status::Success as u8,
            flags: Flags::IMM.bits().into(),
            ..Cqe::default()
        }
    }

    #[test]
    fn every_field_is_decoded() {
        let completion = Completion::decode(transmute!(cqe()));
        assert_eq!(
            completion,
            Completion {
                wr_id: 0x1234,
                opcode: Opcode::RecvWriteImm,
                status: Status::Success,
                vendor_err: 6,
                byte_len: 4096,
                extra: Extra::Imm([4, 3, 2, 1]),
                qpn: 17,
                srqn: 0,
                src_qpn: 18,
                network: Network::None,
                wqe_index: 5,
                timestamp: 0x1122_3344_5566,
                vlan: None,
                ip_csum_ok: false,
            }
        );
        let checked = Cqe { flags: Flags::IP_CSUM_OK.bits().into(), ..cqe() };
        assert!(Completion::decode(transmute!(checked)).ip_csum_ok);
        let network = |flags: Flags| {
            Completion::decode(transmute!(Cqe { flags: flags.bits().into(), ..cqe() })).network
        };
        assert_eq!(network(Flags::GRH), Network::Ipv6);
        assert_eq!(network(Flags::GRH | Flags::IPV4), Network::Ipv4);
        let tagged = Cqe { flags: Flags::VLAN.bits().into(), vlan: 9.into(), ..cqe() };
        assert_eq!(Completion::decode(transmute!(tagged)).vlan, Some(9));
        let extra = |cqe: Cqe| Completion::decode(transmute!(cqe)).extra;
        assert_eq!(extra(Cqe { flags: 0.into(), ..cqe() }), Extra::None);
        let keyed = Cqe { key: 0x701.into(), ..cqe() };
        let flags = Flags::INVALIDATED.bits().into();
        assert_eq!(extra(Cqe { flags, ..keyed }), Extra::Invalidated(0x701));
        let command = Cqe { flags: 0.into(), opcode: Opcode::SendCmd as u8, ..keyed };
        assert_eq!(extra(command), Extra::Command(0x701));
    }

    #[test]
    fn the_unknown_is_an_error() {
        let decode = |cqe: Cqe| Completion::decode(transmute!(cqe));
        let odd = decode(Cqe { opcode: 0x90, ..cqe() });
        assert_eq!((odd.opcode, odd.status), (Opcode::Recv, Status::GeneralErr));
        let odd = decode(Cqe { opcode: 0x20, status: Status::LocProtErr as u8, ..cqe() });
        assert_eq!((odd.opcode, odd.status), (Opcode::Send, Status::LocProtErr));
        assert_eq!(decode(Cqe { status: 99, ..cqe() }).status, Status::GeneralErr);
    }

    #[test]
    fn words_are_where_the_constants_say() {
        let cqe = Cqe { stamp: 0xaabb_ccdd.into(), qpn: 0x55.into(), ..Cqe::default() };
        let words: [u64; WORDS] = transmute!(cqe);
        assert_eq!(words[STAMP_WORD] >> 32, 0xaabb_ccdd);
        assert_eq!(words[QPN_WORD] & 0xffff_ffff, 0x55);
    }
}
