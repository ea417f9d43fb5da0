//! The processes whose memory the adapter reaches, by number. The adapter's addresses consist of
//! such a number and the address in that process.

use std::sync::Arc;

use nix::unistd::Pid;
use parking_lot::RwLock;
use rustix::io::Errno;
use vrnic_abi::GuestAddr;

use super::space::{END, Space};

/// Number of the lowest bit of the number in an address.
const SHIFT: u32 = END.trailing_zeros();
/// Maximum number of processes at a time.
const MAX: usize = 1 << 14;

/// The number of a process's memory. Zero is that of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number(u32);

impl Number {
    /// The number of the driver's memory.
    pub const DRIVER: Self = Self(0);

    /// Returns the adapter's address of an address in this memory. `EFAULT` if it is none of a
    /// program.
    ///
    /// # Errors
    /// See above.
    pub fn place(self, addr: u64) -> Result<GuestAddr, Errno> {
        let inside = addr < END;
        if inside {
            Ok(GuestAddr::new(u64::from(self.0) << SHIFT | addr))
        } else {
            Err(Errno::FAULT)
        }
    }
}

/// Returns the number and the address in an address of the adapter.
#[must_use]
pub fn split(addr: GuestAddr) -> (Number, u64) {
    // CAST: 17 bits.
    (Number((addr.get() >> SHIFT) as u32), addr.get() & (END - 1))
}

/// The processes whose memory the adapter reaches.
#[derive(Debug, Default)]
pub struct Spaces(RwLock<Vec<Option<Arc<Space>>>>);

impl Spaces {
    /// Adds the memory of a process.
    ///
    /// # Errors
    /// `ENOMEM` if there are too many.
    pub fn insert(&self, space: Space) -> Result<Number, Errno> {
        let mut all = self.0.write();
        let free = all.iter().position(Option::is_none).unwrap_or(all.len());
        if free >= MAX {
            return Err(Errno::NOMEM);
        }
        if free == all.len() {
            all.push(None);
        }
        if let Some(place) = all.get_mut(free) {
            *place = Some(Arc::new(space));
        }
        // CAST: below the maximum.
        Ok(Number(free as u32 + 1))
    }

    /// Returns the memory with this number.
    #[must_use]
    pub fn get(&self, number: Number) -> Option<Arc<Space>> {
        let index = usize::try_from(number.0.checked_sub(1)?).ok()?;
        self.0.read().get(index)?.clone()
    }

    /// Removes the memory with this number.
    pub fn remove(&self, number: Number) {
        let index = number.0.checked_sub(1).and_then(|index| usize::try_from(index).ok());
        if let Some(place) = index.and_then(|index| self.0.write().get_mut(index).map(Option::take))
        {
            drop(place);
        }
    }

    /// Returns the memories of a process, of which it has more than one if it has executed another
    /// program.
    #[must_use]
    pub fn of(&self, pid: Pid) -> Vec<Arc<Space>> {
        let all = self.0.read();
        all.iter().flatten().filter(|space| space.pid() == pid).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again_after_removal() {
        let spaces = Spaces::default();
        let own = || Space::open(Pid::this()).expect("own memory");
        let first = spaces.insert(own()).expect("room");
        let second = spaces.insert(own()).expect("room");
        assert_ne!(first, second);
        spaces.remove(first);
        assert!(spaces.get(first).is_none() && spaces.get(second).is_some());
        assert_eq!(spaces.insert(own()), Ok(first));
        assert_eq!(spaces.of(Pid::this()).len(), 2);
    }

    #[test]
    fn an_address_has_the_number_of_its_process() {
        let addr = Number(5).place(0x1234).expect("an address");
        assert_eq!(split(addr), (Number(5), 0x1234));
        assert_eq!(Number(5).place(END), Err(Errno::FAULT));
        assert!(Spaces::default().get(Number::DRIVER).is_none());
    }
}
