//! Shows: tcp: connections that carry bytes first, and then RDMA messages of another QP

mod refused;

use vrnic_abi::admin::{Counter, StartRdma, command};
use vrnic_abi::connection::{Ending, RECEIVED_MAX, Received, Stage, StartFlags};
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::State;
use vrnic_abi::sq::Opcode;
use vrnic_adapter::ethernet::Frame;
use vrnic_adapter::limits::CONNECTION_MEMORY;
use vrnic_simlink::{Fate, Faults};
use vrnic_tcp::wire::Flags;
use vrnic_tcp::wire::frame::Frame as TcpFrame;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{TO_RTS, attributes};
use vrnic_testdriver::stream;
use vrnic_testdriver::wr::Wr;

use super::{apart, cable, connected, pass, received, segment, send, sent, wait};
use crate::bus::Endpoint;
use crate::cable::Cable;
use crate::network::streams::ends::{ending, stage};
use crate::network::streams::pattern;

const MS: u64 = 1_000_000;
const READS: u16 = 4;

/// An end of a connection: the QP that carries bytes, and the one that gets the connection.
struct Side {
    bytes: Endpoint,
    rdma: Endpoint,
}

impl Side {
    fn new(bytes: Endpoint, peer: &Endpoint) -> Self {
        let rdma = bytes.beside(|_| {});
        rdma.guest.take_through(rdma.qpn, attributes(peer.guest.mac(), 0), &TO_RTS[..1]);
        Self { bytes, rdma }
    }

    fn params(&self) -> StartRdma {
        StartRdma {
            from: self.bytes.qpn.into(),
            to: self.rdma.qpn.into(),
            ird: READS.into(),
            ord: READS.into(),
            flags: StartFlags::CRC.bits().into(),
            ..StartRdma::default()
        }
    }

    fn start(&self) -> Result<(), Refused> {
        self.bytes.guest.command::<command::StartRdma>(&self.params())
    }

    /// Begins, with bytes that the program has received: part of its region.
    fn start_with(&self, from: u64, len: u32) -> Result<(), Refused> {
        let addr = self.bytes.buffer + from;
        let received = Received { addr: addr.into(), len: len.into(), reserved: 0.into() };
        let params = StartRdma { received, ..self.params() };
        self.bytes.guest.command::<command::StartRdma>(&params)
    }

    fn post_first(&mut self) {
        self.rdma.post_recv(77, &[self.rdma.sge(4000, 1000)]);
    }

    fn opened(&self, cable: &Cable) {
        cable.run_until(|| self.rdma.state() == State::Rts && stage(&self.rdma) == Stage::Open);
        assert_eq!((self.rdma.state(), stage(&self.rdma)), (State::Rts, Stage::Open));
        cable.run_until(|| self.bytes.state() == State::Err);
        assert_eq!(self.bytes.state(), State::Err);
    }
}

/// Returns two ends with a connection that carries bytes.
fn sides(cable: &Cable, push: bool) -> (Side, Side) {
    let (a, b) = connected(cable, push);
    let a = Side::new(a, &b);
    let b = Side::new(b, &a.bytes);
    (a, b)
}

/// Sends a message, and checks that it arrives.
#[track_caller]
fn exchange(cable: &Cable, from: &mut Side, to: &mut Side, round: usize) {
    let data = pattern(900, round);
    from.rdma.fill(0, &data);
    let write =
        Wr::new(Opcode::Write, &[from.rdma.sge(0, 900)]).to(to.rdma.buffer + 10_000, to.rdma.key);
    assert_eq!(status(&cable.complete(&mut from.rdma, &write)), Status::Success);
    let wr = Wr::new(Opcode::Send, &[from.rdma.sge(0, 900)]);
    assert_eq!(status(&cable.complete(&mut from.rdma, &wr)), Status::Success);
    assert_eq!(received(cable, &mut to.rdma), 900);
    assert!(to.rdma.bytes(4000, 900) == data && to.rdma.bytes(10_000, 900) == data);
    let read = Wr::new(Opcode::Read, &[from.rdma.sge(20_000, 900)])
        .to(to.rdma.buffer + 10_000, to.rdma.key);
    assert_eq!(status(&cable.complete(&mut from.rdma, &read)), Status::Success);
    assert!(from.rdma.bytes(20_000, 900) == data);
}

