//! Queues, events and counters.
//!
//! | module | cases |
//! | --- | --- |
//! | [`queues`] | chains, unsignaled work, full queues, wrapping rings, many QPs |
//! | [`credits`] | queues that refuse what they have no room for, CQs that are resized |
//! | [`events`] | completion events |
//! | [`limits`] | as many objects as the device reports |
//! | [`async_events`] | asynchronous events |
//! | [`srq`] | shared receive queues: order, credits, events |
//! | [`xrc`] | XRC domains that processes share, targets, SRQs by number |
//! | [`counters`] | the events that move each of the port's counters |

pub(crate) mod async_events;
pub(crate) mod counters;
pub(crate) mod credits;
pub(crate) mod events;
pub(crate) mod limits;
pub(crate) mod queues;
pub(crate) mod srq;
pub(crate) mod xrc;
