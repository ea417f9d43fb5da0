//! The agent: a process that owns verbs objects and runs the suite's calls on them. The suite runs
//! one or more agents on each side, each of which is a process with its own context.
//!
//! | module | what |
//! | --- | --- |
//! | [`calls`] | the macro that declares calls |
//! | [`process`] | the main loop, the watchdog |
//! | [`objects`] | tables of objects by handle |
//! | [`device`] | the device, its counters and clocks |
//! | [`buffers`] | buffers: filling, comparing |
//! | [`memory`] | protection domains, regions, windows |
//! | [`completions`] | completion queues, channels, events |
//! | [`connections`] | connections by the connection manager |
//! | [`shared_queues`] | shared receive queues; XRC domains and targets |
//! | [`queue_pairs`] | queue pairs, address handles, multicast groups, posting |
//! | [`raw`] | flows of QPs of raw packets, sockets |
//! | [`work_queues`] | work queues, and QPs that spread frames over them |
//! | [`streams`] | loops that keep the device busy without a round trip for each step |
//! | [`direct`] | verbs that only vrnic has, and hostile actions |

mod buffers;
mod calls;
mod completions;
mod connections;
mod device;
#[cfg(feature = "vrnic")]
mod direct;
mod memory;
mod objects;
pub(crate) mod process;
mod queue_pairs;
mod raw;
mod shared_queues;
mod streams;
mod work_queues;

use std::io;

use serde::{Deserialize, Serialize};

use buffers::Buffers;
use completions::Completions;
use connections::Connections;
use device::Device;
#[cfg(feature = "vrnic")]
use direct::Direct;
use memory::Memory;
use objects::Objects;
use queue_pairs::QueuePairs;
use raw::RawPackets;
use shared_queues::SharedQueues;
use streams::Streams;
use work_queues::WorkQueues;

macro_rules! requests {
    ($($(#[$only:meta])? $calls:ident,)*) => {
        /// Any call.
        #[derive(Serialize, Deserialize)]
        enum Request { $($(#[$only])? $calls($calls),)* }

        impl Request {
            /// Executes the call, and sends the result.
            fn serve(self, on: &mut Objects, to: &mut impl io::Write) -> io::Result<()> {
                match self { $($(#[$only])? Self::$calls(call) => call.serve(on, to),)* }
            }
        }
    };
}

requests! {
    Buffers,
    Completions,
    Connections,
    Device,
    #[cfg(feature = "vrnic")]
    Direct,
    Memory,
    QueuePairs,
    RawPackets,
    SharedQueues,
    Streams,
    WorkQueues,
}
