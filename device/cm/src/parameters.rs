//! What the two sides of a connection agree on.

use std::time::Duration;

use super::messages::{PathFields, Req, byte, number, word};

/// A GID.
pub type Gid = [u8; 16];

/// The largest exponent of a time that a peer can set: 17 s.
const SPAN_MAX: u8 = 22;
/// The largest MTU: 4,096 bytes.
const MTU_MAX: u8 = 5;
/// A LID that stands for none.
const NO_LID: u16 = 0xffff;

/// The type of queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Reliable connections.
    Rc,
    /// Unreliable connections.
    Uc,
    /// The extended reliable connection, whose target is at the receiver.
    Xrc,
}

/// A queue pair, as its side describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Qp {
    /// The number of the queue pair, of 24 bits.
    pub qpn: u32,
    /// The number of the first packet that the peer sends to this side, of 24 bits.
    pub psn: u32,
    /// How many READs and atomic operations of the peer the side serves at a time.
    pub responder_resources: u8,
    /// How many READs and atomic operations the side has outstanding.
    pub initiator_depth: u8,
    /// Whether the side has end-to-end flow control.
    pub flow_control: bool,
    /// How often the peer sends packets again, at most 7. Only requests have it.
    pub retry_count: u8,
    /// How often the peer sends again what finds no receive, at most 7, which means for ever.
    pub rnr_retry_count: u8,
    /// Whether the queue pair has a shared receive queue.
    pub srq: bool,
    /// Enhanced connection establishment.
    pub ece: Ece,
}

/// Options of enhanced connection establishment, whose meaning drivers agree on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ece {
    /// The vendor of the options, a number of 24 bits.
    pub vendor: u32,
    /// The options.
    pub options: u32,
}

/// The way from a side to its peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// The GID of the side.
    pub source: Gid,
    /// The GID of the peer.
    pub dest: Gid,
    /// The flow label, of 20 bits.
    pub flow_label: u32,
    /// The traffic class.
    pub traffic_class: u8,
    /// The hop limit.
    pub hop_limit: u8,
    /// The service level, of 4 bits.
    pub level: u8,
    /// The code of the MTU: 1 for 256 bytes, and so on, to 5 for 4,096 bytes.
    pub mtu: u8,
    /// The lifetime of a packet, as an exponent: see [`span`].
    pub lifetime: u8,
}

/// Returns a time that an exponent means: 4.096 µs times two to the power of it. Times are at most
/// 17 s, because peers set them.
#[must_use]
pub fn span(exponent: u8) -> Duration {
    Duration::from_nanos(4096 << exponent.min(SPAN_MAX))
}

/// Returns the exponent of the ACK timeout for a delay of the adapter and a lifetime of packets:
/// twice the lifetime and the delay, rounded so that it doubles only if the delay matters.
#[must_use]
pub fn ack_timeout(delay: u8, lifetime: u8) -> u8 {
    let way = lifetime.saturating_add(1);
    let sum = if way >= delay {
        way.saturating_add(u8::from(delay >= way.saturating_sub(1)))
    } else {
        delay.saturating_add(u8::from(way >= delay.saturating_sub(1)))
    };
    sum.min(31)
}

impl Path {
    /// Returns the fields of a request.
    pub(crate) fn fields(&self) -> PathFields {
        PathFields {
            local_lid: NO_LID.into(),
            remote_lid: NO_LID.into(),
            local_gid: self.source,
            remote_gid: self.dest,
            flow_rate: (self.flow_label << 12).into(),
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            level: self.level << 4 | if self.hop_limit <= 1 { 1 << 3 } else { 0 },
            ack_timeout: ack_timeout(0, self.lifetime) << 3,
        }
    }

