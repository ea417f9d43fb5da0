//! Keys that are valid for one message, in TCP connections (iWARP) that lose segments.
//!
//! Shows: iwarp

use vrnic_abi::Key;
use vrnic_abi::admin::{MrFlags, Pages, RegMr, command};
use vrnic_abi::connection::Ending;
use vrnic_abi::cq::Status;
use vrnic_abi::qp::State;
use vrnic_abi::sq::Opcode;
use vrnic_adapter::ethernet::Frame;
use vrnic_iwarp::crc;
use vrnic_simlink::Faults;
use vrnic_tcp::SeqNum;
use vrnic_tcp::wire::{Flags, Header, Options};
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::ALL;
use vrnic_testdriver::stream;
use vrnic_testdriver::wr::Wr;

use super::acks::{empty_write, foreign, segment};
use super::ends::{ending, frame_of, pass};
use super::gaps::{SOON, connected, lose, prove_whole_messages, there};
use super::receives::connect_at;
use crate::bus::Endpoint;
use crate::cable::Cable;

/// Time within which lost segments are sent again, and a failed connection ends.
const LATE: u64 = 3_000_000_000;

/// Registers the buffer of an endpoint with a key for one message.
fn one_touch(end: &Endpoint) -> u32 {
    let params = RegMr {
        flags: MrFlags::ONE_TOUCH.bits().into(),
        ..RegMr::new(end.pdn, ALL, end.buffer, 1 << 20, Pages::new(end.buffer, 12, 0))
    };
    end.guest.command::<command::RegMr>(&params).expect("a key").get()
}

fn is_valid(end: &Endpoint, key: u32) -> bool {
    let qp = end.guest.adapter.qp(end.qpn).expect("a QP");
    qp.tpt.known(Key::new(key).index()).expect("an entry").valid.is_some()
}

/// Returns a WRITE of sevens to offset `at` of the other end's buffer.
fn write(a: &Endpoint, b: &Endpoint, at: u64, len: u32, key: u32) -> Wr {
    Wr::new(Opcode::Write, &[a.sge(0, len)]).to(b.buffer + at, key)
}

fn next(end: &mut Endpoint) -> Option<Status> {
    end.send_cq.poll().map(|cqe| status(&cqe))
}

#[test]
fn segments_behind_a_gap_are_placed_and_the_key_ends_in_its_turn() {
    const LEN: usize = 14_000;
    // The lost segment is the first one, one between, or the last one.
    for nth in [0, 2, 9] {
        let cable = Cable::new(21, Faults::default());
        let (mut a, b) = connected(&cable);
        let key = one_touch(&b);
        a.fill(0, &[7; LEN]);
        let over = lose(&cable, nth);
        a.post_send(&write(&a, &b, 0, LEN as u32, key));
        pass(&cable, SOON);
        let early = there(&b, 0, LEN);
        assert!((LEN - 1460..LEN).contains(&early), "{early}");
        assert!(is_valid(&b, key), "the stream has not come to the last segment yet");
        over.set(true);
        pass(&cable, LATE);
        assert_eq!((there(&b, 0, LEN), next(&mut a)), (LEN, Some(Status::Success)));
        assert!(!is_valid(&b, key));
        a.post_send(&write(&a, &b, 0, 8, key));
        pass(&cable, LATE);
        assert_eq!(next(&mut a), Some(Status::RemAccessErr));
    }
}

