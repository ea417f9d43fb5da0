//! Passes the traffic of adapters to the rules for faults and to captures.

use std::sync::Arc;

use vrnic_adapter::ethernet::Frame;
use vrnic_adapter::watch::{Exchanged, Sender, Watcher};

use crate::capture::Captures;
use crate::faults::Faults;

/// The observer of the adapters' traffic. Captures get frames when they leave, before faults apply,
/// and when they arrive.
#[derive(Debug)]
pub struct Traffic {
    /// The rules for faults.
    pub faults: Arc<Faults>,
    /// The captures.
    pub captures: Arc<Captures>,
}

impl Watcher for Traffic {
    fn leaving(&self, from: &Sender<'_>, frames: &mut Vec<Frame>) {
        for frame in &*frames {
            self.captures.frame(from.function, frame.bytes());
        }
        self.faults.leaving(from, frames);
    }

    fn arriving(&self, function: &str, frame: &Frame) {
        self.captures.frame(function, frame.bytes());
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
