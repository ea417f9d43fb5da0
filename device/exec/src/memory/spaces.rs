//! The memory that the adapters reach, by number: that of processes, and rings that programs share
//! with the adapters. The adapter's addresses consist of such a number and a place in that memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::unistd::Pid;
use parking_lot::{RwLock, RwLockReadGuard};
use rustix::io::Errno;
use vrnic_abi::GuestAddr;

use super::guarded::Guarded;
use super::space::{END, Space};
use super::words;

/// Number of the lowest bit of the number in an address.
const SHIFT: u32 = END.trailing_zeros();
/// Maximum number of processes at a time.
const PROCESSES_MAX: usize = 1 << 14;
/// Maximum number of rings at a time. The kernel limits the number of mappings of a process.
const RINGS_MAX: usize = 1 << 12;

/// The number of a memory. Zero is that of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number(u32);

impl Number {
    /// The number of the driver's memory.
    pub const DRIVER: Self = Self(0);

    /// Returns the adapter's address of a place in this memory. `EFAULT` if it is none of a
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

    /// Returns the place in the list.
    fn index(self) -> Option<usize> {
        usize::try_from(self.0.checked_sub(1)?).ok()
    }
}

/// Returns the number and the place in an address of the adapter.
#[must_use]
pub fn split(addr: GuestAddr) -> (Number, u64) {
    // CAST: 17 bits.
    (Number((addr.get() >> SHIFT) as u32), addr.get() & (END - 1))
}

/// A memory.
#[derive(Debug)]
enum Memory {
    Process(Arc<Space>),
    Ring(Guarded),
    /// Memory of a process that is not there any more, of which adapters still have the addresses
    /// of this number of ranges.
    Gone(u32),
}

/// The memory of all numbers.
type Numbered = Vec<Option<Memory>>;

/// The memory that the adapters reach.
#[derive(Debug, Default)]
pub struct Spaces {
    all: RwLock<Numbered>,
    /// Counts the writes to the memory of processes.
    writes: AtomicU64,
}

impl Spaces {
    /// Adds the memory of a process.
    ///
    /// # Errors
    /// `ENOMEM` if there are too many.
    pub fn insert(&self, space: Space) -> Result<Number, Errno> {
        let is_process = |memory: &Memory| matches!(memory, Memory::Process(_) | Memory::Gone(_));
        self.add(Memory::Process(Arc::new(space)), is_process, PROCESSES_MAX)
    }

    /// Adds a ring, whose memory stays mapped until the number is removed.
    ///
    /// # Errors
    /// `ENOMEM` if there are too many.
    pub fn insert_ring(&self, ring: Guarded) -> Result<Number, Errno> {
        self.add(Memory::Ring(ring), |memory| matches!(memory, Memory::Ring(_)), RINGS_MAX)
    }

    fn add(
        &self,
        memory: Memory,
        is_alike: impl Fn(&Memory) -> bool,
        most: usize,
    ) -> Result<Number, Errno> {
        let mut all = self.all.write();
        if all.iter().flatten().filter(|other| is_alike(other)).count() >= most {
            return Err(Errno::NOMEM);
        }
        let free = all.iter().position(Option::is_none).unwrap_or(all.len());
        if free == all.len() {
            all.push(None);
        }
        if let Some(place) = all.get_mut(free) {
            *place = Some(memory);
        }
        // CAST: below the sum of the maxima.
        Ok(Number(free as u32 + 1))
    }

    /// Returns the memory of the process with this number.
    #[must_use]
    pub fn get(&self, number: Number) -> Option<Arc<Space>> {
        match self.all.read_recursive().get(number.index()?)? {
            Some(Memory::Process(space)) => Some(Arc::clone(space)),
            _ => None,
        }
    }

    /// Records that an adapter gets the address of a range in the memory of a process.
    ///
    /// # Errors
    /// `EFAULT` if there is no such memory, or no such address.
    pub fn place(self: &Arc<Self>, number: Number, addr: u64) -> Result<Placement, Errno> {
        let addr = number.place(addr)?;
        self.get(number).ok_or(Errno::FAULT)?.place();
        Ok(Placement { spaces: Arc::clone(self), number, addr })
    }