#[test]
fn a_connection_goes_on_with_messages() {
    for (seed, faults) in [(1, Faults::default()), (2, Faults::all(20_000))] {
        let cable = cable(seed, faults);
        let (mut a, mut b) = sides(&cable, false);
        // A greeting in each direction.
        for round in 0..3 {
            let data = pattern(3000, round);
            a.bytes.fill(0, &data);
            b.bytes.post_recv(1, &[b.bytes.sge(50_000, 3000)]);
            send(&mut a.bytes, 0, 3000);
            assert_eq!(received(&cable, &mut b.bytes), 3000);
            assert!(b.bytes.bytes(50_000, 3000) == data);
            assert_eq!(sent(&cable, &mut a.bytes), Status::Success);
        }
        // Receives that are posted come back without bytes.
        for nth in 0..3 {
            b.bytes.post_recv(10 + nth, &[b.bytes.sge(0, 100)]);
        }
        b.start().expect("START_RDMA");
        for nth in 0..3 {
            let cqe = wait(&cable, &mut b.bytes, |on| on.recv_cq.poll());
            let told = (status(&cqe), cqe.byte_len.get(), cqe.wr_id.get());
            assert_eq!(told, (Status::Success, 0, 10 + nth));
        }
        // The last bytes, which let the other end begin.
        a.bytes.post_recv(1, &[a.bytes.sge(0, 5)]);
        send(&mut b.bytes, 0, 5);
        assert_eq!(received(&cable, &mut a.bytes), 5);
        assert_eq!(sent(&cable, &mut b.bytes), Status::Success);
        a.start().expect("START_RDMA");
        a.post_first();
        b.post_first();
        a.opened(&cable);
        b.opened(&cable);
        let events: Vec<_> = std::iter::from_fn(|| cable.ga.event()).collect();
        assert!(events.contains(&(Kind::CommEstablished, a.rdma.qpn)), "{events:?}");
        exchange(&cable, &mut a, &mut b, 7);
        exchange(&cable, &mut b, &mut a, 8);
        for round in 0..5 {
            b.post_first();
            exchange(&cable, &mut a, &mut b, round);
        }
        assert_eq!(cable.ga.query_connection(a.rdma.qpn).expect("it has one").ird.get(), READS);
        a.rdma.set_state(State::Sqd);
        cable.run_until(|| {
            b.rdma.state() == State::Err && stage(&b.rdma) as u8 >= Stage::Closed as u8
        });
        assert_eq!(ending(&b.rdma), Ending::Graceful);
    }
}

/// What TCP has counted before messages begin is not counted again.
#[test]
fn segments_that_were_sent_again_are_counted_once() {
    let cable = cable(5, Faults::default());
    let (mut a, mut b) = sides(&cable, false);
    b.bytes.post_recv(1, &[b.bytes.sge(0, 8)]);
    cable.links[0].borrow_mut().rule(|_| Fate::Drop);
    send(&mut a.bytes, 0, 8);
    pass(&cable, 3000 * MS);
    cable.links[0].borrow_mut().rule(|_| Fate::Pass);
    assert_eq!(received(&cable, &mut b.bytes), 8);
    assert_eq!(sent(&cable, &mut a.bytes), Status::Success);
    let count = || {
        let stats = cable.ga.adapter.stats();
        (stats.get(Counter::TcpRetransSegs), stats.get(Counter::TcpTimeouts))
    };
    let before = count();
    assert!(before.0 > 0 && before.1 > 0, "{before:?}");
    for side in [&mut a, &mut b] {
        side.start().expect("START_RDMA");
        side.post_first();
    }
    a.opened(&cable);
    b.opened(&cable);
    exchange(&cable, &mut a, &mut b, 1);
    assert_eq!(count(), before);
}

