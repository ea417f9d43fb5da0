//! iWARP without input and output: MPA, DDP and RDMAP above a byte stream.
//!
//! Bytes of the stream and work requests come in as parameters, and plain data goes out; so a run
//! is repeated exactly from its seed. The crate knows no sockets, no clock and nothing of the
//! adapter; it reaches memory through a trait. It keeps no bytes that it sends: whatever is lost is
//! built again from the work requests. Everything that arrives is hostile: it is checked before it
//! has an effect, and ends the stream with a Terminate that names the cause if it is wrong.
//!
//! | module | contents |
//! | --- | --- |
//! | [`tcp`] | the border to the TCP engine |
//! | [`crc`] | CRC-32C |
//! | [`wire`] | formats: start frames, DDP segments, messages of RDMAP |
//! | [`mpa`] | the agreement at the start, FPDUs, markers |
//! | [`rdmap`] | messages: the log of what is sent, the two halves, placement |
//! | [`stream`] | a connection: all of it together, and how it ends |
#![forbid(unsafe_code)]

pub mod crc;
pub mod mpa;
pub mod rdmap;
pub mod stream;
pub mod tcp;
pub mod wire;

pub use rdmap::memory::Memory;
pub use stream::Stream;
