//! Flow control of each class (PFC, IEEE 802.1Qbb): its frames, and the pauses of both directions.
//!
//! | module | contents |
//! | --- | --- |
//! | [`frame`] | the format of PFC frames |
//! | `obeyed` | pauses by the station behind the port, and pause storms |
//! | `asserted` | pauses of the station behind the port |

pub(crate) mod asserted;
pub mod frame;
pub(crate) mod obeyed;
