//! Completions of messages to peers that hold acknowledgements back, as TCP of Linux does.
//!
//! Shows: iwarp

use std::cell::RefCell;
use std::rc::Rc;

use vrnic_abi::admin::{QpFlags, QpOptions, Transport};
use vrnic_abi::cq::Status;
use vrnic_abi::sq::Opcode;
use vrnic_adapter::ethernet::Frame;
use vrnic_iwarp::crc;
use vrnic_simlink::{Fate, Faults};
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::stream;
use vrnic_testdriver::wr::Wr;

use crate::bus::Endpoint;
use crate::cable::Cable;
use crate::network::streams::ends::{self, MS, connected, first_segment, open};

/// Offset of the numbers of READs in a start frame. The first bit of the first number means the
/// peer-to-peer model, the first two bits of the second number name the first message.
const NUMBERS: usize = 20;
/// Length of a message for which Linux delays the acknowledgement.
const MESSAGE_LEN: usize = 1000;

/// Returns the FPDU of a segment of a WRITE.
pub(super) fn segment(key: u32, to: u64, last: bool, payload: &[u8]) -> Vec<u8> {
    let (control, write) = (if last { 0xc1 } else { 0x81 }, 0x40);
    let mut fpdu = (payload.len() as u16 + 14).to_be_bytes().to_vec();
    fpdu.extend([control, write]);
    fpdu.extend(key.to_be_bytes());
    fpdu.extend(to.to_be_bytes());
    fpdu.extend(payload);
    fpdu.resize(fpdu.len().next_multiple_of(4), 0);
    fpdu.extend(crc::octets(&fpdu));
    fpdu
}

/// Returns the FPDU of a WRITE without payload.
pub(super) fn empty_write() -> Vec<u8> {
    segment(1, 0, true, &[])
}

/// Gives B its end of a connection whose initiator has not promised a first message, and sends such
/// a message for the initiator.
pub(super) fn foreign(cable: &Cable) -> Endpoint {
    foreign_of(cable, Setup::default())
}

/// Does so with an end of this kind.
fn foreign_of(cable: &Cable, setup: Setup) -> Endpoint {
    let end = Endpoint::new(&cable.gb, setup);
    open(&end, 1, cable.ga.mac(), |connection| {
        connection.request[NUMBERS] &= 0x7f;
        connection.request[NUMBERS + 2] &= 0x3f;
    });
    let frame = first_segment(cable, 0, &empty_write());
    assert!(cable.gb.adapter.offer(Frame::new(frame)).other().is_none());
    end
}

/// Returns two adapters of iWARP.
fn iwarp(seed: u64, faults: Faults) -> Cable {
    let cable = Cable::new(seed, faults);
    [&cable.ga, &cable.gb].iter().for_each(|guest| guest.adapter.set_transport(Transport::Iwarp));
    cable
}

/// Drops all frames from now on, and keeps the frames that B has sent.
fn lose(cable: &Cable) -> Rc<RefCell<Vec<Vec<u8>>>> {
    let lost = Rc::<RefCell<Vec<Vec<u8>>>>::default();
    let keep = Rc::clone(&lost);
    cable.links[0].borrow_mut().rule(|_| Fate::Drop);
    cable.links[1].borrow_mut().rule(move |frame| {
        keep.borrow_mut().push(frame.to_vec());
        Fate::Drop
    });
    lost
}

/// Moves the clock. Returns the status of the next completion, if there is one.
fn pass(cable: &Cable, on: &mut Endpoint, time: u64) -> Option<Status> {
    ends::pass(cable, time);
    on.send_cq.poll().map(|cqe| status(&cqe))
}

fn send(on: &mut Endpoint, len: usize) {
    on.post_send(&Wr::new(Opcode::Send, &[on.sge(0, len as u32)]));
}

/// Counts the frames that contain a message of this byte.
fn frames_of(frames: &RefCell<Vec<Vec<u8>>>, byte: u8) -> usize {
    let has =
        |frame: &&Vec<u8>| frame.windows(MESSAGE_LEN).any(|part| part.iter().all(|it| *it == byte));
    frames.borrow().iter().filter(has).count()
}

