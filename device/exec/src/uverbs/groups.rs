//! The multicast groups of the queue pairs of a device file.

use std::collections::HashSet;

use rustix::io::Errno;
use vrnic_abi::Qpn;
use vrnic_abi::admin::{Mcast, command};

use crate::adapter::driver::Driver;

/// A queue pair, by handle, and the address of a group.
pub type Member = (u32, [u8; 16]);

/// The members.
#[derive(Debug, Default)]
pub struct Groups(HashSet<Member>);

impl Groups {
    /// Returns whether a queue pair is a member of a group.
    #[must_use]
    pub fn has(&self, handle: u32) -> bool {
        self.0.iter().any(|(member, _)| *member == handle)
    }

    /// Makes a queue pair a member, which it may be already.
    ///
    /// # Errors
    /// The adapter's refusal.
    pub fn join(&mut self, driver: &Driver, qpn: Qpn, member: Member) -> Result<(), Errno> {
        if self.0.contains(&member) {
            return Ok(());
        }
        driver.command::<command::AttachMcast>(&Mcast::new(qpn, member.1))?;
        self.0.insert(member);
        Ok(())
    }

    /// Ends a membership.
    ///
    /// # Errors
    /// `EINVAL` if there is none, and the adapter's refusal.
    pub fn leave(&mut self, driver: &Driver, qpn: Qpn, member: Member) -> Result<(), Errno> {
        if !self.0.contains(&member) {
            return Err(Errno::INVAL);
        }
        driver.command::<command::DetachMcast>(&Mcast::new(qpn, member.1))?;
        self.0.remove(&member);
        Ok(())
    }

    /// Returns all members.
    #[must_use]
    pub fn all(&self) -> Vec<Member> {
        self.0.iter().copied().collect()
    }
}
