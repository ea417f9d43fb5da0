//! VMMs, the memory of their guests, and doorbells.
//!
//! | module | what it tests |
//! | --- | --- |
//! | `arming` | completion queues that are armed at random |
//! | `external` | memory without a mapping, which the daemon reaches by messages to the VMM |
//! | `device_memory` | device memory: the part of BAR2 that work requests reach at its bus addresses |
//! | `hostile` | guests that make mistakes, or are hostile |
//! | `huge_pages` | guest memory of huge pages |
//! | `messages` | messages of vfio-user that no correct VMM sends |
//! | `pages` | guest memory that is mapped page by page |
//! | `vmm` | what a correct VMM gets, and what a hostile VMM gets |
//! | `wake` | doorbells for a worker that falls asleep |

pub(crate) mod arming;
pub(crate) mod device_memory;
pub(crate) mod external;
pub(crate) mod hostile;
pub(crate) mod huge_pages;
pub(crate) mod messages;
pub(crate) mod pages;
pub(crate) mod vmm;
pub(crate) mod wake;