#[test]
fn a_short_message_to_a_foreign_peer_is_complete_when_it_has_been_sent() {
    let cable = Cable::new(1, Faults::default());
    let lost = lose(&cable);
    let mut b = foreign(&cable);
    b.fill(0, &[7; MESSAGE_LEN]);
    send(&mut b, MESSAGE_LEN);
    assert_eq!(pass(&cable, &mut b, MS), Some(Status::Success));
    b.fill(0, &[9; MESSAGE_LEN]);
    pass(&cable, &mut b, 1000 * MS);
    assert!(frames_of(&lost, 7) >= 2, "the message is sent again");
    assert_eq!(
        frames_of(&lost, 9),
        0,
        "a retransmission contains bytes that the program has written since"
    );
}

#[test]
fn a_long_message_to_a_foreign_peer_waits_for_its_acknowledgement() {
    let cable = Cable::new(1, Faults::default());
    lose(&cable);
    let mut b = foreign(&cable);
    send(&mut b, 2 * usize::from(stream::MSS) + 1);
    assert_eq!(pass(&cable, &mut b, 100 * MS), None);
}

/// B sends a short message that A acknowledges at once, and `count` messages that A acknowledges
/// late. None of these is complete before its acknowledgement.
fn acknowledge_late(cable: &Cable, [a, b]: [&mut Endpoint; 2], count: usize) {
    cable.settle();
    for nth in 0..4 {
        a.post_recv(nth, &[a.sge(0, 100)]);
    }
    send(b, 100);
    assert_eq!(pass(cable, b, MS), Some(Status::Success));
    cable.links[0].borrow_mut().rule(|_| Fate::Delay(40 * MS));
    for _ in 0..count {
        send(b, 100);
        assert_eq!(pass(cable, b, 30 * MS), None);
        assert_eq!(pass(cable, b, 30 * MS), Some(Status::Success));
    }
}

/// Two acknowledgements arrive late. After that, no message waits for its acknowledgement.
#[test]
fn a_peer_that_holds_acknowledgements_back_is_noticed() {
    let cable = Cable::new(1, Faults::default());
    let (mut a, mut b) = connected(&cable);
    acknowledge_late(&cable, [&mut a, &mut b], 2);
    send(&mut b, 100);
    assert_eq!(pass(&cable, &mut b, MS), Some(Status::Success));
    assert_eq!(a.recv_cq.poll().map(|cqe| status(&cqe)), Some(Status::Success));
}

#[test]
fn a_message_to_an_adapter_waits_for_its_acknowledgement() {
    let cable = Cable::new(1, Faults::default());
    let (_a, mut b) = connected(&cable);
    cable.settle();
    lose(&cable);
    send(&mut b, 100);
    assert_eq!(pass(&cable, &mut b, 100 * MS), None);
}

/// With the option, no peer is an exception: an initiator that promises no first message, and an
/// adapter that acknowledges late. Both rules of completion find the acknowledgement.
#[test]
fn a_short_message_waits_for_its_acknowledgement_if_the_program_wants_it() {
    for flags in [QpFlags::empty(), QpFlags::QUEUE_LENGTH] {
        let setup = Setup { options: QpOptions::ACKNOWLEDGED, flags, ..Setup::default() };
        let cable = iwarp(1, Faults::default());
        lose(&cable);
        let mut b = foreign_of(&cable, setup);
        send(&mut b, 100);
        assert_eq!(pass(&cable, &mut b, 100 * MS), None);

        let cable = iwarp(1, Faults::default());
        let mut a = Endpoint::new(&cable.ga, Setup::default());
        let mut b = Endpoint::new(&cable.gb, setup);
        stream::connect_pair(&a, &b);
        acknowledge_late(&cable, [&mut a, &mut b], 3);
        while let Some(cqe) = a.recv_cq.poll() {
            assert_eq!(status(&cqe), Status::Success);
        }
    }
}

/// Lost segments change nothing: a message completes when all of it is acknowledged, not earlier,
/// and its buffer is the program's then.
#[test]
fn messages_complete_by_the_length_of_the_queue() {
    let cable = iwarp(3, Faults::all(10_000));
    let setup = Setup { flags: QpFlags::QUEUE_LENGTH, ..Setup::default() };
    let [mut a, b] = [&cable.ga, &cable.gb].map(|guest| Endpoint::new(guest, setup));
    stream::connect_pair(&a, &b);
    for round in 0..20 {
        a.fill(0, &[round; 9000]);
        let write = Wr::new(Opcode::Write, &[a.sge(0, 9000)]).to(b.buffer, b.key);
        assert_eq!(status(&cable.complete(&mut a, &write)), Status::Success);
        assert_eq!(b.bytes(0, 9000), [round; 9000]);
    }
}
