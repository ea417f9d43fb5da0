//! Translates messages between work requests, the engine and the responder.

use std::time::Duration;

use vrnic_abi::Key;
use vrnic_abi::admin::QpFlags;
use vrnic_abi::qp::Type;
use vrnic_abi::sq::{Flags, FlushFlags};
use vrnic_roce::requester::{Remote, Work, WorkRequest};
use vrnic_roce::responder::{Arrival, Arriving, Verdict};
use vrnic_roce::time::rnr_timer;
use vrnic_roce::wire::SendEnd;
use vrnic_roce::wire::headers::Feth;
use vrnic_roce::wire::numbers::{Rkey, Srqn};
use vrnic_roce::wire::syndrome::RnrTimer;

use crate::datapath::inbound::{self, Inbound, Operation};
use crate::datapath::refusal::Refusal;
use crate::host::Host;
use crate::objects::qp::{Qp, Responder};
use crate::requests::wqe::SendWqe;

/// Longest time for which a peer waits because memory is absent.
const LONGEST_ABSENCE: Duration = Duration::from_micros(960);

/// Returns the timer for a peer that waits because memory is absent.
pub(super) fn timer_of(absent: Duration) -> RnrTimer {
    rnr_timer(absent.min(LONGEST_ABSENCE))
}

/// Returns a work request for the engine, or `None` for one that concerns only local keys. The
/// engine identifies it by its index in the send queue.
pub(crate) fn request<H: Host>(qp: &Qp<H>, send: &SendWqe, raw: &[u8]) -> Option<WorkRequest> {
    if send.opcode.info().invalidate_sink {
        return None;
    }
    let remote = |at: inbound::Remote| Remote { addr: at.addr, key: Rkey(at.key.get()) };
    // CAST: a message has at most 2^31 bytes.
    let mut length = u32::try_from(send.length).unwrap_or(u32::MAX);
    let work = match Operation::of(send)? {
        Operation::Send => Work::Send(send.imm().map_or(SendEnd::Plain, SendEnd::Imm)),
        Operation::SendInvalidate(key) => Work::Send(SendEnd::Invalidate(Rkey(key.get()))),
        Operation::Write(at) => Work::Write(remote(at), send.imm()),
        Operation::Read(at) => Work::Read(remote(at)),
        Operation::FetchAdd { word, add } => Work::FetchAdd { word: remote(word), add },
        Operation::CompareSwap { word, compare, swap } => {
            Work::CompareSwap { word: remote(word), compare, swap }
        }
        Operation::AtomicWrite(word) => Work::AtomicWrite(remote(word)),
        Operation::Flush { memory, flags, length: bytes } => {
            length = bytes;
            Work::Flush(Feth(u32::try_from(flags.bits()).ok()?), remote(memory))
        }
    };
    let srqn = match qp.kind {
        Type::XrcIni => Srqn::new(SendWqe::xrc_srqn(raw).get()),
        _ => Srqn::default(),
    };
    Some(WorkRequest {
        id: send.index.into(),
        work,
        length,
        solicited: send.flags.contains(Flags::SOLICITED),
        signaled: qp.has(QpFlags::SIGNAL_ALL) || send.flags.contains(Flags::SIGNALED),
        fence: send.flags.contains(Flags::FENCE),
        srqn,
    })
}

/// A message, or the part of it in a packet, for the responder.
pub(super) struct Message {
    /// The part.
    pub(super) inbound: Inbound,
    /// True if this part contains its last bytes.
    pub(super) ends: bool,
}

impl Message {
    /// Returns the part that `arrival` describes, of a message to `responder`.
    pub(super) fn new(arrival: &Arrival, responder: &Responder) -> Self {
        let so_far = u64::from(arrival.at) + u64::from(arrival.bytes);
        let remote = |addr, key| inbound::Remote { addr, key: Key::new(key) };
        let (operation, length, imm, ends) = match arrival.work {
            Arriving::Send(end) => {
                let imm = if let Some(SendEnd::Imm(imm)) = end { Some(imm) } else { None };
                let operation = match end {
                    Some(SendEnd::Invalidate(key)) => Operation::SendInvalidate(Key::new(key.0)),
                    _ => Operation::Send,
                };
                (operation, so_far, imm, end.is_some())
            }
            Arriving::Write(reth, end) => {
                let operation = Operation::Write(remote(reth.addr, reth.key.0));
                (operation, u64::from(reth.length), end.flatten(), end.is_some())
            }
            Arriving::Read(reth) => {
                let operation = Operation::Read(remote(reth.addr, reth.key.0));
                (operation, u64::from(reth.length), None, true)
            }
            Arriving::CompareSwap(word) => {
                let (compare, swap) = (word.compare, word.swap_or_add);
                let word = remote(word.addr, word.key.0);
                (Operation::CompareSwap { word, compare, swap }, 8, None, true)
            }
            Arriving::FetchAdd(word) => {
                let add = word.swap_or_add;
                let word = remote(word.addr, word.key.0);
                (Operation::FetchAdd { word, add }, 8, None, true)
            }
            Arriving::AtomicWrite(reth) => {
                let word = remote(reth.addr, reth.key.0);
                (Operation::AtomicWrite(word), u64::from(reth.length), None, true)
            }
            Arriving::Flush(feth, reth) => {
                let (memory, length) = (remote(reth.addr, reth.key.0), reth.length);
                let flags = FlushFlags::from_bits_retain(feth.0.into());
                (Operation::Flush { memory, length, flags }, 0, None, true)
            }
        };
        let inbound = Inbound {
            operation,
            length,
            from: arrival.at.into(),
            imm,
            solicited: arrival.solicited,
            src_qpn: responder.source_qpn,
            srqn: vrnic_abi::Srqn::new(arrival.srqn.get()),
            number: responder.message(arrival.number),
        };
        Self { inbound, ends }
    }
}

/// Returns the verdict for the engine about a request that was executed or refused. If its memory
/// is absent, it probably is there after the time `absent`.
pub(crate) fn verdict(
    result: Result<Option<u64>, Refusal>,
    absent: impl FnOnce() -> Duration,
) -> Verdict {
    match result {
        Ok(None) => Verdict::Executed,
        Ok(Some(old)) => Verdict::Old(old),
        Err(Refusal::NotReady) => Verdict::NotReady,
        Err(Refusal::Absent) => Verdict::Absent(timer_of(absent())),
        Err(Refusal::Invalid | Refusal::TooShort | Refusal::Unexpected) => Verdict::Invalid,
        Err(Refusal::Access(_)) => Verdict::Access,
        Err(Refusal::Operational | Refusal::Malformed) => Verdict::Operational,
    }
}
