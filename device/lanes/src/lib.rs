//! The lanes of a port, without input and output: each class of service has a queue and a flow
//! control of its own.
//!
//! A port has one [`Lanes`]. Frames that leave by the port wait in one of eight queues, whose turns
//! follow IEEE 802.1Qaz, at the rate of the port. A queue that grows has its frames marked (ECN).
//! Frames that came by the port and are still in the switch are counted by class. If there are too
//! many of a class, the port pauses the class of the station behind it (priority-based flow
//! control, PFC, IEEE 802.1Qbb). The port obeys the pauses of that station.
//!
//! Time and the seed of random numbers are parameters, so a seed repeats a run exactly. Lengths and
//! times in frames of a peer are used only within the bounds of the configuration.
//!
//! | module | contents |
//! | --- | --- |
//! | [`class`](mod@class) | the eight classes |
//! | [`mapping`] | the class of a frame |
//! | [`config`] | what an operator sets for a port, and its checks |
//! | [`lanes`] | the queues and the flow control of a port |
//! | `queue` | the frames of a class |
//! | `schedule` | whose turn it is |
//! | [`pause`] | PFC frames, pauses of both directions, pause storms |
//! | [`ecn`] | marks of congestion in frames |
//! | [`counters`] | what is counted for each class |
#![forbid(unsafe_code)]

pub mod class;
pub mod config;
pub mod counters;
pub mod ecn;
pub mod lanes;
pub mod mapping;
pub mod pause;
mod queue;
mod schedule;

pub use class::{Class, ClassSet, PerClass};
pub use config::{ClassConfig, Config, Conflict, Red, Service, Thresholds, Watchdog};
pub use counters::{Counters, Event};
pub use ecn::Mark;
pub use lanes::{Frame, Lanes, Next};
pub use mapping::{Mapping, Trust};
pub use pause::frame::PauseFrame;
