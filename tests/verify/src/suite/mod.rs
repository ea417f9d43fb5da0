//! The cases, and what runs them. Each is a function over two agents; it fails by returning an
//! error that says what was seen and what should have been.
//!
//! | module | cases |
//! | --- | --- |
//! | [`data`] | every operation over sizes and alignments, both ways |
//! | [`segments`] | scatter/gather lists, inline data |
//! | [`queues`] | chains, unsignaled work, full queues, wrapping rings, many QPs |
//! | [`credits`] | queues that refuse what they have no room for, CQs that change their size |
//! | [`order`] | fences, order of placement, windows of READs |
//! | [`atomics`] | values, contention, atomicity against the processor |
//! | [`events`] | completion events |
//! | [`attributes`] | attributes of the device and the port |
//! | [`limits`] | as many objects as promised |
//! | [`memlock`] | the limit of locked memory |
//! | [`async_events`] | asynchronous events |
//! | [`datagrams`] | UD: headers, queue keys, address handles; multicast groups |
//! | [`srq`] | shared receive queues: order, credits, events |
//! | [`xrc`] | XRC domains that processes share, targets, SRQs by number |
//! | [`counters`] | what moves each of the port's counters |
//! | [`stress`] | random operations, sizes and places, many at a time |
//! | [`extended`] | completions with timestamps, requests built call by call |
//! | [`connections`] | connections by the connection manager (only with `--cm`) |
//! | [`retry`] | RNR, absent and late peers |
//! | [`local_errors`], [`remote_errors`] | what each fault completes with, on both sides |
//! | [`mistakes`] | attributes that do not fit those of the peer |
//! | [`regions`] | zero-based regions, changing regions |
//! | [`device_memory`] | memory of the device as source and sink, its bounds and its end |
//! | [`windows`] | memory windows of both types, invalidation |
//! | [`direct`], [`transfer`] | one touch, commands, the two failure forms; direct transfers (only vrnic) |
//! | [`states`] | the state machine of QPs |
//! | [`transitions`] | the same, every pair of states with every attribute |
//! | [`lifecycle`] | limits, use after destruction, destruction in use, reuse |
//! | [`isolation`] | other processes, other peers |
//! | [`loopback`] | both ends in one process |
//! | [`hostile`] | garbage in the shared pages (only vrnic) |
//! | [`iwarp`] | (what iWARP does not have) |
//! | [`fixture`] | (building blocks of cases) |
//! | [`runner`] | (runs them) |
//!
//! The suite itself is tested against the kernel's rxe, which passes all but these: it completes
//! requests with a bad local key with WR_FLUSH_ERR (READs excepted), receives with one with
//! LOC_QP_OP_ERR, too short receives at the sender with REM_OP_ERR; it reports no asynchronous
//! event to the responder of a refused request; errors do not count as solicited; after SQD nothing
//! starts again; any P_Key index is taken; a QP listens to QPs it is not connected to; misaligned
//! atomics are refused at posting. Its rings are device mappings, so `hostile/` finds none to fill.

mod async_events;
mod atomics;
mod attributes;
mod connections;
mod counters;
mod credits;
mod data;
mod datagrams;
mod device_memory;
#[cfg(feature = "vrnic")]
mod direct;
mod events;
mod extended;
mod fixture;
#[cfg(feature = "vrnic")]
mod hostile;
mod isolation;
mod iwarp;
mod lifecycle;
mod limits;
mod local_errors;
mod loopback;
mod memlock;
mod mistakes;
mod order;
mod queues;
mod regions;
mod remote_errors;
mod retry;
pub(crate) mod runner;
mod segments;
mod srq;
mod states;
mod stress;
#[cfg(feature = "vrnic")]
mod transfer;
mod transitions;
mod windows;
mod xrc;

use anyhow::Result;

use fixture::Env;
pub(crate) use fixture::env::Setup;

/// The function of a case.
type Run = dyn Fn(&Env) -> Result<()>;

/// A case.
pub(crate) struct Case {
    /// `group/what`, unique.
    pub(crate) name: String,
    /// True if it needs more memory than guests usually have.
    pub(crate) huge: bool,
    /// True if it needs the connection manager.
    managed: bool,
    run: Box<Run>,
}

impl Case {
    fn new(name: impl Into<String>, run: impl Fn(&Env) -> Result<()> + 'static) -> Self {
        Self { name: name.into(), huge: false, managed: false, run: Box::new(run) }
    }

    fn managed(self) -> Self {
        Self { managed: true, ..self }
    }

    fn huge(self, huge: bool) -> Self {
        Self { huge, ..self }
    }
}

/// Returns all cases, in the order in which they run.
pub(crate) fn cases() -> Vec<Case> {
    [
        data::cases(),
        segments::cases(),
        queues::cases(),
        credits::cases(),
        counters::cases(),
        order::cases(),
        atomics::cases(),
        events::cases(),
        extended::cases(),
        connections::cases(),
        retry::cases(),
        local_errors::cases(),
        remote_errors::cases(),
        mistakes::cases(),
        regions::cases(),
        device_memory::cases(),
        windows::cases(),
        #[cfg(feature = "vrnic")]
        direct::cases(),
        #[cfg(feature = "vrnic")]
        transfer::cases(),
        datagrams::cases(),
        attributes::cases(),
        async_events::cases(),
        limits::cases(),
        memlock::cases(),
        srq::cases(),
        xrc::cases(),
        stress::cases(),
        states::cases(),
        transitions::cases(),
        lifecycle::cases(),
        isolation::cases(),
        loopback::cases(),
        #[cfg(feature = "vrnic")]
        hostile::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
