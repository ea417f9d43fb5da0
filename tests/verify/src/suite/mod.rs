//! The cases, and the code that runs them. Each case is a function over two agents. It fails with
//! an error that contains what was seen and what was expected.
//!
//! | module | cases |
//! | --- | --- |
//! | `messages` | operations and their order; datagrams; raw packets |
//! | `queueing` | queues, events, counters |
//! | `control` | states of queue pairs and other objects, and the attributes that they take |
//! | `memory` | regions, keys, windows, device memory |
//! | `errors` | errors on both sides, and peers that cause them |
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

mod control;
mod errors;
mod fixture;
mod iwarp;
mod memory;
mod messages;
mod queueing;
pub(crate) mod runner;

use anyhow::Result;

use fixture::Env;
pub(crate) use fixture::env::Setup;

/// The function of a case.
type Run = dyn Fn(&Env) -> Result<()>;

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
        messages::data::cases(),
        messages::segments::cases(),
        queueing::queues::cases(),
        queueing::credits::cases(),
        queueing::counters::cases(),
        messages::order::cases(),
        messages::atomics::cases(),
        messages::flush::cases(),
        queueing::events::cases(),
        messages::extended::cases(),
        control::connections::cases(),
        errors::retry::cases(),
        errors::local_errors::cases(),
        errors::remote_errors::cases(),
        control::mistakes::cases(),
        memory::regions::cases(),
        memory::device_memory::cases(),
        memory::windows::cases(),
        #[cfg(feature = "vrnic")]
        memory::direct::cases(),
        #[cfg(feature = "vrnic")]
        memory::direct_commands::cases(),
        #[cfg(feature = "vrnic")]
        memory::options::cases(),
        #[cfg(feature = "vrnic")]
        memory::transfer::cases(),
        messages::datagrams::cases(),
        messages::raw::cases(),
        messages::raw_flows::cases(),
        messages::rss::cases(),
        control::attributes::cases(),
        queueing::async_events::cases(),
        queueing::limits::cases(),
        memory::memlock::cases(),
        queueing::srq::cases(),
        queueing::xrc::cases(),
        messages::stress::cases(),
        control::states::cases(),
        control::transitions::cases(),
        control::lifecycle::cases(),
        errors::isolation::cases(),
        messages::loopback::cases(),
        #[cfg(feature = "vrnic")]
        errors::hostile::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
