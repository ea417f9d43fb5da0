//! The guest's physical memory that the device may access: the ranges that the VMM maps with
//! DMA_MAP.
//!
//! Each worker has a copy of the list of ranges ([`Lane`]) and holds its lock for a turn, as a
//! [`DmaView`]. A change replaces one copy after the other. It returns when no thread uses the old
//! list any more, so no access to a range follows the reply to the VMM that has unmapped it. A
//! change locks only one copy at a time, and no view is taken for writing, so no cycle of waits can
//! arise.

use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, RwLock};
use vrnic_adapter::host::{Lane, Transfers};

use super::external::ExternalMemory;
use super::fault::MapError;
use super::files::Files;
use super::mapping::Mapping;
use super::messages::Messages;
use super::range::DmaRange;
use super::ranges::{Entry, Ranges};
use super::rules::MapRules;
use super::view::{DmaView, Reach};

/// All memory that has an address.
#[derive(Debug)]
struct Map {
    ranges: Ranges,
    /// The mappings of the files of the ranges.
    files: Files,
    /// The adapter's own memory, which no VMM maps.
    device: Option<Entry>,
    /// The bus-master bit.
    bus_master: bool,
    /// True if the present VMM has left a write unanswered too long.
    is_cut: bool,
}

impl Map {
    /// Returns the ranges that the workers can access. A VMM maps the BARs of all devices as ranges
    /// without memory, and device memory replaces a part of them. Memory of the VMM takes
    /// precedence over device memory.
    fn reach(&self) -> Reach {
        let mut ranges = self.ranges.clone();
        if let Some(device) = &self.device
            && !self.has_memory(device.first..=device.last)
        {
            let before = ranges.at(device.first).and_then(|entry| entry.below(device.first));
            let after = ranges.at(device.last).and_then(|entry| entry.above(device.last));
            let new = before.into_iter().chain([device.clone()]).chain(after).collect();
            ranges.splice(&(device.first..=device.last), new);
        }
        Reach { ranges, bus_master: self.bus_master && !self.is_cut }
    }

    /// Returns whether the VMM has mapped memory in a span.
    fn has_memory(&self, mut span: RangeInclusive<u64>) -> bool {
        while let Some(entry) = self.ranges.first_in(&span) {
            if entry.memory.is_some() {
                return true;
            }
            let Some(next) = entry.last.checked_add(1) else { return false };
            span = next..=*span.end();
        }
        false
    }
}

/// The table of an adapter.
#[derive(Debug)]
pub struct DmaTable {
    /// Maximum number of ranges.
    ranges_max: usize,
    /// The source of the workers' copies. Its lock serialises changes.
    map: Mutex<Map>,
    lanes: Box<[CachePadded<RwLock<Reach>>]>,
    /// The memory that is reached by messages to the VMM, if the settings allow these.
    external: Option<Arc<ExternalMemory>>,
}

impl DmaTable {
    /// Creates an empty table for adapter `name` and this many workers.
    #[must_use]
    pub fn new(name: &str, workers: usize, rules: MapRules) -> Self {
        let lanes = (0..Lane::count(workers)).map(|_| CachePadded::default()).collect();
        let files = Files::new(name, rules);
        let (ranges, bus_master, is_cut) = (Ranges::default(), false, false);
        let map = Map { ranges, files, device: None, bus_master, is_cut };
        let external = rules.messages.then(Arc::default);
        Self { ranges_max: rules.ranges, map: Mutex::new(map), lanes, external }
    }

