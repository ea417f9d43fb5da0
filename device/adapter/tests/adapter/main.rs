//! Tests of the adapter through its programming interface: registers, admin commands, rings,
//! doorbells. A software driver with its own memory takes the place of the guest, and the test
//! moves the clock.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `host` | a host of tests: guest memory, BAR2, interrupts and a clock that the test moves |
//! | `bus` | the test driver's bus to an adapter in this process |
//! | `world` | adapters that reach each other, and two connected QPs on two of them |
//! | `cable` | two daemons, with an adapter each, at the ends of a simulated cable |
//! | `addresses` | adapters with several MACs |
//! | `admin` | admin commands: statuses, ownership, limits, creation and destruction of objects |
//! | `regions` | regions: parameters, keys, page tables |
//! | `rereg` | REREG_MR |
//! | `revoked` | REVOKE_MR |
//! | `one_touch` | keys that are valid for one message |
//! | `commands` | regions that end with their command |
//! | `keys` | work requests about keys |
//! | `key_options` | such requests and their options on each path between two QPs |
//! | `windows` | memory windows |
//! | `warnings` | warnings about a guest's queues |
//! | `tpt` | the table of keys, with random operations and with threads |
//! | `states` | MODIFY_QP and QUERY_QP of single attributes |
//! | `transitions` | MODIFY_QP compared with the table of the specification |
//! | `transfer` | every operation, segments, sizes, send queues in guest memory and in the device |
//! | `reads` | READs that take longer than a turn |
//! | `unreliable` | unreliable connections |
//! | `datagrams` | datagram QPs, and the GSI QP |
//! | `raw` | QPs of raw packets: sends, receives, flow rules |
//! | `multicast` | multicast groups |
//! | `srq` | shared receive queues |
//! | `xrc` | XRC |
//! | `paging` | regions whose pages come and go |
//! | `retries` | requests that are tried again |
//! | `atomic_writes` | ATOMIC WRITE and FLUSH |
//! | `errors` | errors, and how they are reported to each side |
//! | `completions` | the credits of completion queues, and RESIZE_CQ |
//! | `holding` | CQs that hold entries back while they are full |
//! | `events` | arming, event queues, interrupts |
//! | `indices` | invalid ring indices, and programs that never poll their queues |
//! | `counters` | the events that move each counter |
//! | `inspect` | INSPECT |
//! | `assigned` | an adapter's own maximum of each resource, and the number that it uses |
//! | `limits` | the limits of QUERY_DEVICE |
//! | `mistakes` | wrong attributes, with each path of messages |
//! | `port` | a port that the driver has closed |
//! | `alone` | a single adapter |
//! | `transports` | what an iWARP adapter refuses |
//! | `ends` | objects that end while workers use them |
//! | `resets` | fatal errors and resets |
//! | `faults` | panics in a turn of two adapters |
//! | `injection` | faults by rules |
//! | `hostile` | random commands, work requests and doorbells |
//! | `entries` | random bytes as work queue entries |
//! | `pace` | the ceilings of a function |
//! | `slices` | how long a poll of an adapter takes |
//! | `threads` | two adapters with a worker thread each |
//! | `packets` | messages as packets, over cables with faults |
//! | `connections` | the identity of connections: QP numbers, ports, PSNs |
//! | `streams` | messages in TCP connections, over cables with faults |
//! | `toe` | bytes in TCP connections, over cables with faults |
//! | `iscsi` | iSCSI PDUs in TCP connections |
//! | `direct` | direct transfers |
//! | `domains` | numbers of objects of one function in the work of another |
#![forbid(unsafe_code)]

mod addresses;
mod admin;
mod alone;
mod assigned;
mod atomic_writes;
mod bus;
mod cable;
mod commands;
mod completions;
mod connections;
mod counters;
mod datagrams;
mod direct;
mod domains;
mod ends;
mod entries;
mod errors;
mod events;
mod faults;
mod holding;
mod host;
mod hostile;
mod indices;
mod injection;
mod inspect;
mod iscsi;
mod key_options;
mod keys;
mod limits;
mod mistakes;
mod multicast;
mod one_touch;
mod pace;
mod packets;
mod paging;
mod port;
mod raw;
mod reads;
mod regions;
mod rereg;
mod resets;
mod retries;
mod revoked;
mod slices;
mod srq;
mod states;
mod streams;
mod threads;
mod toe;
mod tpt;
mod transfer;
mod transitions;
mod transports;
mod unreliable;
mod warnings;
mod windows;
mod world;
mod xrc;
