// SPDX-License-Identifier: GPL-2.0
//! The process that has created an object.

use kernel::{mm::Mm, prelude::*, sync::aref::ARef, task::Kuid};

/// The process that has created an object.
pub(super) struct Creator {
    /// The process's address space, which keeps its place in memory as long as this exists.
    memory: Option<ARef<Mm>>,
    /// The process's effective user, as the initial user namespace knows it.
    user: Kuid,
}

impl Creator {
    /// Returns the current process.
    pub(super) fn current() -> Self {
        let memory = current!().mm().map(|memory| ARef::from(&**memory));
        Self { memory, user: Kuid::current_euid() }
    }

    /// Returns whether this is the current process, or one of the same user, such as a parent that
    /// has forked the current process.
    pub(super) fn is_current(&self) -> bool {
        let memory = self.memory.as_ref().map(|memory| memory.as_raw());
        let same = current!().mm().is_some_and(|current| memory == Some(current.as_raw()));
        same || self.user == Kuid::current_euid()
    }
}
