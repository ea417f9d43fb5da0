//! Tests of the adapter through its programming interface: registers, admin commands, rings,
//! doorbells. A software driver on memory of its own stands in for the guest, and the test moves
//! the clock.
#![forbid(unsafe_code)]

mod admin;
mod alone;
mod bus;
mod cable;
mod commands;
mod completions;
mod connections;
mod counters;
mod datagrams;
mod direct;
mod direct_ends;
mod direct_hosts;
mod direct_marks;
mod direct_races;
mod direct_streams;
mod ends;
mod errors;
mod events;
mod faults;
mod host;
mod hostile;
mod indices;
mod inspect;
mod keys;
mod limits;
mod multicast;
mod one_touch;
mod packets;
mod port;
mod reads;
mod regions;
mod rereg;
mod resets;
mod slices;
mod srq;
mod states;
mod stream_acks;
mod stream_ends;
mod stream_gaps;
mod stream_pair_ends;
mod stream_pairs;
mod stream_paths;
mod streams;
mod threads;
mod tpt;
mod transfer;
mod transitions;
mod transports;
mod unreliable;
mod windows;
mod world;
mod xrc;
