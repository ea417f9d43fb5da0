//! TCP connections that carry iSCSI PDUs. The adapter is the initiator. The target is a test that
//! composes PDUs byte by byte and sends them from a TOE QP of another daemon.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `rig` | the initiator, the target, and their PDUs |
//! | `commands` | commands that read and write, with and without digests, over bad cables |
//! | `posts` | what is refused when it is posted |
//! | `lies` | targets that lie |
//! | `modes` | who may set the mode, and when |
//! | `ends` | commands that end without a response, and streams that end |
//! | `portions` | how long a poll takes |
//! | `random` | random PDUs of a target |

mod commands;
mod ends;
mod lies;
mod modes;
mod portions;
mod posts;
mod random;
mod rig;
