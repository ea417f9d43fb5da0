//! Admission of packets to a QP. A packet must match the QP's transport, partition and peer.
//!
//! A packet of a connection does not contain the number of the sending QP. The receiving QP, both
//! addresses and the sequence number identify it (rxe_recv.c, `hdr_check` and `check_addr`). This
//! is no authentication: a sender that can use the peer's address can forge packets.

use vrnic_packet::ip::{self, Addresses};

use crate::discard::Discard;
use crate::wire::Head;
use crate::wire::opcode::Transport;

/// The low bits of a partition key, which identify the partition.
const PARTITION: u16 = 0x7fff;

/// The packets that a QP admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The QP's transport.
    pub transport: Transport,
    /// The QP's partition key.
    pub pkey: u16,
    /// The addresses in packets that the QP sends, if it is connected. Packets that it receives
    /// have them reversed.
    pub addresses: Option<Addresses>,
}

impl Admission {
    /// Checks a packet for this QP. Congestion notifications are admitted for every transport.
    ///
    /// # Errors
    /// The reason for which the packet is dropped.
    pub fn check(&self, network: &ip::Header, head: &Head) -> Result<(), Discard> {
        if head.transport != self.transport && head.transport != Transport::Cnp {
            return Err(Discard::Transport);
        }
        if !same_partition(head.pkey, self.pkey) {
            return Err(Discard::PartitionKey);
        }
        match self.addresses {
            Some(own) if network.addresses != own.reversed() => Err(Discard::Address),
            _ => Ok(()),
        }
    }
}

/// Returns whether two keys match: they identify the same partition, and at least one of them is a
/// full member (IBTA volume 1, 10.9.3).
const fn same_partition(a: u16, b: u16) -> bool {
    let partition = a & PARTITION;
    partition != 0 && partition == b & PARTITION && (a | b) & !PARTITION != 0
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::psn::Psn;
    use crate::wire::Qpn;

    /// Shows: roce
    #[test]
    fn packets_of_others_are_dropped() {
        let (a, b, c) = (Ipv4Addr::from(1), Ipv4Addr::from(2), Ipv4Addr::from(3));
        let from = |source, destination| ip::Header {
            addresses: Addresses::V4 { source, destination },
            traffic_class: 0,
            hop_limit: 1,
            flow_label: 0,
        };
        let addresses = Some(Addresses::V4 { source: a, destination: b });
        let admission = Admission { transport: Transport::Rc, pkey: 0xffff, addresses };
        let head = Head::new(Transport::Rc, Qpn::new(5), Psn::new(7));
        let peer = from(b, a);
        assert_eq!(admission.check(&peer, &head), Ok(()));
        assert_eq!(admission.check(&from(c, a), &head), Err(Discard::Address));
        assert_eq!(admission.check(&from(a, b), &head), Err(Discard::Address));
        let datagrams = Admission { transport: Transport::Ud, addresses: None, ..admission };
        assert_eq!(datagrams.check(&peer, &head), Err(Discard::Transport));
        let head = Head { transport: Transport::Ud, ..head };
        assert_eq!(datagrams.check(&from(c, a), &head), Ok(()));
        assert_eq!(datagrams.check(&peer, &Head { pkey: 0x7fff, ..head }), Ok(()));
        assert_eq!(
            datagrams.check(&peer, &Head { pkey: 0xfffe, ..head }),
            Err(Discard::PartitionKey)
        );
        assert_eq!(admission.check(&peer, &Head::congestion(Qpn::new(5))), Ok(()));
    }

    #[test]
    fn one_of_two_members_must_be_a_full_one() {
        assert!(same_partition(0xffff, 0x7fff) && same_partition(0x7fff, 0xffff));
        assert!(!same_partition(0x7fff, 0x7fff));
        assert!(!same_partition(0x8000, 0x8000), "partition 0 does not exist");
    }
}
