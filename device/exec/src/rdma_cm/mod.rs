//! The connection manager of RDMA, as programs see it: `/dev/infiniband/rdma_cm`, the commands that
//! librdmacm writes to it, and the events that it reads, with the kernel's checks and errors
//! (drivers/infiniband/core/ucma.c and cma.c).
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`wire`] | the formats of commands and events |
//! | [`sockaddr`] | socket addresses, as programs pass them |
//! | [`files`] | open files, and the events in them |
//! | [`ids`] | communication identifiers |
//! | [`ports`] | ports of the port spaces |
//! | [`resolving`] | identifiers that wait for the address of a peer |
//! | [`service`] | all files and identifiers, and what connects them |
//! | [`network`] | the addresses of adapters, and messages between their connection managers |
//! | [`request`] | a command, copied once |
//! | [`dispatch`] | the choice of what a command does |
//! | [`create`] | commands that create, destroy and move identifiers |
//! | [`bind`] | commands that bind identifiers, and their options |
//! | [`resolve`] | commands that find the way to a peer |
//! | [`query`] | commands that ask for addresses and paths |
//! | [`connect`] | commands that make and end connections |
//! | [`attributes`] | the attributes of queue pairs |
//! | [`multicast`] | multicast groups |
//! | [`events`] | commands about events |
//! | [`incoming`] | the events of connections |

pub mod attributes;
pub mod bind;
pub mod connect;
pub mod create;
pub mod dispatch;
pub mod events;
pub mod files;
pub mod ids;
pub mod incoming;
pub mod multicast;
pub mod network;
pub mod ports;
pub mod query;
pub mod request;
pub mod resolve;
pub mod resolving;
pub mod service;
pub mod sockaddr;
pub mod wire;