/// Lets `a` begin, and `b` not yet. Returns the ends, and the data of the two messages that `a` has
/// sent.
fn half_begun(cable: &Cable, push: bool, posted: u64) -> (Side, Side, Vec<u8>) {
    let (mut a, mut b) = sides(cable, push);
    for nth in 0..posted {
        b.bytes.post_recv(nth, &[b.bytes.sge(50_000, 20_000)]);
    }
    a.start().expect("START_RDMA");
    a.post_first();
    a.opened(cable);
    let data = pattern(900, 3);
    a.rdma.fill(0, &data);
    let write = Wr::new(Opcode::Write, &[a.rdma.sge(0, 900)]);
    a.rdma.post_send(&write.to(b.rdma.buffer + 10_000, b.rdma.key));
    a.rdma.post_send(&Wr::new(Opcode::Send, &[a.rdma.sge(0, 900)]));
    pass(cable, 20 * MS);
    (a, b, data)
}

#[track_caller]
fn both_messages_arrive(cable: &Cable, a: &mut Side, b: &mut Side, data: &[u8]) {
    assert_eq!(received(cable, &mut b.rdma), 900);
    assert!(b.rdma.bytes(4000, 900) == data && b.rdma.bytes(10_000, 900) == data);
    assert_eq!(
        (sent(cable, &mut a.rdma), sent(cable, &mut a.rdma)),
        (Status::Success, Status::Success)
    );
    b.post_first();
    exchange(cable, a, b, 9);
    a.post_first();
    exchange(cable, b, a, 10);
    assert_eq!(cable.gb.adapter.connection_memory().free(), CONNECTION_MEMORY);
}

/// Bytes of messages that arrive before the transition belong to the messages, whether TCP or the
/// program has them.
#[test]
fn bytes_from_before_belong_to_messages() {
    let cable = cable(3, Faults::default());
    let (mut a, mut b, data) = half_begun(&cable, false, 0);
    b.start().expect("START_RDMA");
    b.post_first();
    b.opened(&cable);
    both_messages_arrive(&cable, &mut a, &mut b, &data);
}

#[test]
fn bytes_that_the_program_has_read_belong_to_messages() {
    let cable = cable(4, Faults::default());
    let (mut a, mut b, data) = half_begun(&cable, true, 1);
    let len = received(&cable, &mut b.bytes);
    assert!(len > 900, "{len}");
    b.start_with(50_000, len as u32).expect("START_RDMA");
    let memory = cable.gb.adapter.connection_memory();
    assert!(memory.free() <= CONNECTION_MEMORY - len);
    b.post_first();
    b.opened(&cable);
    both_messages_arrive(&cable, &mut a, &mut b, &data);
}

/// Bytes that the kernel and the program had received stay counted until the messages in them have
/// been processed.
#[test]
fn early_bytes_are_counted_after_the_transition() {
    const RECEIVED: u32 = 5000;
    let cable = cable(8, Faults::default());
    let (a, b) = apart(&cable, false);
    let early = RECEIVED_MAX as usize;
    stream::open_toe(&a, 0, cable.gb.mac(), &[]).expect("OPEN_CONNECTION");
    // Two SENDs without CRCs, of which the second one finds no receive.
    let message = |number: u8| {
        let mut fpdu = vec![0; 28];
        fpdu[..4].copy_from_slice(&[0, 20, 0x41, 0x43]);
        fpdu[15] = number;
        fpdu
    };
    let mut bytes = [message(1), message(2)].concat();
    bytes.resize(early, 0);
    stream::open_toe(&b, 1, cable.ga.mac(), &bytes).expect("OPEN_CONNECTION");
    let mut b = Side::new(b, &a);
    // Some of them are in a receive, and so no longer in the adapter.
    b.bytes.post_recv(1, &[b.bytes.sge(0, RECEIVED)]);
    assert_eq!(received(&cable, &mut b.bytes), RECEIVED as usize);
    b.bytes.fill(0, &bytes[..RECEIVED as usize]);
    let received_here =
        Received { addr: b.bytes.buffer.into(), len: RECEIVED.into(), reserved: 0.into() };
    let params = StartRdma { received: received_here, flags: 0.into(), ..b.params() };
    b.bytes.guest.command::<command::StartRdma>(&params).expect("START_RDMA");
    let memory = cable.gb.adapter.connection_memory();
    assert_eq!(memory.free(), CONNECTION_MEMORY - early - RECEIVED as usize);
    b.post_first();
    assert_eq!(received(&cable, &mut b.rdma), 2);
    assert_eq!(memory.free(), CONNECTION_MEMORY - early);
    b.rdma.set_state(State::Reset);
    assert_eq!(memory.free(), CONNECTION_MEMORY);
}

