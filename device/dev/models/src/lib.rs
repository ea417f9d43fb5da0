//! Models of races: code of the adapter and the daemon, unchanged, whose atomics and locks are
//! loom's, which runs it in every order of its steps (docs/testing.md). Without `--cfg loom` there
//! is nothing here.
#![forbid(unsafe_code)]
#![cfg(loom)]

/// Runs `body` in all orders with at most this many preemptions, unless `LOOM_MAX_PREEMPTIONS` says
/// how many.
pub fn model(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 10_000;
    builder.check(body);
}
