//! QPs of raw packets.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `frames` | frames of these tests |
//! | `sends` | what is sent, and what is refused |
//! | `receives` | receives, and frames that find none |
//! | `rules` | which rule gets a frame |
//! | `fields` | the fields that rules compare |
//! | `commands` | CREATE_FLOW and DESTROY_FLOW |
//! | `spread` | QPs that spread frames over work queues |
//! | `sniffers` | copies of all frames, in both directions |
//! | `checksums` | checksums and segmentation |
//! | `costs` | the work of sends that have no effect, frames that wait for room, and copies |
//! | `random` | random work requests, rules and frames |

mod checksums;
mod commands;
mod costs;
mod fields;
mod frames;
mod random;
mod receives;
mod rules;
mod sends;
mod sniffers;
mod spread;

use vrnic_abi::cq::{Cqe, Status};
use vrnic_abi::flow::{Fields, Kind, Rule};
use vrnic_abi::qp::Type;
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::flow::rule;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::bus::{Endpoint, Guest};
use crate::world::{Pair, World};

/// The QPs of these tests.
fn setup() -> Setup {
    Setup { kind: Type::RawPacket, ..Setup::default() }
}

/// Returns an endpoint that is ready, of this guest.
fn endpoint(guest: &Guest) -> Endpoint {
    let endpoint = Endpoint::new(guest, setup());
    endpoint.ready_for_frames();
    endpoint
}

/// Returns a rule for frames to this MAC.
fn to_mac(mac: [u8; 6]) -> Rule {
    Rule {
        values: Fields { dmac: mac, ..Fields::default() },
        mask: Fields { dmac: [0xff; 6], ..Fields::default() },
        ..rule(Kind::Normal)
    }
}

impl Pair {
    /// Returns two QPs of raw packets that are ready.
    fn raw() -> Self {
        let p = Self::apart(World::default(), setup());
        p.a.ready_for_frames();
        p.b.ready_for_frames();
        p
    }

    /// Sends a frame from A. Returns the status of the completion.
    fn send_frame(&mut self, frame: &[u8]) -> Status {
        self.a.fill(0, frame);
        let wr = Wr::new(Opcode::Send, &[self.a.sge(0, frame.len() as u32)]);
        status(&self.complete(&wr))
    }
}

/// Posts a receive of this length, whose memory begins at this offset.
fn expect(endpoint: &mut Endpoint, at: u64, len: u32) {
    let place = endpoint.sge(at, len);
    endpoint.post_recv(at, &[place]);
}

/// Returns the next frame that an endpoint has received, and its completion.
fn received(endpoint: &mut Endpoint) -> Option<(Vec<u8>, Cqe)> {
    let cqe = endpoint.recv_cq.poll()?;
    assert_eq!(status(&cqe), Status::Success);
    Some((endpoint.bytes(cqe.wr_id.get(), cqe.byte_len.get() as usize), cqe))
}
