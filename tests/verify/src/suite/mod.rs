//! The cases, and the code that runs them. Each case is a function over two agents. It fails with
//! an error that contains what was seen and what was expected.
//!
//! | module | cases |
//! | --- | --- |
//! | [`data`] | every operation with many sizes and alignments, in both directions |
//! | [`segments`] | scatter/gather lists, inline data |
//! | [`queues`] | chains, unsignaled work, full queues, wrapping rings, many QPs |
//! | [`credits`] | queues that refuse what they have no room for, CQs that are resized |
//! | [`order`] | fences, order of placement, windows of READs |
//! | [`atomics`] | values, contention, atomicity against the processor |
//! | [`flush`] | FLUSH: ranges, regions, refusals |
//! | [`events`] | completion events |
//! | [`attributes`] | attributes of the device and the port |
//! | [`limits`] | as many objects as the device reports |
//! | [`memlock`] | the limit of locked memory |
//! | [`async_events`] | asynchronous events |
//! | [`datagrams`] | UD: headers, queue keys, address handles; multicast groups |
//! | [`raw`], [`raw_flows`] | raw packets: frames, checksums, large segments; which frames a QP gets |
//! | [`rss`] | work queues, over which raw packets are spread |
//! | [`srq`] | shared receive queues: order, credits, events |
//! | [`xrc`] | XRC domains that processes share, targets, SRQs by number |
//! | [`counters`] | the events that move each of the port's counters |
//! | [`stress`] | random operations, sizes and places, many at a time |
//! | [`extended`] | completions with timestamps, requests that are built call by call |
//! | [`connections`] | connections by the connection manager (only with `--cm`) |
//! | [`retry`] | receivers that are not ready, peers that are absent or late |
//! | [`local_errors`], [`remote_errors`] | the completions of each fault, on both sides |
//! | [`mistakes`] | attributes that do not match the attributes of the peer |
//! | [`regions`] | zero-based regions, changing regions |
//! | [`device_memory`] | memory of the device as the source and target of operations, its bounds and its end |
//! | [`windows`] | memory windows of both types, invalidation |
//! | [`direct`], [`options`] | one-touch keys, holding CQs, the two kinds of failure; options for keys (only vrnic) |
//! | [`direct_commands`] | commands whose keys end with their responses (only vrnic) |
//! | [`transfer`] | direct transfers (only vrnic) |
//! | [`states`] | the state machine of QPs |
//! | [`transitions`] | the state machine: every pair of states with every attribute |
//! | [`lifecycle`] | limits, use after destruction, destruction in use, reuse |
//! | [`isolation`] | other processes, other peers |
//! | [`loopback`] | both ends in one process |
//! | [`hostile`] | garbage in the shared memory (only vrnic) |
//! | [`iwarp`] | (what iWARP does not have) |
//! | [`fixture`] | (building blocks of cases) |
//! | [`runner`] | (runs the cases) |
//!
//! The suite itself is tested against the kernel's rxe, which passes all cases except those about
//! the following: rxe completes requests with an invalid local key with WR_FLUSH_ERR (except
//! READs), receives with such a key with LOC_QP_OP_ERR, and at the sender receives that are too
//! short with REM_OP_ERR. It raises no asynchronous event at the responder of a refused request.
//! Errors do not count as solicited. After SQD no request starts again. Any P_Key index is
//! accepted. A QP accepts packets of QPs to which it is not connected. Misaligned atomics are
//! refused at posting. Its rings are device mappings, so `hostile/` finds none to fill.

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
#[cfg(feature = "vrnic")]
mod direct_commands;
mod events;
mod extended;
mod fixture;
mod flush;
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
#[cfg(feature = "vrnic")]
mod options;
mod order;
mod queues;
mod raw;
mod raw_flows;
mod regions;
mod remote_errors;
mod retry;
mod rss;
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
    /// The name `group/what`, which is unique.
    pub(crate) name: String,
    /// True if the case needs more memory than guests usually have.
    pub(crate) huge: bool,
    /// True if the case needs the connection manager.
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
        flush::cases(),
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
        direct_commands::cases(),
        #[cfg(feature = "vrnic")]
        options::cases(),
        #[cfg(feature = "vrnic")]
        transfer::cases(),
        datagrams::cases(),
        raw::cases(),
        raw_flows::cases(),
        rss::cases(),
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
