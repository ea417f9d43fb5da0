//! Datagrams (UD, and the general services QP): each message is one packet, and nothing is
//! answered.

use vrnic_packet::ip;

use crate::discard::Discard;
use crate::psn::Psn;
use crate::wire::headers::{Deth, Imm};
use crate::wire::opcode::Transport;
use crate::wire::{Body, Datagram, Head, Mtu, Packet, Qpn};

/// Length of the network header at the beginning of a datagram's receive.
pub const HEADER_LEN: usize = 40;

/// The queue key of the general services QP.
pub const GSI_QKEY: u32 = 0x8001_0000;

/// The bit of a queue key in a work request that selects the key of the sending QP (IBTA volume 1,
/// 10.2.5).
const OWN_QKEY: u32 = 1 << 31;

/// The sending half of a datagram QP.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    own: Qpn,
    qkey: u32,
    psn: Psn,
}

/// A datagram to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The receiving QP.
    pub destination: Qpn,
    /// The queue key of the receiving QP. If bit 31 is set, the sender's own key is sent instead.
    pub qkey: u32,
    /// Immediate data.
    pub imm: Option<Imm>,
    /// True if it asks for a solicited event.
    pub solicited: bool,
    /// Number of bytes.
    pub length: u32,
}

/// The datagram is longer than the port's MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl Sender {
    /// Creates the sending half of a QP.
    #[must_use]
    pub const fn new(own: Qpn, qkey: u32, first_psn: Psn) -> Self {
        Self { own, qkey, psn: first_psn }
    }

    /// Returns the headers of the next datagram.
    ///
    /// # Errors
    /// [`TooLong`] if it does not fit into a packet of `mtu` bytes. Nothing must be sent then.
    pub fn next(&mut self, datagram: &Outgoing, mtu: Mtu) -> Result<(Head, Body), TooLong> {
        if datagram.length > mtu.bytes() {
            return Err(TooLong);
        }
        let qkey = if datagram.qkey & OWN_QKEY == 0 { datagram.qkey } else { self.qkey };
        let mut head = Head::new(Transport::Ud, datagram.destination, self.psn);
        head.solicited = datagram.solicited;
        self.psn = self.psn.next();
        let deth = Deth { qkey, source: self.own };
        Ok((head, Body::Datagram(Datagram { deth, imm: datagram.imm })))
    }
}

/// A received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming<'a> {
    /// The sending QP.
    pub source: Qpn,
    /// Immediate data.
    pub imm: Option<Imm>,
    /// True if it asks for a solicited event.
    pub solicited: bool,
    /// The data, which follows the network header in the receive.
    pub bytes: &'a [u8],
}

/// Checks a packet for a datagram QP with this queue key. Sequence numbers have no meaning here,
/// and requests for an acknowledgement, which rxe makes on the general services QP, are ignored.
///
/// # Errors
/// The reason for which it is dropped.
pub fn accept<'a>(packet: &Packet<'a>, qkey: u32) -> Result<Incoming<'a>, Discard> {
    let Body::Datagram(Datagram { deth, imm }) = packet.body else {
        return Err(Discard::Transport);
    };
    if deth.qkey != qkey {
        return Err(Discard::QueueKey);
    }
    let solicited = packet.head.solicited;
    Ok(Incoming { source: deth.source, imm, solicited, bytes: packet.payload })
}

/// Returns the network header for a receive: the received IPv6 header, or the received IPv4 header
/// in the last 20 bytes (A17.4.5.2). Connection managers read the addresses from it.
#[must_use]
pub fn network_header(received: &[u8]) -> [u8; HEADER_LEN] {
    const BEFORE_IPV4: usize = ip::V6_LEN - ip::V4_LEN;
    let mut header = [0; HEADER_LEN];
    let at = if received.len() == ip::V4_LEN { BEFORE_IPV4 } else { 0 };
    for (to, from) in header.iter_mut().skip(at).zip(received) {
        *to = *from;
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: Outgoing = Outgoing {
        destination: Qpn::GSI,
        qkey: GSI_QKEY,
        imm: Some([1, 2, 3, 4]),
        solicited: true,
        length: 1024,
    };

    /// Shows: datagrams
    #[test]
    fn a_datagram_is_one_packet() {
        let mut sender = Sender::new(Qpn::new(7), 0x1234, Psn::new(0xff_ffff));
        assert_eq!(sender.next(&Outgoing { length: 1025, ..TO }, Mtu::M1024), Err(TooLong));
        let (head, body) = sender.next(&TO, Mtu::M1024).expect("short enough");
        assert_eq!((head.psn, head.destination), (Psn::new(0xff_ffff), Qpn::GSI));
        let packet = Packet { head, body, payload: b"hello" };
        // A key with bit 31 stands for the sender's own.
        assert_eq!(accept(&packet, GSI_QKEY), Err(Discard::QueueKey));
        let incoming = Incoming {
            source: Qpn::new(7),
            imm: Some([1, 2, 3, 4]),
            solicited: true,
            bytes: b"hello",
        };
        assert_eq!(accept(&packet, 0x1234), Ok(incoming));
        let (head, body) = sender.next(&Outgoing { qkey: 5, ..TO }, Mtu::M1024).expect("short");
        assert_eq!(head.psn, Psn::new(0), "what was too long took no number");
        assert!(accept(&Packet { head, body, payload: &[] }, 5).is_ok());
        let connected = Packet { head, body: Body::Congestion, payload: &[] };
        assert_eq!(accept(&connected, 5), Err(Discard::Transport));
    }

    #[test]
    fn the_network_header_stands_at_the_end() {
        assert_eq!(network_header(&[7; 20])[..20], [0; 20]);
        assert_eq!(network_header(&[7; 20])[20..], [7; 20]);
        assert_eq!(network_header(&[7; 40]), [7; 40]);
    }
}
