//! Passes the traffic of adapters to the rules for faults and to captures.

use std::sync::Arc;

use vrnic_adapter::ethernet::Frame;
use vrnic_adapter::watch::{Exchanged, Sender, Watcher};

use crate::faults::Faults;
use crate::net::frame as net;
use crate::net::port::record;
use crate::net::uplinks::segments::cut::each_of;
use vrnic_control::capture::Captures;

/// The observer of the adapters' traffic. Captures get frames when they leave, before faults apply,
/// and when they arrive.
#[derive(Debug)]
pub struct Traffic {
    /// The rules for faults.
    pub faults: Arc<Faults>,
    /// The captures in progress.
    pub captures: Arc<Captures>,
}

/// Cuts joined frames, which were made just before the watcher wanted frames.
fn cut_joined(frames: &mut Vec<Frame>) {
    if frames.iter().all(|frame| frame.joint().is_none()) {
        return;
    }
    for frame in std::mem::take(frames) {
        if let Ok(frame) = net::Frame::try_from(frame) {
            // An adapter makes no frame that cannot be cut.
            let _whole = each_of(frame, |frame| frames.push(frame.into()));
        }
    }
}

impl Watcher for Traffic {
    fn leaving(&self, from: &Sender<'_>, frames: &mut Vec<Frame>) {
        cut_joined(frames);
        for frame in &*frames {
            self.captures.frame(from.function, frame.bytes(), || from.note(frame.bytes()));
        }
        self.faults.leaving(from, frames);
    }

    fn arriving(&self, function: &str, frame: &Frame, note: Option<String>) {
        if let Ok(frame) = net::Frame::try_from(frame.clone()) {
            record(&self.captures, function, &frame, || note);
        }
    }

    fn wants(&self, functions: [&str; 2], length: u64) -> bool {
        self.captures.wants(&functions, length)
    }

    fn exchanged(&self, functions: [&str; 2], message: Exchanged) {
        self.captures.message(&functions, message);
    }

    fn datagram(&self, from: &str, to: Option<&str>, frame: Frame) {
        self.captures.copied_frame(&[from, to.unwrap_or(from)], frame.bytes());
    }
}
