//! TCP connections that carry bytes (TOE), between adapters of two daemons.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `budgets` | what is counted in the memory for connections |
//! | `bytes` | bytes from sends to receives, over cables with faults |
//! | `completions` | when receives and sends complete |
//! | `releases` | receives that are not full and that the program asks for |
//! | `windows` | the window, and receives that are posted late |
//! | `closing` | CLOSE_CONNECTION, and the states and events of a connection that ends |
//! | `ends` | how connections end |
//! | `takeovers` | bytes that the kernel has received, and what is refused |
//! | `segments` | what segments may have: urgent data, ECN, great lengths, SACK, probes |
//! | `switches` | RDMA on a connection that has carried bytes |
//! | `random` | random frames and receives |

mod budgets;
mod bytes;
mod closing;
mod completions;
mod ends;
mod random;
mod releases;
mod segments;
mod switches;
mod takeovers;
mod windows;

use vrnic_abi::admin::{QpFlags, Transport};
use vrnic_abi::connection::RELEASE_WORD;
use vrnic_abi::cq::{Cqe, Status};
use vrnic_abi::qp::Type;
use vrnic_abi::sq::Opcode;
use vrnic_simlink::Faults;
use vrnic_tcp::SeqNum;
use vrnic_tcp::wire::{Flags, Header, Options};
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::stream;
use vrnic_testdriver::wr::Wr;

use crate::bus::Endpoint;
use crate::cable::Cable;
use crate::network::streams::ends::frame_of;

/// A receive that tells the end of the stream has no bytes.
const END: usize = 0;

pub(crate) fn setup(push: bool) -> Setup {
    let flags = if push { QpFlags::PUSH } else { QpFlags::empty() };
    Setup { kind: Type::Toe, flags, log_wqes: 5, ..Setup::default() }
}

pub(crate) fn cable(seed: u64, faults: Faults) -> Cable {
    let cable = Cable::new(seed, faults);
    [&cable.ga, &cable.gb].iter().for_each(|guest| guest.adapter.set_transport(Transport::Iwarp));
    cable
}

/// Asks for the bytes of the receive in progress. `nth` must differ from the number in the
/// previous request.
fn release(on: &Endpoint, nth: u32) {
    on.mark(RELEASE_WORD, nth);
    on.ring();
}

/// Returns two endpoints that are not connected.
fn apart(cable: &Cable, push: bool) -> (Endpoint, Endpoint) {
    (Endpoint::new(&cable.ga, setup(push)), Endpoint::new(&cable.gb, setup(push)))
}

/// Returns two endpoints with a connection.
pub(crate) fn connected(cable: &Cable, push: bool) -> (Endpoint, Endpoint) {
    let (a, b) = apart(cable, push);
    stream::connect_toes(&a, &b);
    (a, b)
}

/// Posts a send of part of the region.
pub(crate) fn send(on: &mut Endpoint, from: u64, len: u32) {
    let wr = Wr::new(Opcode::Send, &[on.sge(from, len)]);
    on.post_send(&wr);
}

/// Waits for the next completion of a receive. Returns its length.
#[track_caller]
fn received(cable: &Cable, on: &mut Endpoint) -> usize {
    let cqe = wait(cable, on, |on| on.recv_cq.poll());
    assert_eq!(status(&cqe), Status::Success);
    cqe.byte_len.get() as usize
}

/// Waits for the next completion of a send.
#[track_caller]
fn sent(cable: &Cable, on: &mut Endpoint) -> Status {
    status(&wait(cable, on, |on| on.send_cq.poll()))
}

#[track_caller]
pub(crate) fn wait(
    cable: &Cable,
    on: &mut Endpoint,
    poll: impl Fn(&mut Endpoint) -> Option<Cqe>,
) -> Cqe {
    let mut found = None;
    cable.run_until(|| {
        found = found.take().or_else(|| poll(on));
        found.is_some()
    });
    found.expect("a completion")
}

/// Lets both ends work for this time.
pub(crate) fn pass(cable: &Cable, time: u64) {
    let end = cable.now() + time;
    cable.run_until(|| cable.now() >= end);
}

/// Returns a frame of an end of [`stream::bare_connection`] whose bytes begin `at` bytes after its
/// first one, and which acknowledges `ack` bytes.
fn segment(cable: &Cable, number: usize, at: u32, ack: u32, flags: Flags, data: &[u8]) -> Vec<u8> {
    let macs = [cable.ga.mac(), cable.gb.mac()];
    let own = stream::bare_connection(number, [macs[number], macs[1 - number]], stream::MSS);
    let header = Header {
        seq: SeqNum(own.send_next.get()).plus(at),
        ack: SeqNum(own.receive_next.get()).plus(ack),
        flags: flags | Flags::ACK,
        window: 8192,
        options: Options::default(),
    };
    frame_of(&own, &header, data)
}
