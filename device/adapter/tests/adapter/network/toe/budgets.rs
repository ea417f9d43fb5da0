//! What is counted in the memory for connections is what they keep, whatever happens to them, for
//! each kind: bytes, RDMA after bytes, RDMA from the beginning, and iSCSI.
//!
//! Shows: tcp

use proptest::prelude::*;
use vrnic_abi::admin::{QpFlags, StartRdma, command};
use vrnic_abi::connection::{Connection, RECEIVED_MAX, Received, StartFlags};
use vrnic_abi::iscsi::{Device, SetIscsi};
use vrnic_abi::qp::{Attr, AttrMask, State, Type};
use vrnic_adapter::ethernet::Frame;
use vrnic_adapter::limits::CONNECTION_MEMORY;
use vrnic_adapter::objects::qp::Path;
use vrnic_simlink::Faults;
use vrnic_tcp::SeqNum;
use vrnic_tcp::wire::{Flags, Header, Options};
use vrnic_testdriver::qp::{Setup, TO_RTS, attributes};
use vrnic_testdriver::stream;

use super::{cable, pass, send, setup};
use crate::bus::{Endpoint, Guest};
use crate::cable::Cable;
use crate::network::streams::ends::frame_of;
use crate::network::streams::pattern;

const MS: u64 = 1_000_000;
/// Where the region has bytes that a program has received.
const RECEIVED_AT: u64 = 1 << 20;
/// Bytes of the region of each end.
const REGION: u64 = 2 << 20;
/// Bytes of a receive of the peer.
const LENGTH: u32 = 20_000;

/// The kind of a connection at its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Bytes,
    Messages,
    Iscsi,
}

/// What happens to a connection.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A receive is posted: to the QP that gets the connection for RDMA, or else to the first one.
    Post {
        next: bool,
        len: u32,
    },
    Send(u32),
    /// The peer sends bytes.
    Say(u32),
    /// A segment arrives, and those in front of it do not.
    Gap {
        at: u32,
        len: usize,
    },
    /// RDMA begins, with bytes that the program has received.
    Start {
        received: u32,
        markers: bool,
    },
    /// One of the two QPs goes to another state.
    Change {
        next: bool,
        state: State,
    },
}

fn any_step() -> impl Strategy<Value = Step> {
    let state = prop::sample::select(vec![State::Sqd, State::Err, State::Err, State::Reset]);
    prop_oneof![
        4 => (any::<bool>(), 1..9000u32).prop_map(|(next, len)| Step::Post { next, len }),
        2 => (1..3000u32).prop_map(Step::Send),
        3 => (1..9000u32).prop_map(Step::Say),
        1 => (1..40_000u32, 1..1460_usize).prop_map(|(at, len)| Step::Gap { at, len }),
        2 => (0..=RECEIVED_MAX, any::<bool>())
            .prop_map(|(received, markers)| Step::Start { received, markers }),
        1 => (any::<bool>(), state).prop_map(|(next, state)| Step::Change { next, state }),
    ]
}

fn any_mode() -> impl Strategy<Value = (Mode, usize)> {
    let early = prop_oneof![Just(0), 1..5000_usize, Just(RECEIVED_MAX as usize)];
    let modes = vec![Mode::Bytes, Mode::Bytes, Mode::Messages, Mode::Iscsi];
    (prop::sample::select(modes), early)
}

/// Returns how many bytes of the memory for connections are counted.
fn counted(guest: &Guest) -> usize {
    CONNECTION_MEMORY - guest.adapter.connection_memory().free()
}

/// The memory of the connection of a QP.
struct Taken {
    /// Bytes that it keeps without work.
    kept: usize,
    /// Bytes that are counted for it.
    charged: usize,
    /// True if it has no work request.
    is_idle: bool,
}

fn taken(end: &Endpoint) -> Taken {
    let qp = end.guest.adapter.qp(end.qpn).expect("it exists");
    let mut requester = qp.requester.lock();
    let is_idle = requester.path.outstanding().is_none_or(|requests| requests.is_empty());
    let kept = match &requester.path {
        Path::Tcp(tcp) => tcp.kept(),
        _ => 0,
    };
    Taken { kept, charged: requester.path.charged(), is_idle }
}

/// Sets the iSCSI mode of a QP.
fn set_mode(end: &Endpoint) {
    let parameters = SetIscsi {
        qpn: end.qpn.into(),
        max_receive: 8192.into(),
        max_send: 4096.into(),
        max_burst: (64 << 10).into(),
        flags: 0,
        device: Device::Disk as u8,
        reserved: [0; 2],
    };
    end.guest.command::<command::SetIscsi>(&parameters).expect("SET_ISCSI");
}

/// A connection of guest B, and its peer at A.
struct Line {
    nth: u16,
    peer: Endpoint,
    first: Endpoint,
    next: Endpoint,
}

impl Line {
    fn new(cable: &Cable, nth: u16, mode: Mode, early: usize) -> Self {
        let peer = Endpoint::new(&cable.ga, Setup { region: REGION, ..setup(true) });
        let kind = if mode == Mode::Messages { Type::Rc } else { Type::Toe };
        let (flags, kernel) = (QpFlags::empty(), true);
        let first =
            Endpoint::new(&cable.gb, Setup { kind, flags, kernel, region: REGION, ..setup(false) });
        let next = first.beside(|params| params.qp_type = Type::Rc as u8);
        let mut line = Self { nth, peer, first, next };
        line.open(mode, early);
        line.listen();
        line
    }

