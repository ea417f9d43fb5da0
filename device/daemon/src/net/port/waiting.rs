//! The frames of a port that wait in its lanes, and PFC frames in both directions.

use std::sync::Arc;

use vrnic_lanes::{Event, Next, PauseFrame};
use vrnic_packet::Nanos;

use super::Port;
use crate::net::account::Account;
use crate::net::frame::Frame;
use crate::net::lanes::PortLanes;
use crate::net::status::Reason;
use crate::net::uplinks::segments::cut::each_of;
use crate::worker::pool::now;

/// Number of bytes that wait behind the lanes for the line. More would leave out of turn.
const PASSED: usize = 64 << 10;
/// Maximum number of frames that are passed on at once.
const AT_ONCE: usize = 256;

/// The lanes of a port, and when they go on.
#[derive(Debug)]
pub(super) struct Waiting {
    lanes: PortLanes,
    /// The time at which the next frame may leave, if frames wait for that.
    due_at: Option<Nanos>,
}

impl Port {
    /// Sets the lanes of the port, or removes them. Frames that wait in the present lanes are
    /// passed on at once.
    pub fn set_lanes(&mut self, lanes: Option<PortLanes>) {
        if let Some(Waiting { lanes: before, .. }) = self.waiting.take() {
            before.drain().into_iter().for_each(|entry| {
                self.pass_on(entry.frame, entry.account.as_ref());
            });
        }
        self.status.end_pauses();
        self.status.set_lanes(lanes.clone());
        self.waiting = lanes.map(|lanes| Waiting { lanes, due_at: None });
    }

    /// Returns the lanes of the port.
    #[must_use]
    pub fn lanes(&self) -> Option<&PortLanes> {
        self.waiting.as_ref().map(|waiting| &waiting.lanes)
    }

    /// Returns the time at which [`Self::flush`] has something to do, if frames wait for that.
    #[must_use]
    pub fn due_at(&self) -> Option<Nanos> {
        let Waiting { lanes, due_at } = self.waiting.as_ref()?;
        // A full queue takes no PFC frame, and its line says when there is room.
        let pause_at = lanes.pause_at().filter(|_| self.queue.bytes() <= PASSED);
        pause_at.into_iter().chain(*due_at).min()
    }

    /// Returns whether the frames in the lanes wait for a time.
    pub(super) fn waits(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.due_at.is_some())
    }

    /// Queues a frame in the lanes. Returns whether they have grown.
    pub(super) fn enqueue(
        &mut self,
        lanes: &PortLanes,
        frame: Frame,
        account: Option<&Arc<Account>>,
        origin: Option<&PortLanes>,
    ) -> bool {
        let (mut grown, count) = (0, frame.count());
        // A frame that cannot be cut counts as dropped, too.
        let _counted = each_of(frame, |frame| {
            grown += usize::from(lanes.push(frame, account, origin));
        });
        if let Some(lost) = count.checked_sub(grown).filter(|lost| *lost > 0) {
            self.log().dropped(Reason::QueueFull, lost, |port| {
                tracing::warn!(port, "the lanes of a port are full; some frames were dropped");
            });
        }
        grown > 0
    }

    /// Passes on the frames whose turn it is. Returns whether more may follow at once.
    pub(super) fn release(&mut self) -> bool {
        let Some(waiting) = &mut self.waiting else { return false };
        waiting.due_at = None;
        let lanes = waiting.lanes.clone();
        let now = now();
        for _ in 0..AT_ONCE {
            if self.queue.bytes() > PASSED {
                break;
            }
            let due_at = match lanes.pop(now) {
                Next::Frame(_, entry) => {
                    self.pass_on(entry.frame, entry.account.as_ref());
                    continue;
                }
                Next::Pause(pause) => {
                    self.pause(now, &lanes, &pause);
                    continue;
                }
                Next::Dropped(..) => {
                    self.status.count_dropped(Reason::QueueFull, 1);
                    continue;
                }
                Next::Wait(at) => Some(at),
                Next::Nothing => None,
            };
            self.tell(&lanes);
            self.set_due(due_at);
            return false;
        }
        if self.queue.is_empty() {
            self.set_due(Some(now));
        }
        true
    }

    fn set_due(&mut self, at: Option<Nanos>) {
        if let Some(waiting) = &mut self.waiting {
            waiting.due_at = at;
        }
    }

    /// Pauses the station behind the port: an adapter by itself, and other stations by a frame.
    fn pause(&mut self, now: Nanos, lanes: &PortLanes, pause: &PauseFrame) {
        if self.setup.sink.is_some() {
            for (class, units) in pause.classes() {
                let until = (units > 0).then(|| now.plus(lanes.duration(units)));
                self.status.pause(class, until);
            }
        } else if self.up
            && let Ok(frame) = Frame::copy(&pause.bytes())
            && !self.put(frame, None)
        {
            lanes.not_sent(now, pause);
        }
    }

    /// Obeys a frame from the line if it is a PFC frame. Returns true if the frame has its effect,
    /// and must not be forwarded. A guest may not pause the network.
    #[must_use]
    pub fn obeys(&self, frame: &Frame) -> bool {
        let Some(lanes) = self.lanes() else { return false };
        if !PauseFrame::is_control(frame.bytes()) {
            return false;
        }
        match PauseFrame::parse(frame.bytes()).filter(|_| self.is_uplink()) {
            Some(pause) => lanes.obey(now(), &pause),
            None => self.status.count_dropped(Reason::Pause, 1),
        }
        true
    }

    /// Logs the events of the lanes.
    fn tell(&self, lanes: &PortLanes) {
        while let Some(event) = lanes.take_event() {
            self.log().line(|port| match event {
                Event::Stuck(class) => {
                    let class = class.number();
                    tracing::warn!(port, class, "the station behind the port has paused a class for too long; its frames are dropped until the pauses end");
                }
                Event::Recovered(class) => {
                    let class = class.number();
                    tracing::info!(port, class, "a class that was paused for too long works again");
                }
            });
        }
    }
}