/// Between the beginning and the first receive, TCP acknowledges and stores what arrives.
#[test]
fn the_first_receive_may_come_late() {
    let cable = cable(5, Faults::default());
    let (mut a, mut b) = sides(&cable, false);
    b.start().expect("START_RDMA");
    a.start().expect("START_RDMA");
    a.post_first();
    a.opened(&cable);
    let data = pattern(900, 3);
    a.rdma.fill(0, &data);
    let write = Wr::new(Opcode::Write, &[a.rdma.sge(0, 900)]);
    a.rdma.post_send(&write.to(b.rdma.buffer + 10_000, b.rdma.key));
    a.rdma.post_send(&Wr::new(Opcode::Send, &[a.rdma.sge(0, 900)]));
    pass(&cable, 3000 * MS);
    // TCP's acknowledgement also acknowledges the messages, because they are in the peer's adapter.
    assert_eq!(status(&wait(&cable, &mut a.rdma, |on| on.send_cq.poll())), Status::Success);
    assert_eq!((b.rdma.state(), stage(&b.rdma)), (State::Init, Stage::Opening));
    assert!(b.rdma.bytes(10_000, 900) == [0; 900]);
    b.post_first();
    b.opened(&cable);
    assert_eq!(received(&cable, &mut b.rdma), 900);
    assert!(b.rdma.bytes(4000, 900) == data && b.rdma.bytes(10_000, 900) == data);
    assert_eq!(sent(&cable, &mut a.rdma), Status::Success);
    b.post_first();
    exchange(&cable, &mut a, &mut b, 9);
}

/// No byte of the program is handed over: the transition waits for the acknowledgement of the last
/// ones.
#[test]
fn the_transition_waits_for_the_last_bytes() {
    let cable = cable(6, Faults::default());
    let (mut a, mut b) = sides(&cable, false);
    cable.links[1].borrow_mut().rule(|_| Fate::Drop);
    b.start().expect("START_RDMA");
    send(&mut b.bytes, 0, 5);
    b.post_first();
    pass(&cable, 500 * MS);
    assert_eq!((b.rdma.state(), b.bytes.state()), (State::Init, State::Rts));
    a.bytes.post_recv(1, &[a.bytes.sge(0, 5)]);
    cable.links[1].borrow_mut().rule(|_| Fate::Pass);
    assert_eq!(received(&cable, &mut a.bytes), 5);
    assert_eq!(sent(&cable, &mut b.bytes), Status::Success);
    b.opened(&cable);
    a.start().expect("START_RDMA");
    a.post_first();
    a.opened(&cable);
    exchange(&cable, &mut a, &mut b, 1);
}