    /// Returns the connection as an end sees it.
    fn state(&self, number: usize, mode: Mode) -> Connection {
        let macs = [self.peer.guest.mac(), self.first.guest.mac()];
        let macs = [macs[number], macs[1 - number]];
        let mut state = stream::bare_connection(number, macs, stream::MSS);
        let request = stream::request().len() as u32;
        match (mode, number) {
            (Mode::Messages, 0) => state.send_next = (state.send_next.get() + request).into(),
            (Mode::Messages, _) => state = stream::connection(number, macs, stream::MSS),
            _ => {}
        }
        for port in [&mut state.local_port, &mut state.remote_port] {
            *port = (port.get() + self.nth).into();
        }
        state
    }

    fn open(&mut self, mode: Mode, early: usize) {
        for end in [&self.peer, &self.first, &self.next] {
            let to = if end.qpn == self.peer.qpn { &self.first } else { &self.peer };
            end.guest.take_through(end.qpn, attributes(to.guest.mac(), 0), &TO_RTS[..1]);
        }
        let (peer, first) = (&self.peer, &self.first);
        peer.guest.open_toe(peer.qpn, &self.state(0, mode), &[]).expect("OPEN_CONNECTION");
        if mode == Mode::Iscsi {
            set_mode(first);
        }
        let state = self.state(1, mode);
        match mode {
            Mode::Messages => first.guest.open_connection(first.qpn, &state),
            _ => first.guest.open_toe(first.qpn, &state, &pattern(early, 3)),
        }
        .expect("OPEN_CONNECTION");
    }

    /// Posts receives of the peer.
    fn listen(&mut self) {
        let sge = self.peer.sge(0, LENGTH);
        (0..30).for_each(|_| self.peer.post_recv(1, &[sge]));
    }

    /// Takes completions. The peer posts its receives again.
    fn poll(&mut self) {
        while self.peer.recv_cq.poll().is_some() {
            self.peer.post_recv(1, &[self.peer.sge(0, LENGTH)]);
        }
        while self.peer.send_cq.poll().is_some() {}
        for end in [&mut self.first, &mut self.next] {
            while end.send_cq.poll().is_some() || end.recv_cq.poll().is_some() {}
        }
    }

    fn take(&mut self, cable: &Cable, step: Step) {
        match step {
            Step::Post { next, len } => {
                let end = if next { &mut self.next } else { &mut self.first };
                if end.state() != State::Reset {
                    end.post_recv(1, &[end.sge(0, len)]);
                }
            }
            Step::Send(len) if self.first.state() == State::Rts => send(&mut self.first, 0, len),
            Step::Say(len) if self.peer.state() == State::Rts => {
                // The beginning of a long FPDU.
                self.peer.fill(0, &[5, 0x70]);
                send(&mut self.peer, 0, len);
            }
            Step::Gap { at, len } => {
                let own = self.state(0, Mode::Bytes);
                let header = Header {
                    seq: SeqNum(own.send_next.get()).plus(at),
                    ack: SeqNum(own.receive_next.get()),
                    flags: Flags::ACK,
                    window: 8192,
                    options: Options::default(),
                };
                let frame = frame_of(&own, &header, &vec![7; len]);
                let _taken = cable.gb.adapter.offer(Frame::new(frame));
            }
            Step::Start { received, markers } => self.start(received, markers),
            Step::Change { next, state } => {
                let end = if next { &mut self.next } else { &mut self.first };
                if state == State::Reset {
                    return end.set_state(state);
                }
                let attr = Attr { state: state as u8, ..Attr::default() };
                let _may_be_refused = end.guest.modify_qp(end.qpn, AttrMask::STATE, &attr);
            }
            Step::Send(_) | Step::Say(_) => {}
        }
    }

    fn start(&self, received: u32, markers: bool) {
        let addr = self.first.buffer + RECEIVED_AT;
        let flags = if markers { StartFlags::RECEIVE_MARKERS } else { StartFlags::empty() };
        let params = StartRdma {
            received: Received { addr: addr.into(), len: received.into(), reserved: 0.into() },
            from: self.first.qpn.into(),
            to: self.next.qpn.into(),
            flags: flags.bits().into(),
            ..StartRdma::default()
        };
        let _may_be_refused = self.first.guest.command::<command::StartRdma>(&params);
    }
}

/// Checks what is counted against what all connections of B have taken, and that against what they
/// keep.
fn check(cable: &Cable, lines: &[Line], what: &str) -> Result<(), TestCaseError> {
    let mut sum = 0;
    for end in lines.iter().flat_map(|line| [&line.first, &line.next]) {
        let Taken { kept, charged, is_idle } = taken(end);
        prop_assert!(kept <= charged, "{what}: {kept} bytes are kept, and {charged} counted");
        if is_idle && what == "later" {
            prop_assert_eq!(kept, charged, "{}: bytes of an idle connection", what);
        }
        sum += charged;
    }
    prop_assert_eq!(counted(&cable.gb), sum, "{}: what all connections have taken", what);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_connections_keep_is_counted(
        modes in prop::collection::vec(any_mode(), 1..4),
        steps in prop::collection::vec((0..3_usize, any_step(), 0..3u64), 0..40),
    ) {
        let cable = cable(1, Faults::default());
        let mut lines: Vec<_> = (0..)
            .zip(modes)
            .map(|(nth, (mode, early))| Line::new(&cable, nth, mode, early))
            .collect();
        check(&cable, &lines, "at first")?;
        for (nth, step, time) in steps {
            let nth = nth % lines.len();
            lines[nth].take(&cable, step);
            check(&cable, &lines, &format!("after {step:?}"))?;
            pass(&cable, time * MS);
            check(&cable, &lines, &format!("some time after {step:?}"))?;
            lines.iter_mut().for_each(Line::poll);
            if time == 2 {
                pass(&cable, 500 * MS);
                check(&cable, &lines, "later")?;
            }
        }
    }
}
