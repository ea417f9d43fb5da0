//! RoCE v2: messages as packets, to and from peers of other daemons, of other hosts, and of other
//! makers. The protocol itself is `vrnic_roce`, which knows neither memory nor queues; here it
//! meets both.
//!
//! A frame that arrives is put into the inbox of its QP's worker ([`super::ingress`]). The worker's
//! poll gives it to the QP's engine ([`arrivals`]), and the QP gets a turn ([`turn`]), in which
//! answers, new requests and completions leave together.
//!
//! | module | contents |
//! | --- | --- |
//! | [`connect`] | engines of a QP that is being connected |
//! | [`arrivals`] | a frame on its way to a QP |
//! | [`message`] | messages, translated between work requests, the engine and the responder |
//! | `requests` | requests of the peer, executed |
//! | `answers` | answers of the peer |
//! | `datagrams` | datagrams in both directions |
//! | [`turn`] | a turn of a QP: answers, requests, completions |
//! | `take` | work requests taken out of the send queue |
//! | `frames` | frames, built around bytes of guest memory |
//! | `counts` | the engines' counts as counters of the adapter |

mod answers;
pub(crate) mod arrivals;
pub(crate) mod connect;
mod counts;
pub(crate) mod datagrams;
mod frames;
pub(crate) mod message;
mod requests;
mod take;
pub(crate) mod turn;

pub(crate) use self::arrivals::arrive;
pub(crate) use self::turn::run;
