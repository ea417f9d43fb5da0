//! A host: its port, its connections, and a receive queue that may be slow.

use std::collections::VecDeque;

use vrnic_lanes::{Class, Config, Frame as _, Lanes, Mapping, Next, PauseFrame};
use vrnic_packet::{Nanos, Rate};
use vrnic_roce::wire;

use crate::flow::{Receiving, Sending, mac};
use crate::load::Load;

/// Number of frames of a class that a host queues. More would only wait.
const QUEUED: usize = 2;

/// A host.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) port: Lanes<Load>,
    mapping: Mapping,
    pub(crate) sending: Vec<Sending>,
    pub(crate) receiving: Vec<Receiving>,
    /// The connection that sends next.
    turn: usize,
    /// The rate at which packets of class 3 are taken, if there is a limit.
    pace: Option<Rate>,
    /// The packets that wait to be taken.
    arrived: VecDeque<Load>,
    take_at: Nanos,
    /// Frames of class 3 that were dropped.
    pub(crate) lost: u64,
}

impl Host {
    pub(crate) fn new(number: usize, config: Config, pace: Option<Rate>) -> Self {
        Self {
            port: Lanes::new(config, mac(number)).expect("a configuration"),
            mapping: Mapping::default(),
            sending: Vec::new(),
            receiving: Vec::new(),
            turn: 0,
            pace,
            arrived: VecDeque::new(),
            take_at: Nanos::default(),
            lost: 0,
        }
    }

    /// Receives a frame from the wire.
    pub(crate) fn receive(&mut self, now: Nanos, frame: Load) {
        if let Some(pause) = PauseFrame::parse(&frame.0) {
            self.port.obey(now, &pause);
            return;
        }
        let class = self.mapping.class_of(&frame.0);
        if self.pace.is_none() || class != Class::ROCE {
            self.take(now, &frame);
        } else if self.port.arrived(class, frame.memory()) {
            self.arrived.push_back(frame);
        } else {
            self.lost += 1;
        }
    }

    /// Does what is due. Passes frames that leave to `send`. Returns the time at which there is
    /// something to do.
    pub(crate) fn serve(&mut self, now: Nanos, mut send: impl FnMut(Load)) -> Option<Nanos> {
        self.take_arrived(now);
        for flow in &mut self.sending {
            flow.expire(now);
        }
        let wait = loop {
            self.fill(now);
            match self.port.pop(now) {
                Next::Frame(_, frame) => send(frame),
                Next::Pause(pause) => send(Load(pause.bytes().to_vec())),
                Next::Dropped(class, _) => self.lost += u64::from(class == Class::ROCE),
                Next::Wait(at) => break Some(at),
                Next::Nothing => break None,
            }
        };
        let deadlines = self.sending.iter().filter_map(|flow| flow.deadline(now));
        let take_at = Some(self.take_at).filter(|_| !self.arrived.is_empty());
        wait.into_iter().chain(deadlines).chain(take_at).min()
    }

    /// Takes packets at the rate of the host.
    fn take_arrived(&mut self, now: Nanos) {
        while let Some(rate) = self.pace
            && self.take_at <= now
            && let Some(frame) = self.arrived.pop_front()
        {
            self.take_at = self.take_at.max(now).plus(rate.time(frame.bytes().into()));
            self.port.left(Class::ROCE, frame.memory());
            self.take(now, &frame);
        }
    }

    /// Gives a packet to its connection.
    fn take(&mut self, now: Nanos, frame: &Load) {
        let parsed = wire::Frame::parse(&frame.0).ok().flatten();
        let Some(parsed) = parsed else { return };
        let Ok(packet) = parsed.packet() else { return };
        let qpn = packet.head.destination;
        if packet.request().is_some() {
            let flow = self.receiving.iter_mut().find(|flow| flow.numbers.qpn == qpn);
            let answers = flow.map(|flow| flow.receive(now, &parsed, &packet)).unwrap_or_default();
            answers.into_iter().for_each(|answer| self.queue(answer));
        } else if let Some(flow) = self.sending.iter_mut().find(|flow| flow.numbers.qpn == qpn) {
            flow.receive(now, &packet);
        }
    }

    fn queue(&mut self, frame: Load) {
        let class = self.mapping.class_of(&frame.0);
        let dropped = self.port.push(class, frame).is_err();
        self.lost += u64::from(dropped && class == Class::ROCE);
    }

    /// Queues packets of the connections in turn, as many as the port sends soon.
    fn fill(&mut self, now: Nanos) {
        let mut idle = 0;
        while idle < self.sending.len() {
            self.turn = (self.turn + 1) % self.sending.len();
            let Some(flow) = self.sending.get_mut(self.turn) else { return };
            let room = self.port.waiting(flow.numbers.class) < QUEUED;
            match room.then(|| flow.next(now)).flatten() {
                Some(frame) => {
                    idle = 0;
                    self.queue(frame);
                }
                None => idle += 1,
            }
        }
    }
}
