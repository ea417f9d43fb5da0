//! Connections whose peer is a script, which tests the rules of the RFCs one after the other.
//!
//! | module | contents |
//! | --- | --- |
//! | [`end`] | a connection and its peer |
//! | `send` | loss recovery, windows, time-outs |
//! | `receive` | windows, acknowledgements, panes |
//! | `close` | the end of connections, segments that may be forged |

mod close;
mod end;
mod receive;
mod send;
