//! The last turns of a QP that a command destroys.

use std::sync::Arc;

use vrnic_abi::qp::{Service, State};

use crate::adapter::Adapter;
use crate::datapath::requester;
use crate::datapath::send_queue::Turn;
use crate::datapath::sgl::TURN;
use crate::datapath::space::Space;
use crate::datapath::turn::Allowance;
use crate::host::{Host, Lane};
use crate::objects::qp::Qp;
use crate::slice::Slice;

/// Maximum number of turns, each of at most a slice.
const MAX_TURNS: usize = 16;

impl<H: Host> Adapter<H> {
    /// Sends what a program has posted to a QP before the command that destroys it, and the rest of
    /// a message that has begun, if the peer does not acknowledge it. A program may destroy such a
    /// QP at once, because hardware has sent the messages by then; a worker of ours may not even
    /// have run since the doorbell. What does not fit into [`MAX_TURNS`] turns, or would have to
    /// wait, is lost.
    pub(crate) fn send_last(self: &Arc<Self>, qp: &Arc<Qp<H>>) {
        let acknowledged = matches!(qp.kind.info().service, Service::Reliable | Service::Bytes);
        let stands = qp.state() != State::Rts || self.paused(qp.worker()).is_some();
        if acknowledged || stands {
            return;
        }
        let mut space = Space::default();
        for _ in 0..MAX_TURNS {
            let slice = Slice::new(self.host(), Lane::SHARED);
            let allowance = Allowance { budget: TURN, slice: &slice };
            if requester::run(self.network(), qp, &mut space, &allowance) != Turn::More {
                break;
            }
        }
    }
}
