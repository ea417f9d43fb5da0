//! RoCE v2: messages as packets, to and from peers of other daemons, other hosts and other vendors.
//! The crate `vrnic_roce` implements the protocol itself, without memory and queues. This module
//! connects it with both.
//!
//! A received frame is put into the inbox of its QP's worker ([`super::ingress`]). The worker's
//! poll passes it to the QP's engine ([`arrivals`]), and the QP gets a turn ([`turn`]), in which
//! answers, new requests and completions are sent together.
//!
//! | module | contents |
//! | --- | --- |
//! | [`connect`] | engines of a QP that is being connected |
//! | [`arrivals`] | delivery of a frame to a QP |
//! | [`message`] | messages, translated between work requests, the engine and the responder |
//! | `requests` | execution of the peer's requests |
//! | `deferred_requests` | requests whose bytes become visible in another order, because of a rule for faults |
//! | `answers` | answers of the peer |
//! | `deferral` | the reasons for which bytes of an answer are not written at once |
//! | `disordered` | answers whose bytes become visible in another order, because of a rule for faults |
//! | `reordering` | the bytes of such requests and answers |
//! | `datagrams` | datagrams in both directions |
//! | [`turn`] | a turn of a QP: answers, requests, completions |
//! | `take` | work requests taken out of the send queue |
//! | `frames` | building of frames around bytes of guest memory |
//! | `counts` | the engines' counts as counters of the adapter |

mod answers;
pub(crate) mod arrivals;
pub(crate) mod connect;
mod counts;
pub(crate) mod datagrams;
mod deferral;
mod deferred_requests;
mod disordered;
mod frames;
pub(crate) mod message;
mod reordering;
mod requests;
mod take;
pub(crate) mod turn;

pub(crate) use self::arrivals::arrive;
pub(crate) use self::turn::run;