    /// Returns the way back to the sender of a request.
    pub(crate) fn back(req: &Req) -> Self {
        let fields = req.primary;
        Self {
            source: fields.remote_gid,
            dest: fields.local_gid,
            flow_label: fields.flow_rate.get() >> 12,
            traffic_class: fields.traffic_class,
            hop_limit: fields.hop_limit,
            level: fields.level >> 4,
            mtu: req.mtu_rnr >> 4,
            // The ACK timeout has the lifetime of both ways in it.
            lifetime: (fields.ack_timeout >> 3).saturating_sub(1),
        }
    }

    /// Returns whether there is such an MTU.
    pub(crate) fn has_mtu(&self) -> bool {
        (1..=MTU_MAX).contains(&self.mtu)
    }
}

impl Transport {
    /// Returns the types of a request: the transport service, and its extension.
    pub(crate) fn codes(self) -> [u8; 2] {
        match self {
            Self::Rc => [0, 0],
            Self::Uc => [1, 0],
            Self::Xrc => [3, 1],
        }
    }

    /// Returns the inverse of [`Self::codes`]. `None` for types that nobody has.
    pub(crate) fn of(req: &Req) -> Option<Self> {
        match [byte(req.remote_eecn_transport) >> 1 & 3, req.retries_srq & 7] {
            [0, _] => Some(Self::Rc),
            [1, _] => Some(Self::Uc),
            [3, 1] => Some(Self::Xrc),
            _ => None,
        }
    }
}

impl Qp {
    /// Returns the queue pair of a request.
    pub(crate) fn of_req(req: &Req, options: u32) -> Self {
        Self {
            qpn: number(req.qpn_resources),
            psn: number(req.psn_timeout),
            responder_resources: byte(req.qpn_resources),
            initiator_depth: byte(req.eecn_depth),
            flow_control: byte(req.remote_eecn_transport) & 1 != 0,
            retry_count: byte(req.psn_timeout) & 7,
            rnr_retry_count: req.mtu_rnr & 7,
            srq: req.retries_srq >> 3 & 1 != 0,
            ece: Ece { vendor: req.vendor.get() & 0xff_ffff, options },
        }
    }

    /// Writes the queue pair into a request.
    pub(crate) fn put(&self, req: &mut Req, timeout: u8, transport: Transport) {
        let [service, extension] = transport.codes();
        req.qpn_resources = word(self.qpn, self.responder_resources);
        req.eecn_depth = word(0, self.initiator_depth);
        let flags = timeout << 3 | service << 1 | u8::from(self.flow_control);
        req.remote_eecn_transport = word(0, flags);
        req.psn_timeout = word(self.psn, timeout << 3 | self.retry_count & 7);
        req.mtu_rnr |= self.rnr_retry_count & 7;
        req.retries_srq |= u8::from(self.srq) << 3 | extension;
        req.vendor = (self.ece.vendor & 0xff_ffff).into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_keeps_the_queue_pair_and_the_path() {
        let ece = Ece { vendor: 0x1234, options: 7 };
        let qp = Qp {
            qpn: 0xab_cdef,
            psn: 0x12_3456,
            responder_resources: 16,
            initiator_depth: 8,
            flow_control: true,
            retry_count: 7,
            rnr_retry_count: 6,
            srq: true,
            ece,
        };
        for transport in [Transport::Rc, Transport::Uc, Transport::Xrc] {
            let mut req = Req::new();
            qp.put(&mut req, 20, transport);
            assert_eq!((Qp::of_req(&req, 7), Transport::of(&req)), (qp, Some(transport)));
        }
        let (flow_label, lifetime) = (0xf_1234, 16);
        let path = Path { source: [1; 16], dest: [2; 16], flow_label, lifetime, ..Path::default() };
        let mut req = Req::new();
        req.primary = path.fields();
        let back = Path { source: path.dest, dest: path.source, ..path };
        assert_eq!(Path::back(&req), back);
    }

    #[test]
    fn times_are_limited() {
        assert_eq!(span(0), Duration::from_nanos(4096));
        assert_eq!(span(255), span(SPAN_MAX));
        assert_eq!([ack_timeout(0, 16), ack_timeout(16, 16), ack_timeout(30, 255)], [17, 18, 31]);
    }
}
