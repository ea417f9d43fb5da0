//! Frames of messages that were copied from one guest's memory to another's.

use std::collections::HashMap;

use vrnic_adapter::watch::Exchanged;
use vrnic_packet::Ethernet;
use vrnic_packet::Nanos;
use vrnic_packet::ip::{self, Addresses};
use vrnic_pcap::{Conversation, Message, Parties};
use vrnic_roce::requester::Rejected;
use vrnic_roce::wire::Path;

/// Maximum number of connections whose sequence numbers are kept. When one more is added, all are
/// forgotten, and their numbers start again.
const CONNECTIONS: usize = 4096;

/// The connections of a capture.
#[derive(Debug, Default)]
pub(super) struct Conversations(HashMap<u32, Conversation>);

impl Conversations {
    /// Makes the frames of a message and of its answer.
    ///
    /// # Errors
    /// Returns the reason why the message cannot be represented.
    pub(super) fn show(
        &mut self,
        message: &Exchanged,
        nanos: u64,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Rejected> {
        if self.0.len() >= CONNECTIONS && !self.0.contains_key(&message.connection) {
            self.0.clear();
        }
        let conversation = self.0.entry(message.connection);
        let conversation = conversation.or_insert_with(|| Conversation::new(parties(message)));
        let copy = &mut |start: u32, to: &mut [u8]| {
            let from = usize::try_from(start).ok().and_then(|at| message.payload.get(at..));
            to.iter_mut().zip(from.unwrap_or_default()).for_each(|(to, from)| *to = *from);
        };
        let request = &message.request;
        let message = Message {
            work: request.work,
            length: request.length,
            solicited: request.solicited,
            srqn: request.srqn,
            verdict: message.verdict,
            payload: copy,
        };
        conversation.message(message, Nanos(nanos), &mut |_, frame| each(frame))
    }
}

fn parties(message: &Exchanged) -> Parties {
    let [requester, responder] = message.ends;
    Parties {
        transport: message.transport,
        mtu: message.mtu,
        requester,
        responder,
        first_psn: message.first_psn,
        there: message.path,
        back: back(&message.path),
        min_rnr_timer: message.min_rnr_timer,
    }
}

/// Returns the path of answers, which is `path` in the other direction.
fn back(path: &Path) -> Path {
    let Ethernet { destination, source, vlan } = path.ethernet;
    let addresses = match path.network.addresses {
        Addresses::V4 { source, destination } => {
            Addresses::V4 { source: destination, destination: source }
        }
        Addresses::V6 { source, destination } => {
            Addresses::V6 { source: destination, destination: source }
        }
    };
    Path {
        ethernet: Ethernet { destination: source, source: destination, vlan },
        network: ip::Header { addresses, ..path.network },
        source_port: path.source_port,
    }
}