    /// Returns the memory as it is now, for a thread in `lane`. It does not change while the view
    /// exists. The thread may take views of several tables, or of this one again, but must not
    /// change a table while it holds a view.
    #[inline]
    #[must_use]
    pub fn view(&self, lane: Lane) -> DmaView<'_> {
        let lane = lane.index(self.lanes.len());
        // A waiting change must not block a second view of the same thread, hence a recursive lock.
        DmaView::new(self.lanes[lane].read_recursive(), self.external.as_deref())
    }

    /// Returns the memory that is reached by messages to the VMM, if the settings allow these.
    #[must_use]
    pub fn external(&self) -> Option<&Arc<ExternalMemory>> {
        self.external.as_ref()
    }

    /// Waits until all views that exist now have been dropped. The caller holds no view.
    pub fn drain(&self) {
        for lane in &self.lanes {
            drop(lane.write());
        }
    }

    /// Sets the bus-master bit, which allows the device to access guest memory.
    pub fn set_bus_master(&self, on: bool) {
        let mut map = self.map.lock();
        if map.bus_master != on {
            map.bus_master = on;
            self.publish(&map);
            self.end_transfers();
        }
    }

    /// Maps the adapter's own memory at a bus address, or nowhere, and waits for accesses to it at
    /// its previous address. An address at which the memory would exceed the address space counts
    /// as nowhere.
    pub fn set_device_memory(&self, at: Option<u64>, memory: &Arc<Mapping>) {
        let mut map = self.map.lock();
        map.device = at.and_then(|first| {
            let last = last_of(first, memory.len() as u64).ok()?;
            let memory = Some(Arc::clone(memory));
            Some(Entry { first, last, readable: true, writable: true, base: 0, memory })
        });
        self.publish(&map);
    }

    /// Returns whether the bus-master bit is set.
    #[must_use]
    pub fn bus_master(&self) -> bool {
        self.map.lock().bus_master
    }

    /// Adds a range. It becomes one with its neighbours if they adjoin it in addresses and in
    /// memory, and allow the same accesses.
    ///
    /// # Errors
    /// See [`MapError`]. The table is unchanged in case of an error.
    pub fn map(&self, range: DmaRange) -> Result<(), MapError> {
        let DmaRange { iova, size, readable, writable, .. } = range;
        let last = last_of(iova, size)?;
        let mut map = self.map.lock();
        self.has_room(&map, 1)?;
        if map.ranges.first_in(&(iova..=last)).is_some() {
            return Err(MapError::Overlap { iova, size });
        }
        let memory = range.file.as_ref().map(|file| map.files.memory(&range, file)).transpose()?;
        let (memory, base) = memory.unzip();
        let base = base.unwrap_or(0);
        let mut entry = Entry { first: iova, last, readable, writable, base, memory };
        let before = iova.checked_sub(1).and_then(|addr| map.ranges.at(addr));
        if let Some(before) = before.filter(|before| before.continues_in(&entry)) {
            (entry.first, entry.base) = (before.first, before.base);
        }
        let after = last.checked_add(1).and_then(|addr| map.ranges.at(addr));
        if let Some(after) = after.filter(|after| entry.continues_in(after)) {
            entry.last = after.last;
        }
        map.ranges.splice(&(entry.first..=entry.last), vec![entry]);
        self.publish(&map);
        Ok(())
    }

    /// Removes all addresses of a range, and waits for their users. It is not an error if there are
    /// none. What is left of ranges that are only partly inside stays mapped.
    ///
    /// # Errors
    /// [`MapError::TooMany`] if there would be too many ranges, because one is split in two, and
    /// [`MapError::BadRange`]. The table is then unchanged.
    pub fn unmap(&self, iova: u64, size: u64) -> Result<(), MapError> {
        let last = last_of(iova, size)?;
        let mut map = self.map.lock();
        if let Some(external) = &self.external {
            external.end_span(iova, size);
        }
        let Some(first) = map.ranges.first_in(&(iova..=last)) else { return Ok(()) };
        let rest = [first.below(iova), map.ranges.at(last).and_then(|entry| entry.above(last))];
        let is_split = first.first < iova && last < first.last;
        self.has_room(&map, usize::from(is_split))?;
        let rest = rest.into_iter().flatten().collect();
        map.ranges.splice(&(iova..=last), rest);
        self.publish(&map);
        Ok(())
    }

    /// Records the connection of a new VMM, whose ranges will be mapped, and its way for messages.
    pub fn connect(&self, connection: OwnedFd, messages: Arc<dyn Messages>) {
        let mut map = self.map.lock();
        map.files.connection = Some(connection);
        map.is_cut = false;
        self.publish(&map);
        drop(map);
        if let Some(external) = &self.external {
            external.connect(messages);
        }
    }

    /// Removes all ranges, waits for their users, and closes the connection of the VMM.
    pub fn disconnect(&self) {
        self.unmap_all();
        if let Some(external) = &self.external {
            external.disconnect();
        }
        self.map.lock().files.connection = None;
    }

    /// Removes all ranges and waits for their users.
    pub fn unmap_all(&self) {
        let mut map = self.map.lock();
        map.ranges = Ranges::default();
        self.publish(&map);
        self.end_transfers();
    }

    /// Ends all transfers by messages.
    pub fn end_transfers(&self) {
        if let Some(external) = &self.external {
            external.end_all();
        }
    }

    /// Sets whether [`Self::wait_for_transfers`] may wait.
    pub fn let_wait(&self, may: bool) {
        if let Some(external) = &self.external {
            external.let_wait(may);
        }
    }

    /// Waits until no access by messages that was ended takes place any more. The caller is not the
    /// thread that serves the VMM, and holds no view.
    pub fn wait_until_quiet(&self) {
        let is_quiet = self.external.as_ref().is_none_or(|external| external.is_quiet());
        if !is_quiet {
            self.cut();
        }
    }

    /// Waits until none of these accesses by messages that were begun before takes place any more.
    /// The caller is not the thread that serves the VMM, and holds no view.
    pub fn wait_for_transfers(&self, of: &Transfers<'_>) {
        let is_over = self.external.as_ref().is_none_or(|external| external.wait_for_transfers(of));
        if !is_over {
            self.cut();
        }
    }

    /// Ends the connection of a VMM that does not answer, and takes all memory from the adapter
    /// before. So the guest never learns that the adapter is quiet, neither from a register nor
    /// from a completion.
    fn cut(&self) {
        tracing::error!(
            "a VMM is disconnected because it does not answer a write to memory, which the guest would use for something else"
        );
        let mut map = self.map.lock();
        map.is_cut = true;
        self.publish(&map);
        drop(map);
        self.end_transfers();
        if let Some(external) = &self.external {
            external.hang_up();
        }
    }

    /// Returns whether memory of a range has been lost, as far as this is known without an access.
    #[must_use]
    pub fn has_lost(&self) -> bool {
        self.map.try_lock().is_some_and(|map| map.files.has_lost())
    }

    /// Returns the number of bytes of guest memory that can be accessed.
    #[cfg(test)]
    fn reachable(&self) -> u64 {
        let map = self.map.lock();
        let (mut bytes, mut span) = (0, 0..=u64::MAX);
        while let Some(entry) = map.ranges.first_in(&span) {
            bytes += if entry.memory.is_some() { entry.last - entry.first + 1 } else { 0 };
            span = entry.last + 1..=u64::MAX;
        }
        bytes
    }

    /// Checks that the table may have this many more ranges.
    fn has_room(&self, map: &Map, more: usize) -> Result<(), MapError> {
        let limit = self.ranges_max;
        if map.ranges.len().saturating_add(more) > limit {
            return Err(MapError::TooMany { limit });
        }
        Ok(())
    }

    /// Replaces all copies, each one when its user releases it. The previous ranges, and mappings
    /// without a range, end on this thread, and no worker waits for that.
    fn publish(&self, map: &Map) {
        let reach = map.reach();
        for lane in &self.lanes {
            let before = std::mem::replace(&mut *lane.write(), reach.clone());
            drop(before);
        }
    }
}

/// Returns the last address of a range.
fn last_of(iova: u64, size: u64) -> Result<u64, MapError> {
    size.checked_sub(1)
        .and_then(|more| iova.checked_add(more))
        .ok_or(MapError::BadRange { iova, size })
}

#[cfg(test)]
mod tests;
