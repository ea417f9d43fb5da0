//! The agreement of the two ends: functions of a request and a reply (RFC 5044, section 7.1; RFC
//! 6581, section 9).

use crate::wire::cursor::Fields;
use crate::wire::start::{Control, FRAME_MAX, Kind, NOT_NEGOTIATED, Rtr, Start};
use crate::wire::terminate::Cause;

/// What an end wants, and what it can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// FPDUs have CRCs. They also have them if the peer wants that.
    pub crc: bool,
    /// FPDUs that arrive have markers.
    pub markers: bool,
    /// The peer gets markers if it wants them; else such a connection is not made.
    pub accept_markers: bool,
    /// READs and atomics that this end serves at a time.
    pub ird: u16,
    /// READs and atomics that this end has outstanding.
    pub ord: u16,
    /// Initiator: the revision of the request. An enhanced frame has 2.
    pub revision: u8,
    /// Initiator: it sends a first message by itself, so that the responder may send.
    pub peer_to_peer: bool,
}

impl Default for Wishes {
    fn default() -> Self {
        let (crc, markers, accept_markers) = (true, false, true);
        Self { crc, markers, accept_markers, ird: 16, ord: 16, revision: 2, peer_to_peer: true }
    }
}

/// The kind of the initiator's first message. SENDs are not offered, since they would take a
/// receive of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstMessage {
    /// A WRITE without payload.
    Write,
    /// A READ without payload.
    Read,
}

/// What the two ends have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// FPDUs have CRCs.
    pub crc: bool,
    /// FPDUs that are sent have markers.
    pub markers_sent: bool,
    /// FPDUs that arrive have markers.
    pub markers_received: bool,
    /// READs and atomics that this end serves at a time.
    pub ird: u16,
    /// READs and atomics that this end may have outstanding.
    pub ord: u16,
    /// The message that the initiator sends by itself.
    pub first: Option<FirstMessage>,
}

/// The reason for which no connection is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The responder has rejected it.
    Rejected,
    /// A start frame is malformed, or not the one that is due.
    Frame,
    /// The peer wants markers, and gets none.
    Markers,
    /// The peer wants more READs outstanding than this end serves.
    Ird,
    /// The peer chose a first message that was not offered.
    FirstMessage,
}

impl Failure {
    /// The cause of the Terminate that the peer is sent, if it is sent one.
    #[must_use]
    pub const fn cause(self) -> Option<Cause> {
        match self {
            Self::Ird => Some(Cause::InsufficientIrd),
            Self::FirstMessage => Some(Cause::NoRtr),
            Self::Rejected | Self::Frame | Self::Markers => None,
        }
    }
}

/// The number as a frame has it: 14 bits, and not the value that has another meaning.
fn depth(number: u16) -> u16 {
    number.min(NOT_NEGOTIATED - 1)
}

/// The peer's number, or `otherwise` if the peer leaves it open.
fn agreed(peer: u16, otherwise: u16) -> u16 {
    if peer == NOT_NEGOTIATED { otherwise } else { peer }
}

/// Makes the initiator's request.
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

/// Makes the responder's reply to a request; returns the agreement with it.
///
/// # Errors
/// The reason for which there is none. The peer is sent a [`reject`] then.
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

/// The control words of a reply. Linux siw takes both numbers as they are, so none is larger than
/// the one that was asked for.
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

/// Makes the responder's reply that rejects a request. It is an enhanced frame if the request was.
#[must_use]
pub fn reject(request: &Start<'_>, private: &[u8]) -> Fields<FRAME_MAX> {
    let control = request
        .control
        .map(|asked| Control { peer_to_peer: asked.peer_to_peer, ..Control::default() });
    let (markers, crc, revision) = (false, request.crc, request.revision);
    Start { kind: Kind::Reply, markers, crc, reject: true, revision, control, private }.octets()
}

/// Concludes the agreement at the initiator.
///
/// # Errors
/// The reason for which there is none.
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
