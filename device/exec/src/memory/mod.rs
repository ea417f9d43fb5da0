//! The memory that the adapter reaches: that of the programs, and that of its driver.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`space`] | the memory of one process |
//! | [`spaces`] | the processes whose memory the adapter reaches, by number |
//! | [`words`] | copies to and from shared words |

pub mod space;
pub mod spaces;
pub mod words;