    /// Records that no adapter has the address of one range any more.
    fn unplace(&self, number: Number) {
        let mut all = self.all.write();
        let Some(place) = number.index().and_then(|index| all.get_mut(index)) else { return };
        match place {
            Some(Memory::Process(space)) => space.unplace(),
            Some(Memory::Gone(1)) => *place = None,
            Some(Memory::Gone(count)) => *count -= 1,
            Some(Memory::Ring(_)) | None => {}
        }
    }

    /// Frees the memory of a process. Its number is another one's only when no adapter has an
    /// address of it any more.
    pub fn free(&self, number: Number) {
        let Some(space) = self.get(number) else { return };
        let mut all = self.all.write();
        if let Some(place) = number.index().and_then(|index| all.get_mut(index)) {
            let count = space.placements();
            *place = (count > 0).then_some(Memory::Gone(count));
        }
    }

    /// Frees the memory of a process that has ended. Returns whether it has ended.
    pub fn free_ended(&self, number: Number) -> bool {
        let ended = self.get(number).is_some_and(|space| !space.exists());
        if ended {
            self.free(number);
        }
        ended
    }

    /// Removes the ring with this number, when no adapter holds it.
    pub fn remove(&self, number: Number) {
        let Some(index) = number.index() else { return };
        let removed = self.all.write().get_mut(index).map(Option::take);
        // Unmapped without the lock.
        drop(removed);
    }

    /// Returns the memories of a process, of which it has more than one if it has executed another
    /// program.
    #[must_use]
    pub fn of(&self, pid: Pid) -> Vec<Arc<Space>> {
        let all = self.all.read_recursive();
        let spaces = all.iter().flatten().filter_map(|memory| match memory {
            Memory::Process(space) => Some(space),
            Memory::Ring(_) | Memory::Gone(_) => None,
        });
        spaces.filter(|space| space.pid() == pid).cloned().collect()
    }

    /// Holds all memory: numbers keep their meaning meanwhile.
    pub fn hold(&self) -> HeldSpaces<'_> {
        HeldSpaces { all: self.all.read_recursive(), writes: &self.writes }
    }

    /// Waits until all that hold memory now have released it.
    pub fn drain(&self) {
        drop(self.all.write());
    }

    /// Returns the number of writes to the memory of processes so far, which wraps around.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }
}

/// A range in the memory of a process of which an adapter has the address. While this exists, the
/// number of the memory is no other one's.
#[derive(Debug)]
pub struct Placement {
    spaces: Arc<Spaces>,
    number: Number,
    addr: GuestAddr,
}

impl Placement {
    /// Returns the adapter's address of the range.
    #[must_use]
    pub fn addr(&self) -> GuestAddr {
        self.addr
    }
}

impl Drop for Placement {
    fn drop(&mut self) {
        self.spaces.unplace(self.number);
    }
}

/// All memory, held.
#[derive(Debug)]
pub struct HeldSpaces<'a> {
    all: RwLockReadGuard<'a, Numbered>,
    writes: &'a AtomicU64,
}

impl HeldSpaces<'_> {
    fn get(&self, number: Number) -> Option<&Memory> {
        self.all.get(number.index()?)?.as_ref()
    }

    /// Returns whether there is memory with this number.
    #[must_use]
    pub fn has(&self, number: Number) -> bool {
        self.get(number).is_some()
    }

    /// Copies memory out. Returns `None` if not all of it is there.
    #[inline]
    pub fn read(&self, number: Number, at: u64, into: &mut [u8]) -> Option<()> {
        match self.get(number)? {
            Memory::Process(space) => space.read(at, into).ok(),
            Memory::Ring(ring) => there(ring, words::read(ring.words(), at, into)),
            Memory::Gone(_) => None,
        }
    }

    /// Copies to memory. The last bytes become visible last. Returns `None` if not all of it can be
    /// written.
    #[inline]
    pub fn write(&self, number: Number, at: u64, from: &[u8]) -> Option<()> {
        match self.get(number)? {
            Memory::Process(space) => {
                self.writes.fetch_add(1, Ordering::Relaxed);
                space.write(at, from).ok()
            }
            Memory::Ring(ring) => there(ring, words::write(ring.words(), at, from)),
            Memory::Gone(_) => None,
        }
    }
}

