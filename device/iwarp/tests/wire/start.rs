//! The agreement of the two ends.
//!
//! Shows: iwarp

use vrnic_iwarp::mpa::start::{
    Agreement, Failure, FirstMessage, Wishes, answer, conclude, reject, request,
};
use vrnic_iwarp::wire::start::{Control, Kind, NOT_NEGOTIATED, Rtr, Start};
use vrnic_iwarp::wire::terminate::Cause;

const PLAIN: Wishes = Wishes {
    crc: false,
    markers: false,
    accept_markers: true,
    ird: 16,
    ord: 16,
    revision: 2,
    peer_to_peer: false,
};

/// Negotiates between two ends. Returns the results of the initiator and the responder.
fn agree(first: Wishes, second: Wishes) -> (Result<Agreement, Failure>, Agreement) {
    let request = request(&first, b"a");
    let request = Start::parse(request.octets()).expect("a request");
    let (reply, agreement) = answer(&second, &request, b"b").expect("an agreement");
    let reply = Start::parse(reply.octets()).expect("a reply");
    assert_eq!((request.private, reply.private), (&b"a"[..], &b"b"[..]));
    (conclude(&first, &reply), agreement)
}

#[test]
fn crc_is_on_if_either_end_wants_it() {
    for (first, second) in [(false, false), (false, true), (true, false), (true, true)] {
        let wish = |crc| Wishes { crc, ..PLAIN };
        let (ours, theirs) = agree(wish(first), wish(second));
        assert_eq!((ours.expect("agreed").crc, theirs.crc), (first || second, first || second));
    }
}

#[test]
fn markers_are_for_each_direction() {
    let (ours, theirs) = agree(Wishes { markers: true, ..PLAIN }, PLAIN);
    let ours = ours.expect("agreed");
    assert_eq!((ours.markers_received, ours.markers_sent), (true, false));
    assert_eq!((theirs.markers_received, theirs.markers_sent), (false, true));
    let never = Wishes { accept_markers: false, ..PLAIN };
    let (ours, _) = agree(never, Wishes { markers: true, ..PLAIN });
    assert_eq!(ours, Err(Failure::Markers));
    let request = request(&Wishes { markers: true, ..PLAIN }, &[]);
    let request = Start::parse(request.octets()).expect("a request");
    assert_eq!(answer(&never, &request, &[]).map(|_| ()), Err(Failure::Markers));
}

#[test]
fn read_depths_are_the_smaller_ones() {
    let (ours, theirs) =
        agree(Wishes { ird: 4, ord: 9, ..PLAIN }, Wishes { ird: 7, ord: 100, ..PLAIN });
    let ours = ours.expect("agreed");
    assert_eq!((ours.ird, ours.ord), (4, 7));
    assert_eq!((theirs.ird, theirs.ord), (7, 4));
}

#[test]
fn depths_that_are_not_agreed_on_stay_open() {
    let control = Control { ird: NOT_NEGOTIATED, ord: NOT_NEGOTIATED, ..Control::default() };
    let open = Start {
        kind: Kind::Request,
        markers: false,
        crc: false,
        reject: false,
        revision: 2,
        control: Some(control),
        private: &[],
    };
    let (reply, agreement) = answer(&PLAIN, &open, &[]).expect("an agreement");
    assert_eq!((agreement.ird, agreement.ord), (16, 16));
    let reply = Start::parse(reply.octets()).expect("a reply");
    assert_eq!(reply.control, Some(control));
    assert_eq!(conclude(&PLAIN, &reply).map(|agreed| agreed.ord), Ok(16));
}

#[test]
fn the_first_message_is_a_write_if_it_may_be() {
    let peer = Wishes { peer_to_peer: true, ..PLAIN };
    let (ours, theirs) = agree(peer, PLAIN);
    assert_eq!(ours.expect("agreed").first, Some(FirstMessage::Write));
    assert_eq!(theirs.first, Some(FirstMessage::Write));
    let offer = |rtr| Start {
        kind: Kind::Request,
        markers: false,
        crc: false,
        reject: false,
        revision: 2,
        control: Some(Control { peer_to_peer: true, rtr, ird: 1, ord: 0 }),
        private: &[],
    };
    let (_, agreement) =
        answer(&PLAIN, &offer(Rtr { read: true, ..Rtr::default() }), &[]).expect("agreed");
    assert_eq!((agreement.first, agreement.ird), (Some(FirstMessage::Read), 1));
    // Nothing that the responder knows was offered: it proposes a WRITE.
    let (_, agreement) =
        answer(&PLAIN, &offer(Rtr { send: true, ..Rtr::default() }), &[]).expect("agreed");
    assert_eq!(agreement.first, Some(FirstMessage::Write));
}

#[test]
fn a_reply_that_does_not_fit_fails_with_its_cause() {
    let wishes = Wishes { peer_to_peer: true, ird: 2, ..PLAIN };
    let control =
        Control { peer_to_peer: true, rtr: Rtr { write: true, ..Rtr::default() }, ird: 1, ord: 2 };
    let reply = |control| Start {
        kind: Kind::Reply,
        markers: false,
        crc: false,
        reject: false,
        revision: 2,
        control,
        private: &[],
    };
    assert!(conclude(&wishes, &reply(Some(control))).is_ok());
    let failure = |control| conclude(&wishes, &reply(control)).expect_err("it fails");
    assert_eq!(failure(None), Failure::Frame);
    assert_eq!(failure(Some(Control { peer_to_peer: false, ..control })), Failure::Frame);
    let none = failure(Some(Control { rtr: Rtr::default(), ..control }));
    assert_eq!((none, none.cause()), (Failure::FirstMessage, Some(Cause::NoRtr)));
    let deep = failure(Some(Control { ord: 3, ..control }));
    assert_eq!((deep, deep.cause()), (Failure::Ird, Some(Cause::InsufficientIrd)));
}

#[test]
fn rejects_are_enhanced_if_the_request_was() {
    for (revision, octets) in [(1, 20), (2, 24)] {
        let request = request(&Wishes { revision, ..PLAIN }, &[]);
        let request = Start::parse(request.octets()).expect("a request");
        let frame = reject(&request, &[]);
        assert_eq!(frame.octets().len(), octets);
        let reply = Start::parse(frame.octets()).expect("a reply");
        assert_eq!(conclude(&Wishes { revision, ..PLAIN }, &reply), Err(Failure::Rejected));
    }
}

#[test]
fn the_first_revision_is_answered_in_its_form() {
    let (ours, theirs) = agree(Wishes { revision: 1, ..PLAIN }, PLAIN);
    assert_eq!(ours.expect("agreed").ird, 16);
    assert_eq!((theirs.ird, theirs.ord, theirs.first), (16, 16, None));
}
