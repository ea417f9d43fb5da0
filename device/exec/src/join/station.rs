//! An adapter at its port of the switch. Frames about addresses are for what stands for the
//! kernel's network stack here, all others for the adapter.

use std::sync::Arc;

use vrnic_adapter::adapter::Adapter;
use vrnic_adapter::ethernet::{Frame, Offered, Uplink};
use vrnic_control::capture::Captures;

use super::neighbors::Neighbors;
use super::resolution;
use crate::adapter::host::ProcessHost;
use crate::adapter::switch::Port;

/// An adapter, and what its frames are shown to.
#[derive(Debug)]
pub struct Station {
    /// The adapter.
    pub adapter: Arc<Adapter<ProcessHost>>,
    /// The addresses of all stations.
    pub neighbors: Arc<Neighbors>,
    /// The way of answers.
    pub uplink: Arc<dyn Uplink>,
    /// The captures of the run.
    pub captures: Arc<Captures>,
}

impl Port for Station {
    fn offer(&self, frame: Frame) -> Offered {
        self.captures.frame(self.adapter.name(), frame.bytes(), || self.adapter.note(&frame));
        let Some(heard) = resolution::parse(frame.bytes()) else {
            return self.adapter.offer(frame);
        };
        let mac = self.adapter.mac();
        if let Some(answer) = self.neighbors.hear(mac.0, &heard) {
            self.captures.frame(self.adapter.name(), answer.bytes(), || None);
            self.uplink.send(mac, &mut vec![answer]);
        }
        Offered::Taken
    }

    fn has_room(&self) -> bool {
        self.adapter.has_frame_room()
    }
}
