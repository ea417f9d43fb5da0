//! Messages to memory whose bytes the host writes later, such as memory that only a VMM reaches.
//!
//! Shows: iwarp

use vrnic_abi::cq::Status;
use vrnic_abi::qp::State;
use vrnic_iwarp::crc;
use vrnic_simlink::Faults;
use vrnic_testdriver::cq::status;

use super::acks::segment;
use super::ends::{MS, pass};
use super::gaps::there;
use super::one_touch::Crafted;
use crate::cable::Cable;

/// Returns the FPDU of a segment of the first SEND of a connection.
fn send(at: u32, last: bool, payload: &[u8]) -> Vec<u8> {
    let (control, send) = (if last { 0x41 } else { 0x01 }, 0x43);
    let mut fpdu = (payload.len() as u16 + 18).to_be_bytes().to_vec();
    fpdu.extend([control, send]);
    // No key to invalidate; queue 0, message 1.
    fpdu.extend([0, 0, 1, at].map(u32::to_be_bytes).concat());
    fpdu.extend(payload);
    fpdu.resize(fpdu.len().next_multiple_of(4), 0);
    fpdu.extend(crc::octets(&fpdu));
    fpdu
}

/// A message ends with a segment that has no bytes, before its bytes have arrived.
///
/// Shows: iwarp: the end of messages whose bytes are on their way
#[test]
fn an_empty_last_segment_waits_for_the_bytes_of_its_message() {
    for is_send in [false, true] {
        let cable = Cable::new(31, Faults::default());
        let mut peer = Crafted::new(&cable);
        let place = peer.b.buffer + 1000;
        let sge = peer.b.sge(1000, 200);
        let message = if is_send {
            peer.b.post_recv(9, &[sge]);
            [send(0, false, &[7; 100]), send(100, true, &[])].concat()
        } else {
            [segment(peer.b.key, place, false, &[7; 100]), segment(0, 0, true, &[])].concat()
        };
        cable.gb.host.put_off(place, 200);
        peer.send(0, &message);
        peer.received += message.len();
        let seen = (peer.b.state(), there(&peer.b, 1000, 100), peer.b.recv_cq.peek().is_some());
        assert_eq!(seen, (State::Rts, 0, false), "SEND {is_send}");
        cable.gb.host.arrive();
        pass(&cable, 100 * MS);
        assert_eq!((peer.b.state(), there(&peer.b, 1000, 100)), (State::Rts, 100));
        if is_send {
            let cqe = peer.b.recv_cq.poll().expect("the message has ended");
            assert_eq!((status(&cqe), cqe.byte_len.get()), (Status::Success, 100));
        }
        // The connection goes on.
        peer.send(0, &segment(peer.b.key, peer.b.buffer + 5000, true, &[7; 8]));
        assert_eq!(there(&peer.b, 5000, 8), 8, "SEND {is_send}");
    }
}
