//! The interface of device files of RDMA to programs: the ioctls that libibverbs makes, with the
//! kernel's checks and errors (drivers/infiniband/core/uverbs_ioctl.c and uverbs_cmd.c).
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`wire`] | the formats of requests, and the numbers of objects, methods and attributes |
//! | [`write`] | the formats of commands that were system calls write once |
//! | [`process`] | what a request needs of the process that makes it |
//! | [`request`] | a request, copied once and checked against the attributes of its method |
//! | [`methods`] | the attributes of each method |
//! | [`dispatch`] | the choice of what a request does |
//! | [`profile`] | what the device of a profile refuses |
//! | [`file`] | an open device file: its context, its objects and its doorbell pages |
//! | [`groups`] | multicast groups |
//! | [`objects`] | the objects of a file, by handle |
//! | [`device`] | an adapter, as its device file shows it |
//! | [`query`] | queries of an adapter, and contexts |
//! | [`address`] | paths to peers, and address handles |
//! | [`region`] | protection domains, memory regions and windows |
//! | [`dm`] | device memory |
//! | [`domains`] | XRC domains, and the targets in them |
//! | [`ring`] | the memory of rings |
//! | [`queues`] | queues |
//! | [`channel`] | files from which programs read events |
//! | [`routes`] | the way of the adapter's events to these files |

pub mod address;
pub mod channel;
pub mod device;
pub mod dispatch;
pub mod dm;
pub mod domains;
pub mod file;
pub mod groups;
pub mod methods;
pub mod objects;
pub mod process;
pub mod profile;
pub mod query;
pub mod queues;
pub mod region;
pub mod request;
pub mod ring;
pub mod routes;
pub mod wire;
pub mod write;
