//! Random packets in each state of a connection: its own packets are lost, duplicated and
//! reordered, and forged packets come between them. At the end, all work requests complete.

use std::collections::VecDeque;

use vrnic_packet::Nanos;
use vrnic_roce::psn::Psn;
use vrnic_roce::requester::Recovery;
use vrnic_roce::wire::build::FRAME_MAX;
use vrnic_roce::wire::opcode::Transport;
use vrnic_roce::wire::{Body, Frame};

use crate::choices::{Choices, Shape};
use crate::end::{End, Events, Options};
use crate::frames;

/// Number of steps without faults in which all work must end.
const LAST_STEPS: usize = 1000;

/// Maximum number of answers of an end in each of these steps.
const LAST_REPLIES: usize = 64;
/// Nanoseconds of each of these steps, if packets are on their way.
const STEP: u64 = 50_000;

#[derive(Debug)]
struct Connection {
    options: Options,
    ends: [End; 2],
    /// Packets to each end.
    wires: [VecDeque<Shape>; 2],
    now: Nanos,
    /// Number of packets that were given to the ends.
    packets: u64,
}

/// Runs a connection as the bytes say. Returns the number of packets that were given to its ends,
/// and adds the counted events to `events`.
pub(crate) fn any_packets(bytes: &[u8], events: &mut Events) -> u64 {
    let mut choices = Choices(bytes);
    let mut connection = Connection::new(&mut choices);
    while !choices.is_empty() {
        let to = usize::from(choices.below(2));
        connection.step(to, &mut choices);
        connection.ends.iter_mut().for_each(End::complete);
    }
    connection.finish();
    connection.ends.iter().for_each(|end| end.note(events));
    connection.packets
}

impl Connection {
    fn new(choices: &mut Choices<'_>) -> Self {
        let transports = [Transport::Rc, Transport::Rc, Transport::Xrc, Transport::Uc];
        let options = Options {
            transport: transports[usize::from(choices.below(4))],
            hold: if choices.once_in(2) { 0 } else { 255 },
            recovery: if choices.once_in(2) { Recovery::GoBackN } else { Recovery::Leap },
            congestion_control: choices.once_in(2),
        };
        let psns = [Psn::new(0xff_ffe0 + u32::from(choices.byte())), Psn::new(choices.word())];
        let ends = [End::new(options, psns), End::new(options, [psns[1], psns[0]])];
        let (wires, now) = ([VecDeque::new(), VecDeque::new()], Nanos(1));
        Self { options, ends, wires, now, packets: 0 }
    }

    /// Executes one event at an end.
    fn step(&mut self, to: usize, choices: &mut Choices<'_>) {
        match choices.below(16) {
            0 => self.ends[to].post(choices),
            1 | 2 => {
                for _ in 0..choices.below(8) + 1 {
                    let Some(shape) = self.ends[to].next(self.now) else { break };
                    self.wires[1 - to].push_back(shape);
                }
            }
            3 | 4 => {
                for _ in 0..choices.below(8) + 1 {
                    let Some(shape) = self.ends[to].reply(choices) else { break };
                    self.wires[1 - to].push_back(shape);
                }
            }
            5..=8 => {
                for _ in 0..choices.below(4) + 1 {
                    let Some(shape) = self.wires[to].pop_front() else { break };
                    self.deliver(to, &shape, choices);
                }
            }
            9 => drop(self.wires[to].pop_front()),
            10 => {
                if let Some(shape) = self.wires[to].front().copied() {
                    self.deliver(to, &shape, choices);
                }
            }
            11 => self.wires[to].rotate_left(usize::from(self.wires[to].len() > 1)),
            12 => self.time(choices),
            13 => match choices.byte() {
                0..=16 => self.ends[to].requester.pause(true),
                17..=99 => self.ends[to].requester.pause(false),
                100 => self.ends[to].requester.fail(),
                101..=104 => self.ends[to].refuse(choices),
                _ => {}
            },
            _ => {
                let at = self.ends[to].psn(choices.once_in(2));
                let psn = choices.psn(at);
                let shape = choices.shape(self.options.transport, psn);
                self.deliver(to, &shape, choices);
            }
        }
    }

    fn time(&mut self, choices: &mut Choices<'_>) {
        let deadline = self.ends.iter().filter_map(|end| end.requester.deadline()).min();
        let nanos = match deadline {
            Some(deadline) if choices.once_in(4) => deadline.0,
            _ => self.now.0 + (u64::from(choices.byte()) << choices.below(12)),
        };
        self.now = Nanos(nanos.max(self.now.0));
        self.expire();
    }

    fn expire(&mut self) {
        self.ends.iter_mut().for_each(|end| end.requester.expire(self.now));
    }

    /// Gives a packet to an end. Some packets are first written into a frame and read from it.
    fn deliver(&mut self, to: usize, shape: &Shape, choices: &mut Choices<'_>) {
        self.packets += 1;
        if choices.byte() < 32 && !choices.is_empty() {
            through_a_frame(shape, choices);
        }
        let requests = match shape.body {
            Body::Request(_) => true,
            Body::Response(_) | Body::Congestion => false,
            Body::Datagram(_) => choices.once_in(2),
        };
        if requests {
            self.ends[to].request(shape, choices);
        } else {
            self.ends[to].answer(self.now, shape, choices);
        }
    }

    /// Goes on without faults until all work has completed.
    fn finish(&mut self) {
        let mut none = Choices(&[]);
        for end in &mut self.ends {
            end.requester.pause(false);
        }
        for step in 0..LAST_STEPS {
            for own in 0..2 {
                while let Some(shape) = self.wires[own].pop_front() {
                    self.deliver(own, &shape, &mut none);
                }
                // A forged READ may have millions of answers.
                for _ in 0..LAST_REPLIES {
                    let Some(shape) = self.ends[own].reply(&mut none) else { break };
                    self.wires[1 - own].push_back(shape);
                }
                while let Some(shape) = self.ends[own].next(self.now) {
                    self.wires[1 - own].push_back(shape);
                }
                self.ends[own].complete();
            }
            if self.ends.iter().all(End::is_done) {
                return;
            }
            let deadlines = self.ends.iter().filter_map(|end| end.requester.deadline());
            let next = match deadlines.min() {
                Some(deadline) if self.wires.iter().all(VecDeque::is_empty) => deadline.0,
                // A peer may have requested a long wait.
                _ if step > LAST_STEPS / 2 => self.now.0 + 100 * STEP,
                _ => self.now.0 + STEP,
            };
            self.now = Nanos(next.max(self.now.0));
            self.expire();
        }
        panic!("work does not end: {self:?}");
    }
}

/// Checks that a packet is the same after it was written into a frame and read from it.
fn through_a_frame(shape: &Shape, choices: &mut Choices<'_>) {
    let mut buffer = [0; FRAME_MAX];
    if let Some(end) = frames::write(&mut buffer, &choices.path(), shape) {
        let frame = Frame::parse(&buffer[..end]).expect("headers").expect("RoCE");
        let packet = frame.packet().expect("a packet");
        assert_eq!(
            (packet.head, packet.body, packet.payload.len()),
            (shape.head, shape.body, shape.length)
        );
    }
}
