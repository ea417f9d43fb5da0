//! The negotiation of the two ends, as functions of a request and a reply (RFC 5044, section 7.1;
//! RFC 6581, section 9).

use crate::wire::fields::Fields;
use crate::wire::start::{Control, FRAME_MAX, Kind, NOT_NEGOTIATED, Rtr, Start};
use crate::wire::terminate::Cause;

/// The requirements and abilities of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// True if FPDUs must have CRCs. They also have CRCs if the peer demands it.
    pub crc: bool,
    /// True if received FPDUs must have markers.
    pub markers: bool,
    /// True if markers are sent to a peer that wants them. Otherwise no connection to such a peer
    /// is made.
    pub accept_markers: bool,
    /// Maximum number of READs and atomics of the peer that this end serves at a time.
    pub ird: u16,
    /// Maximum number of READs and atomics that this end has outstanding.
    pub ord: u16,
    /// The revision of the initiator's request. An enhanced frame has 2.
    pub revision: u8,
    /// True if the initiator sends a first message of its own, so that the responder may send.
    pub peer_to_peer: bool,
}

impl Default for Wishes {
    fn default() -> Self {
        let (crc, markers, accept_markers) = (true, false, true);
        Self { crc, markers, accept_markers, ird: 16, ord: 16, revision: 2, peer_to_peer: true }
    }
}

/// The type of the initiator's first message. SENDs are not offered, since they would consume a
/// receive of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstMessage {
    /// A WRITE without payload.
    Write,
    /// A READ without payload.
    Read,
}

/// The result of the negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// True if FPDUs have CRCs.
    pub crc: bool,
    /// True if sent FPDUs have markers.
    pub markers_sent: bool,
    /// True if received FPDUs have markers.
    pub markers_received: bool,
    /// Maximum number of READs and atomics of the peer that this end serves at a time.
    pub ird: u16,
    /// Maximum number of READs and atomics that this end may have outstanding.
    pub ord: u16,
    /// The first message that the initiator sends on its own.
    pub first: Option<FirstMessage>,
}

/// The reason for which no connection is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The responder has rejected the connection.
    Rejected,
    /// A start frame is malformed, or not the expected one.
    Frame,
    /// The peer demands markers, which this end does not send.
    Markers,
    /// The peer demands more outstanding READs than this end serves.
    Ird,
    /// The peer chose a first message that was not offered.
    FirstMessage,
}

impl Failure {
    /// Returns the cause of the Terminate for the peer, if one is sent.
    #[must_use]
    pub const fn cause(self) -> Option<Cause> {
        match self {
            Self::Ird => Some(Cause::InsufficientIrd),
            Self::FirstMessage => Some(Cause::NoRtr),
            Self::Rejected | Self::Frame | Self::Markers => None,
        }
    }
}

/// Returns the number as it is in a frame: 14 bits, without the value that means "not negotiated".
fn depth(number: u16) -> u16 {
    number.min(NOT_NEGOTIATED - 1)
}

/// Returns the peer's number, or `otherwise` if the peer does not negotiate it.
fn agreed(peer: u16, otherwise: u16) -> u16 {
    if peer == NOT_NEGOTIATED { otherwise } else { peer }
}

/// Returns the initiator's request.
#[must_use]
pub fn request(wishes: &Wishes, private: &[u8]) -> Fields<FRAME_MAX> {
    let control = (wishes.revision >= 2).then(|| Control {
        peer_to_peer: wishes.peer_to_peer,
        rtr: Rtr { send: false, write: wishes.peer_to_peer, read: wishes.peer_to_peer },
        ird: depth(wishes.ird),
        ord: depth(wishes.ord),
    });
    let Wishes { markers, crc, revision, .. } = *wishes;
    Start { kind: Kind::Request, markers, crc, reject: false, revision, control, private }.octets()
}

