//! What only the vrnic adapter has.
//!
//! | module | what |
//! | --- | --- |
//! | [`direct`] | the direct verbs of the vrnic adapter |
//! | [`transfer`] | address ranges and marks of the vrnic adapter |
//! | [`hostile`] | writing into the device's mappings without the provider's knowledge |
//! | [`answer`] | commands whose response cannot be written |

pub mod answer;
pub mod direct;
pub mod hostile;
pub mod transfer;