#[test]
fn another_message_in_the_gap_ends_the_key_and_the_connection() {
    // The message in the gap has one segment or, if its last one is not lost, two.
    for (len, lost) in [(1000, 0), (2000, 0), (2000, 1)] {
        let cable = Cable::new(22, Faults::default());
        let (mut a, b) = connected(&cable);
        let key = one_touch(&b);
        a.fill(0, &[7; 4000]);
        let over = lose(&cable, lost);
        a.store_send(&write(&a, &b, 0, len, key));
        a.store_send(&write(&a, &b, 10_000, 4000, key));
        a.ring();
        pass(&cable, SOON);
        // If the last segment of the first message has been placed, the second message must wait.
        let second = there(&b, 10_000, 4000);
        assert!(if lost == 0 && len == 2000 { second < 4000 } else { second == 4000 }, "{second}");
        assert!(is_valid(&b, key));
        over.set(true);
        pass(&cable, LATE);
        assert!(!is_valid(&b, key));
        assert_eq!((a.state(), b.state()), (State::Err, State::Err));
        let outcomes: Vec<_> = std::iter::from_fn(|| next(&mut a)).collect();
        let expected = if lost == 0 && len == 2000 {
            [Status::Success, Status::RemAccessErr]
        } else {
            [Status::RemAccessErr, Status::WrFlushErr]
        };
        assert_eq!(outcomes, expected, "length {len}");
    }
}

#[test]
fn another_connection_meanwhile_ends_the_key_and_itself() {
    let cable = Cable::new(23, Faults::default());
    let base = Endpoint::new(&cable.gb, Default::default());
    let [(mut a, b), (mut c, d)] = [8000, 8001].map(|port| {
        let far = base.sibling(vrnic_abi::qp::Type::Rc, Default::default());
        let ends = (Endpoint::new(&cable.ga, Default::default()), far);
        connect_at(&ends.0, &ends.1, port);
        ends
    });
    pass(&cable, 5_000_000);
    prove_whole_messages(&cable, &mut a, &b);
    let key = one_touch(&base);
    a.fill(0, &[7; 1000]);
    c.fill(0, &[9; 1000]);
    let over = lose(&cable, 0);
    // The lost message does not use the key, the next one does.
    a.store_send(&write(&a, &b, 50_000, 1000, b.key));
    a.store_send(&write(&a, &b, 0, 1000, key));
    a.ring();
    pass(&cable, SOON);
    assert_eq!(there(&b, 0, 1000), 1000);
    assert!(is_valid(&b, key));
    c.post_send(&write(&c, &d, 0, 1000, key));
    pass(&cable, 50_000_000);
    assert_eq!((c.state(), d.state()), (State::Err, State::Err));
    assert!(!is_valid(&b, key), "two messages have used the key");
    // The message that came first has been placed, and ends as it would have.
    over.set(true);
    pass(&cable, LATE);
    assert_eq!(next(&mut c), Some(Status::RemAccessErr));
    assert_eq!([next(&mut a), next(&mut a)], [Some(Status::Success); 2]);
    assert_eq!((a.state(), b.state(), there(&b, 0, 1000)), (State::Rts, State::Rts, 1000));
}

/// A connection to B whose peer is the test.
pub(super) struct Crafted<'a> {
    cable: &'a Cable,
    pub(super) b: Endpoint,
    /// Number of bytes that B has received in order.
    pub(super) received: usize,
}

impl<'a> Crafted<'a> {
    /// Opens the connection, and sends segments until B assumes whole messages in later ones, also
    /// after a gap.
    pub(super) fn new(cable: &'a Cable) -> Self {
        let first = empty_write();
        let mut this = Self { cable, b: foreign(cable), received: first.len() };
        // B must have sent its start frame before it is acknowledged.
        pass(cable, 10_000);
        for _ in 0..64 {
            this.send(0, &first);
            this.received += first.len();
        }
        this
    }

    /// Sends a segment of the stream that begins `ahead` bytes after the bytes in order.
    pub(super) fn send(&self, ahead: usize, bytes: &[u8]) {
        let macs = [self.cable.ga.mac(), self.cable.gb.mac()];
        let [a, b] =
            [0, 1].map(|end| stream::connection(end, [macs[end], macs[1 - end]], stream::MSS));
        let offset = u32::try_from(self.received + ahead).expect("few bytes");
        // The start frame of B is as long as the request for it.
        let reply = stream::request().len() as u32;
        let header = Header {
            seq: SeqNum(b.receive_next.get().wrapping_add(offset)),
            ack: SeqNum(a.receive_next.get().wrapping_add(reply)),
            flags: Flags::ACK,
            window: 1000,
            options: Options::default(),
        };
        let frame = Frame::new(frame_of(&a, &header, bytes));
        assert!(self.cable.gb.adapter.offer(frame).other().is_none());
        pass(self.cable, 10_000);
    }
}