/// Returns the responder's reply to a request, and the result of the negotiation.
///
/// # Errors
/// The reason for which the negotiation has failed. The caller then sends a [`reject`].
pub fn answer(
    wishes: &Wishes,
    request: &Start<'_>,
    private: &[u8],
) -> Result<(Fields<FRAME_MAX>, Agreement), Failure> {
    if request.kind != Kind::Request {
        return Err(Failure::Frame);
    }
    if request.markers && !wishes.accept_markers {
        return Err(Failure::Markers);
    }
    let mut agreement = Agreement {
        crc: wishes.crc || request.crc,
        markers_sent: request.markers,
        markers_received: wishes.markers,
        ird: depth(wishes.ird),
        ord: depth(wishes.ord),
        first: None,
    };
    let control = request.control.map(|asked| reply_control(&asked, &mut agreement));
    let Agreement { crc, markers_received: markers, .. } = agreement;
    let (kind, reject, revision) = (Kind::Reply, false, request.revision);
    let reply = Start { kind, markers, crc, reject, revision, control, private };
    Ok((reply.octets(), agreement))
}

/// Returns the control words of a reply. Linux siw uses both numbers unchanged, so neither exceeds
/// the one in the request.
fn reply_control(asked: &Control, agreement: &mut Agreement) -> Control {
    if asked.peer_to_peer {
        let read = asked.rtr.read && !asked.rtr.write && agreement.ird > 0;
        agreement.first = Some(if read { FirstMessage::Read } else { FirstMessage::Write });
    }
    let reads_first = agreement.first == Some(FirstMessage::Read);
    agreement.ird = agreement.ird.min(agreed(asked.ord, agreement.ird).max(reads_first.into()));
    agreement.ord = agreement.ord.min(agreed(asked.ird, agreement.ord));
    let number = |asked, own| if asked == NOT_NEGOTIATED { NOT_NEGOTIATED } else { own };
    Control {
        peer_to_peer: asked.peer_to_peer,
        rtr: Rtr {
            send: false,
            write: agreement.first == Some(FirstMessage::Write),
            read: reads_first,
        },
        ird: number(asked.ord, agreement.ird),
        ord: number(asked.ird, agreement.ord),
    }
}

/// Returns the responder's reply that rejects a request. It is an enhanced frame if the request was
/// one.
#[must_use]
pub fn reject(request: &Start<'_>, private: &[u8]) -> Fields<FRAME_MAX> {
    let control = request
        .control
        .map(|asked| Control { peer_to_peer: asked.peer_to_peer, ..Control::default() });
    let (markers, crc, revision) = (false, request.crc, request.revision);
    Start { kind: Kind::Reply, markers, crc, reject: true, revision, control, private }.octets()
}

/// Completes the negotiation at the initiator.
///
/// # Errors
/// The reason for which the negotiation has failed.
pub fn conclude(wishes: &Wishes, reply: &Start<'_>) -> Result<Agreement, Failure> {
    if reply.kind != Kind::Reply {
        return Err(Failure::Frame);
    }
    if reply.reject {
        return Err(Failure::Rejected);
    }
    if (wishes.revision >= 2) != reply.control.is_some() {
        return Err(Failure::Frame);
    }
    if reply.markers && !wishes.accept_markers {
        return Err(Failure::Markers);
    }
    let mut agreement = Agreement {
        crc: wishes.crc || reply.crc,
        markers_sent: reply.markers,
        markers_received: wishes.markers,
        ird: depth(wishes.ird),
        ord: depth(wishes.ord),
        first: None,
    };
    let Some(control) = reply.control else { return Ok(agreement) };
    if control.peer_to_peer != wishes.peer_to_peer {
        return Err(Failure::Frame);
    }
    agreement.ord = agreement.ord.min(agreed(control.ird, agreement.ord));
    if control.peer_to_peer {
        agreement.first = Some(match control.rtr {
            Rtr { write: true, .. } => FirstMessage::Write,
            Rtr { read: true, .. } => FirstMessage::Read,
            Rtr { .. } => return Err(Failure::FirstMessage),
        });
        if agreement.first == Some(FirstMessage::Read) && agreement.ord == 0 {
            return Err(Failure::FirstMessage);
        }
    }
    if agreed(control.ord, agreement.ird) > agreement.ird {
        return Err(Failure::Ird);
    }
    Ok(agreement)
}
