//! The start of a turn, by what the connection carries.

use std::sync::Arc;

use super::bytes::hand_over;
use super::turn::TcpTurn;
use crate::datapath::send_queue::Turn;
use crate::datapath::transport::peers::Network;
use crate::datapath::turn::Allowance;
use crate::datapath::wqe_fetch::Batch;
use crate::host::Host;
use crate::objects::qp::tcp::{Content, Tcp};
use crate::objects::qp::{Path, Qp, Requester};

/// Sends and completes work of a QP, up to the limits of `allowance`.
pub(crate) fn run<H: Host>(
    network: Network<'_, H>,
    qp: &Arc<Qp<H>>,
    requester: &mut Requester<H>,
    batch: &mut Batch,
    &Allowance { slice, .. }: &Allowance<'_, H>,
) -> Turn {
    let Path::Tcp(mut tcp) = std::mem::take(&mut requester.path) else { return Turn::Idle };
    batch.clear();
    let Tcp { link, content } = &mut *tcp;
    let turn = match content {
        Content::Rdma(content) => {
            let turn =
                TcpTurn { network, qp, requester, link, content: &mut **content, slice }.run(batch);
            content.dormant = content.pairing.is_paired() && turn == Turn::Idle;
            turn
        }
        Content::Bytes(content) => {
            let turn =
                TcpTurn { network, qp, requester, link, content: &mut **content, slice }.run(batch);
            if let Some(switch) = content.mode.take_ready() {
                requester.path = hand_over(network, qp, tcp, *switch);
                return Turn::Failed;
            }
            turn
        }
        Content::Iscsi(content) => {
            TcpTurn { network, qp, requester, link, content: &mut **content, slice }.run(batch)
        }
    };
    requester.path = Path::Tcp(tcp);
    turn
}