/// Bytes that were placed in receives before those in front of them are not acknowledged: the peer
/// sends them again, as messages.
#[test]
fn bytes_that_were_placed_early_arrive_again() {
    let cable = cable(7, Faults::default());
    let (mut a, mut b) = sides(&cable, false);
    b.bytes.post_recv(1, &[b.bytes.sge(0, 10)]);
    b.bytes.post_recv(2, &[b.bytes.sge(50_000, 100_000)]);
    a.start().expect("START_RDMA");
    a.post_first();
    a.opened(&cable);
    let mut first = true;
    cable.links[0].borrow_mut().rule(move |bytes| {
        let data = matches!(TcpFrame::parse(bytes), Ok(Some(it)) if !it.segment.payload.is_empty());
        if data && std::mem::replace(&mut first, false) { Fate::Drop } else { Fate::Pass }
    });
    let data = pattern(40_000, 5);
    a.rdma.fill(0, &data);
    let write = Wr::new(Opcode::Write, &[a.rdma.sge(0, 40_000)]);
    a.rdma.post_send(&write.to(b.rdma.buffer, b.rdma.key));
    let mut early = 0;
    cable.run_until(|| {
        early = b.bytes.bytes(50_000, 100_000).iter().filter(|byte| **byte != 0).count();
        early > 1000
    });
    assert!(early > 1000, "nothing was placed early");
    b.start().expect("START_RDMA");
    b.post_first();
    b.opened(&cable);
    assert_eq!(sent(&cable, &mut a.rdma), Status::Success);
    assert!(b.rdma.bytes(0, 40_000) == data);
}

/// The peer may know that it may send before this end has its last receive: whatever is lost, and
/// whenever each end begins, each message arrives once.
#[test]
fn each_order_of_events_works() {
    for seed in 0..40_u64 {
        let cable = cable(100 + seed, Faults::all(30_000));
        let (mut a, mut b) = sides(&cable, false);
        a.bytes.post_recv(1, &[a.bytes.sge(0, 2000)]);
        b.start().expect("START_RDMA");
        if seed & 1 != 0 {
            b.post_first();
        }
        send(&mut b.bytes, 0, 2000);
        if seed & 2 != 0 {
            pass(&cable, (seed % 7) * MS);
        }
        if seed & 1 == 0 && seed & 4 == 0 {
            b.post_first();
        }
        assert_eq!(received(&cable, &mut a.bytes), 2000, "{seed}");
        a.start().expect("START_RDMA");
        a.post_first();
        a.opened(&cable);
        let data = pattern(30_000, seed as usize);
        a.rdma.fill(20_000, &data);
        let write = Wr::new(Opcode::Write, &[a.rdma.sge(20_000, 30_000)]);
        a.rdma.post_send(&write.to(b.rdma.buffer + 20_000, b.rdma.key));
        pass(&cable, (seed % 5) * MS);
        if seed & 1 == 0 && seed & 4 != 0 {
            b.post_first();
        }
        b.opened(&cable);
        assert_eq!(sent(&cable, &mut a.rdma), Status::Success, "{seed}");
        assert!(b.rdma.bytes(20_000, 30_000) == data, "{seed}");
        exchange(&cable, &mut a, &mut b, 1);
        exchange(&cable, &mut b, &mut a, 2);
    }
}

/// Frames that have arrived for the QP that carried bytes, and that it has not seen, are for the
/// one that has the connection now.
#[test]
fn frames_under_way_follow_the_connection() {
    let cable = cable(21, Faults::default());
    let (_a, mut b) = sides(&cable, false);
    pass(&cable, MS);
    b.start().expect("START_RDMA");
    b.post_first();
    // More than a poll takes. The last one has a malformed message.
    for _ in 0..500 {
        let _taken = cable.gb.adapter.offer(Frame::new(segment(&cable, 0, 0, 0, Flags::ACK, &[])));
    }
    let _taken = cable.gb.adapter.offer(Frame::new(segment(&cable, 0, 0, 0, Flags::PSH, &[0; 64])));
    cable.gb.adapter.poll(0);
    assert_eq!(b.rdma.state(), State::Rts);
    while cable.gb.adapter.poll(0).busy {}
    assert_eq!((b.rdma.state(), ending(&b.rdma)), (State::Err, Ending::TerminateSent));
}
