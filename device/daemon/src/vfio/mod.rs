//! The vfio-user server: a UNIX socket for each adapter, and the server half of the protocol. It
//! trusts nothing that it receives: a message is read as a whole and within bounds, then parsed,
//! then executed, and invalid requests are answered with an error. The client of the protocol, for
//! tests, is the crate `vfio_user`.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`device`] | the trait through which the server drives an adapter |
//! | [`regions`] | the descriptions of regions and interrupts for the VMM |
//! | [`wire`] | the layouts of messages |
//! | [`request`], [`refusal`] | parsing of a request, and the errors that the VMM gets |
//! | [`session`] | execution of messages, without sockets |
//! | [`stream`] | receiving and sending of whole messages |
//! | [`caller`] | requests to the VMM, which reads and writes memory for the adapter |
//! | [`server`] | the thread that serves one VMM after another |
//! | [`busy_socket`] | turns away clients of a busy socket |

pub mod busy_socket;
pub mod caller;
pub mod device;
pub mod refusal;
pub mod regions;
pub mod request;
pub mod server;
pub mod session;
pub mod stream;
pub mod wire;