/// Returns the FPDU of the first READ request of a connection.
fn read_request(key: u32, from: u64, len: u32) -> Vec<u8> {
    let (untagged_last, read_request) = (0x41, 0x41);
    let mut fpdu = vec![0, 46, untagged_last, read_request];
    // No key to invalidate; queue 1, message 1, offset 0.
    fpdu.extend([0, 1, 1, 0].map(u32::to_be_bytes).concat());
    // The sink.
    fpdu.extend([0; 12]);
    fpdu.extend([len.to_be_bytes(), key.to_be_bytes()].concat());
    fpdu.extend(from.to_be_bytes());
    fpdu.extend(crc::octets(&fpdu));
    fpdu
}

/// The other message that has used the key is a READ, whose answer the peer has not acknowledged.
#[test]
fn a_second_use_is_found_when_the_stream_comes_to_it() {
    let cable = Cable::new(26, Faults::default());
    let mut peer = Crafted::new(&cable);
    let key = one_touch(&peer.b);
    let read = read_request(key, peer.b.buffer, 100);
    peer.send(0, &read);
    peer.received += read.len();
    let b = &peer.b;
    let gap = segment(b.key, b.buffer + 5000, true, &[3; 100]);
    peer.send(gap.len(), &segment(key, b.buffer + 1000, true, &[7; 100]));
    assert_eq!((there(b, 1000, 100), b.state(), is_valid(b, key)), (100, State::Rts, true));
    peer.send(0, &gap);
    assert_eq!((b.state(), is_valid(b, key)), (State::Err, false));
    assert_eq!((ending(b), b.bytes(5000, 100)), (Ending::TerminateSent, vec![3; 100]));
}

/// Lets a WRITE of another connection to the same protection domain use a key. Returns its status.
fn write_beside(cable: &Cable, b: &Endpoint, key: u32) -> Status {
    let mut c = Endpoint::new(&cable.ga, Default::default());
    let d = b.sibling(vrnic_abi::qp::Type::Rc, Default::default());
    connect_at(&c, &d, 8000);
    let write = write(&c, &d, 0, 8, key);
    status(&cable.complete(&mut c, &write))
}

#[test]
fn an_empty_last_segment_behind_a_gap_binds_the_key_of_its_message() {
    for is_used_meanwhile in [false, true] {
        let cable = Cable::new(24, Faults::default());
        let peer = Crafted::new(&cable);
        let b = &peer.b;
        let key = one_touch(b);
        let gap = segment(b.key, b.buffer + 5000, true, &[3; 100]);
        // The last segment has no payload, and does not name the key.
        let message =
            [segment(key, b.buffer + 1000, false, &[7; 100]), segment(0, 0, true, &[])].concat();
        peer.send(gap.len(), &message);
        assert_eq!((there(b, 1000, 100), is_valid(b, key)), (100, true));
        if is_used_meanwhile {
            assert_eq!(write_beside(&cable, b, key), Status::RemAccessErr);
            assert!(!is_valid(b, key), "two messages have used the key");
        }
        peer.send(0, &gap);
        assert_eq!((b.state(), is_valid(b, key)), (State::Rts, false));
        assert_eq!(b.bytes(5000, 100), [3; 100]);
    }
}

/// A segment without payload may name any key, because nothing is checked.
#[test]
fn an_empty_message_behind_a_gap_uses_no_key() {
    let cable = Cable::new(25, Faults::default());
    let peer = Crafted::new(&cable);
    let b = &peer.b;
    let key = one_touch(b);
    let gap = segment(key, b.buffer, true, &[7; 100]);
    peer.send(gap.len(), &segment(key, b.buffer, true, &[]));
    peer.send(0, &gap);
    assert_eq!((b.state(), there(b, 0, 100), is_valid(b, key)), (State::Rts, 100, false));
    let key = one_touch(b);
    assert_eq!(write_beside(&cable, b, key), Status::Success);
}
