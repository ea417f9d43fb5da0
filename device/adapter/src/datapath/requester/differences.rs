//! Attributes that must be the same at both ends of a connection, or fit, but do not.
//!
//! Over packets such a mistake shows as soon as a message needs more than it allows, and on real
//! devices too. A copy would not notice it, so the attributes are compared where the ends meet,
//! once in a turn. Only between ends that differ is each message examined.

use vrnic_abi::sq::{Class, Flags, Opcode};

use crate::datapath::send_queue::BATCH;
use crate::host::Host;
use crate::objects::core::Core;
use crate::objects::qp::posted_reads::Counted;
use crate::objects::qp::{Qp, Requester, RequesterConfig, Responder};
use crate::requests::wqe::SendWqe;

/// The attributes of two ends that differ.
#[derive(Clone, Copy, Debug)]
pub(super) struct Differences {
    /// Path MTU of the requester in bytes.
    own_mtu: u64,
    /// Path MTU of the responder in bytes.
    peer_mtu: u64,
    /// The longest payload in bytes that both ports carry.
    port_mtu: u64,
    /// Maximum number of READs and atomics that the responder accepts at a time.
    resources: u8,
}

/// The consequence of a difference for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The responder refuses the request as invalid.
    Refused,
    /// A packet of the request is too long for a port, and is lost.
    Lost,
    /// A packet of the answer to a READ is too long for a port, and is lost.
    AnswerLost,
    /// The packets of the answer to a READ do not have the length that the requester expects.
    AnswerLength,
}

impl Fault {
    /// Returns the number of bytes that a turn may move of a message with this fault. Moving none
    /// of a READ only checks its request, which the responder may refuse before it answers.
    pub(super) const fn budget(self, budget: u64) -> u64 {
        if matches!(self, Self::AnswerLost | Self::AnswerLength) { 0 } else { budget }
    }
}

impl Differences {
    /// Compares the attributes of two ends and their ports. Returns `None` if they fit.
    #[inline(always)]
    pub(super) fn between<H: Host>(
        here: &Core<H>,
        config: &RequesterConfig,
        there: &Core<H>,
        responder: &Responder,
    ) -> Option<Self> {
        let fits = config.mtu == responder.mtu
            && config.mtu <= here.mtu().min(there.mtu())
            && config.max_rd_atomic <= responder.max_dest_rd_atomic;
        if fits { None } else { Some(Self::new(here, config, there, responder)) }
    }

    #[cold]
    fn new<H: Host>(
        here: &Core<H>,
        config: &RequesterConfig,
        there: &Core<H>,
        responder: &Responder,
    ) -> Self {
        let bytes = |code: u8| 128 << code.min(5);
        Self {
            own_mtu: bytes(config.mtu),
            peer_mtu: bytes(responder.mtu),
            port_mtu: here.mtu_bytes().min(there.mtu_bytes()),
            resources: responder.max_dest_rd_atomic,
        }
    }

    /// Returns the consequence for an entry of the send queue of `qp`, or `None` if it needs
    /// nothing in which the ends differ.
    pub(super) fn fault<H: Host>(
        &self,
        host: &H,
        qp: &Qp<H>,
        requester: &mut Requester<H>,
        send: &SendWqe,
    ) -> Option<Fault> {
        let class = send.opcode.info().class;
        let answered = send.opcode.info().has_answer();
        // A registration invalidates no key that a READ before it may use.
        let ends_keys = class == Class::Local && send.opcode != Opcode::RegMr;
        let waits = send.flags.contains(Flags::FENCE) || ends_keys;
        let open = u32::try_from(requester.open_reads.reads()).unwrap_or(u32::MAX);
        let entry = Counted { index: send.index, answered, waits, open };
        let posted = || qp.posted_end(host, send.index, BATCH);
        let outstanding = requester.posted_reads.count(&entry, posted);
        let allowed = u32::from(requester.config.max_rd_atomic);
        if answered && outstanding.min(allowed) > u32::from(self.resources) {
            return Some(Fault::Refused);
        }
        let differ = self.own_mtu != self.peer_mtu;
        match class {
            Class::Send | Class::Write if send.length.min(self.own_mtu) > self.port_mtu => {
                Some(Fault::Lost)
            }
            Class::Send | Class::Write => {
                let fits = send.length <= self.own_mtu.min(self.peer_mtu);
                (differ && !fits).then_some(Fault::Refused)
            }
            Class::Read if send.length.min(self.peer_mtu) > self.port_mtu => {
                Some(Fault::AnswerLost)
            }
            Class::Read => {
                let fits = send.length <= self.own_mtu.min(self.peer_mtu);
                (differ && !fits).then_some(Fault::AnswerLength)
            }
            Class::Atomic | Class::AtomicWrite | Class::Flush | Class::Local => None,
        }
    }
}
