//! Connections whose peer is a script, which tests the rules of the RFCs one after the other.
//!
//! | module | contents |
//! | --- | --- |
//! | [`end`] | a connection and its peer |
//! | `send` | loss recovery, windows, time-outs |
//! | `receive` | windows, acknowledgements, panes |
//! | `close` | the end of connections, segments that may be forged |
//! | `keepalive` | probes of an idle connection |

mod close;
mod end;
mod keepalive;
mod receive;
mod send;
