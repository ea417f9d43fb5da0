//! The vfio-user edge: a Unix socket for each adapter, and the server half of the protocol. It
//! trusts nothing that comes: a message is read whole and within bounds, then parsed, then carried
//! out, and what it may not ask for is answered with an error. The protocol's client, for tests, is
//! the `vfio_user` crate's.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`device`] | the trait through which the edge talks to an adapter |
//! | [`regions`] | regions and interrupts as the VMM is told of them |
//! | [`wire`] | the layouts of messages |
//! | [`request`], [`refusal`] | from bytes to a request, or to the error that the VMM is told |
//! | [`session`] | what messages do; knows no sockets |
//! | [`stream`] | whole messages from and to a socket |
//! | [`server`] | the thread that serves one VMM after another |
//! | [`doorman`] | turns away clients of a busy socket |

pub mod device;
pub mod doorman;
pub mod refusal;
pub mod regions;
pub mod request;
pub mod server;
pub mod session;
pub mod stream;
pub mod wire;
