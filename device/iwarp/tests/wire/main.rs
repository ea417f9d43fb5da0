//! Formats: compared with vectors of the RFCs, with a transcript of Linux siw, and with random
//! octets.
//!
//! | module | contents |
//! | --- | --- |
//! | `vectors` | vectors of RFC 5044, and formats written out by hand |
//! | `start` | the agreement of the two ends |
//! | `transcript` | a run of rping between two hosts with siw |
//! | `reference` | a decoder of 50 lines |
//! | `random` | random messages and octets, cut at random |

mod random;
mod reference;
mod start;
mod transcript;
mod vectors;
