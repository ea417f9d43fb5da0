//! Tests of the adapter through its programming interface: registers, admin commands, rings,
//! doorbells. A software driver with its own memory takes the place of the guest, and the test
//! moves the clock.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `host` | a host of tests: guest memory, BAR2, interrupts and a clock that the test moves |
//! | `bus` | the test driver's bus to an adapter in this process |
//! | `world` | adapters that reach each other, and two connected QPs on two of them |
//! | `polls` | polls of adapters whose durations are measured |
//! | `cable` | two daemons, with an adapter each, at the ends of a simulated cable |
//! | `path` | two QPs that reach each other by one of the paths of messages |
//! | `network` | packets and TCP connections, ports and addresses |
//! | `control` | admin commands, limits, ceilings |
//! | `memory` | regions, keys, windows, and the pages that they lead to |
//! | `queues` | queue pairs and their states; receive and completion queues, events and counters |
//! | `messages` | operations, and their errors |
//! | `lifecycle` | ends, resets, faults, hostile guests, threads |
//! | `direct` | direct transfers |
//! | `portions` | how long a poll takes for each request with its largest parameters |
//! | `domains` | numbers of objects of one function in the work of another |
#![forbid(unsafe_code)]

mod bus;
mod cable;
mod control;
mod direct;
mod domains;
mod host;
mod lifecycle;
mod memory;
mod messages;
mod network;
mod path;
mod polls;
mod portions;
mod queues;
mod world;