/// Returns the result of an access to a ring, or `None` if it may have reached zeroes instead.
#[inline]
fn there(ring: &Guarded, done: Option<()>) -> Option<()> {
    done.filter(|()| !ring.is_lost())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use vrnic_queues::mapping::Mapping;

    use super::*;

    fn memory() -> Guarded {
        Guarded::new(Mapping::anonymous(4096).expect("memory")).expect("room")
    }

    /// Shows: hostile: a program that punches holes into its device file loses only its own rings
    #[test]
    fn a_ring_whose_pages_have_gone_is_not_there() {
        let spaces = Spaces::default();
        let file = tempfile::tempfile().expect("a file");
        file.set_len(4096).expect("a length");
        let ring = Mapping::device(file.as_fd(), 0, 4096).and_then(Guarded::new).expect("mapped");
        let numbers = [ring, memory()].map(|ring| spaces.insert_ring(ring).expect("room"));
        file.set_len(0).expect("a length");
        let held = spaces.hold();
        let write = |number| held.write(number, 0, &[7; 8]);
        assert_eq!(numbers.map(write), [None, Some(())]);
        assert_eq!(held.read(numbers[0], 0, &mut [0; 8]), None);
    }

    #[test]
    fn numbers_are_used_again_after_removal() {
        let spaces = Spaces::default();
        let own = || Space::open(Pid::this()).expect("own memory");
        let first = spaces.insert(own()).expect("room");
        let second = spaces.insert(own()).expect("room");
        assert_ne!(first, second);
        spaces.free(first);
        assert!(spaces.get(first).is_none() && spaces.get(second).is_some());
        assert_eq!(spaces.insert(own()), Ok(first));
        assert_eq!(spaces.of(Pid::this()).len(), 2);
    }

    #[test]
    fn the_memory_of_a_process_that_has_ended_is_free() {
        let spaces = Arc::new(Spaces::default());
        let mut children = [0, 1]
            .map(|_| std::process::Command::new("sleep").arg("60").spawn().expect("a program"));
        let numbers = children.each_ref().map(|child| {
            let pid = Pid::from_raw(i32::try_from(child.id()).expect("a number"));
            spaces.insert(Space::open(pid).expect("its memory")).expect("room")
        });
        let placement = spaces.place(numbers[1], 1 << 16).expect("an address");
        assert!(numbers.iter().all(|number| !spaces.free_ended(*number)));
        assert!(numbers.iter().all(|number| spaces.get(*number).is_some()), "they live");
        for child in &mut children {
            child.kill().and_then(|()| child.wait()).expect("a running process");
        }
        assert_eq!(numbers.map(|number| spaces.free_ended(number)), [true, true]);
        assert!(numbers.iter().all(|number| spaces.get(*number).is_none()));
        // An adapter may have addresses of the second one, so its number is not used again.
        let own = || spaces.insert(Space::open(Pid::this()).expect("own memory"));
        assert_eq!(own(), Ok(numbers[0]));
        assert!(own().is_ok_and(|number| !numbers.contains(&number)));
        assert_eq!(spaces.hold().read(numbers[1], 1 << 16, &mut [0; 8]), None);
        drop(placement);
        assert_eq!(own(), Ok(numbers[1]), "no adapter has an address any more");
    }

    #[test]
    fn an_address_has_the_number_of_its_memory() {
        let addr = Number(5).place(0x1234).expect("an address");
        assert_eq!(split(addr), (Number(5), 0x1234));
        assert_eq!(Number(5).place(END), Err(Errno::FAULT));
        assert!(Spaces::default().get(Number::DRIVER).is_none());
    }

    #[test]
    fn a_ring_ends_where_its_memory_ends() {
        let spaces = Spaces::default();
        let number = spaces.insert_ring(memory()).expect("room");
        let held = spaces.hold();
        assert_eq!(held.write(number, 4088, &[7; 8]), Some(()));
        let mut read = [0; 8];
        assert_eq!(held.read(number, 4088, &mut read), Some(()));
        assert_eq!(read, [7; 8]);
        assert_eq!(held.write(number, 4092, &[7; 8]), None);
        assert_eq!(held.read(number, END - 8, &mut read), None);
        assert_eq!(held.read(Number(2), 0, &mut read), None);
        drop(held);
        assert!(spaces.get(number).is_none(), "it is not a process");
    }

    #[test]
    fn rings_are_limited_and_leave_room_for_processes() {
        let spaces = Spaces::default();
        let ring = || spaces.insert_ring(memory());
        for _ in 0..RINGS_MAX {
            ring().expect("room");
        }
        assert_eq!(ring(), Err(Errno::NOMEM));
        assert!(spaces.insert(Space::open(Pid::this()).expect("own memory")).is_ok());
    }
}
