//! The table of resources. Row 0 is for the adapter as a whole, and each function has a row.

use std::collections::BTreeMap;

use vrnic_adapter::assigned::Shrink;
use vrnic_adapter::limits::Limits;
use vrnic_adapter::limits::resource::Resource;
use vrnic_packet::MacAddr;

use super::refusal::Refusal;

/// The row of a function. The number that it uses of each resource is in its adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The function's name, which is also the name of its port.
    pub name: String,
    /// The MAC of its port.
    pub mac: MacAddr,
    /// The function's own maximum of each resource.
    pub maximum: Limits,
}

/// A function's row, with its number.
#[derive(Clone, Copy, Debug)]
pub struct Numbered<'a> {
    /// The number, from 1 on. It stays the same while the function exists.
    pub number: usize,
    /// The row with this number.
    pub row: &'a Row,
}

/// The table of the resources of all functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceTable {
    /// The maximum of the adapter, for the resources that have one of their own.
    physical: BTreeMap<Resource, u64>,
    /// The maximum of a function that has no resources of its own.
    default: Limits,
    rows: Box<[Option<Row>]>,
}

impl ResourceTable {
    /// Creates a table with free rows for `room` functions. A resource without an entry in
    /// `physical` is enough for `room` functions with the maximum `default`.
    #[must_use]
    pub fn new(room: usize, default: Limits, physical: BTreeMap<Resource, u64>) -> Self {
        Self { physical, default, rows: (0..room).map(|_| None).collect() }
    }

    /// Returns the rows of functions.
    pub fn rows(&self) -> impl Iterator<Item = Numbered<'_>> {
        let all = (1..).zip(self.rows.iter());
        all.filter_map(|(number, row)| Some(Numbered { number, row: row.as_ref()? }))
    }

    /// Returns the maximum of the adapter. That of a resource which is not used up is the maximum
    /// of each object.
    #[must_use]
    pub fn maximum(&self, resource: Resource) -> u64 {
        let room = if resource.is_used_up() { self.rows.len() as u64 } else { 1 };
        let all = || self.default.of(resource).saturating_mul(room);
        self.physical.get(&resource).copied().unwrap_or_else(all)
    }

    /// Returns the amount that is assigned to functions, all together. Returns `None` if objects do
    /// not use the resource up.
    #[must_use]
    pub fn assigned(&self, resource: Resource) -> Option<u64> {
        let rows = self.rows.iter().flatten();
        resource.is_used_up().then(|| rows.map(|row| row.maximum.of(resource)).sum())
    }

    /// Returns a function's maximum of each resource.
    ///
    /// # Errors
    /// [`Refusal::Absent`].
    pub fn of(&self, name: &str) -> Result<Limits, Refusal> {
        let row = self.rows.iter().flatten().find(|row| row.name == name);
        row.map(|row| row.maximum).ok_or_else(|| Refusal::Absent(name.to_owned()))
    }

    /// Adds a function, if enough of every resource is left.
    ///
    /// # Errors
    /// [`Refusal::Entries`] if no row is free, [`Refusal::Resources`] for the first resource of
    /// which less is left than the function requests.
    pub fn admit(&mut self, row: Row) -> Result<(), Refusal> {
        let (room, none) = (self.rows.len(), Limits::NONE);
        let free = self.rows.iter().position(Option::is_none).ok_or(Refusal::Entries(room))?;
        self.check(&none, &row.maximum)?;
        if let Some(place) = self.rows.get_mut(free) {
            *place = Some(row);
        }
        Ok(())
    }

    /// Checks whether enough of every resource is left to replace a function's maximum `old` by
    /// `new`. Less of a resource is always possible.
    ///
    /// # Errors
    /// [`Refusal::Resources`].
    pub fn check(&self, old: &Limits, new: &Limits) -> Result<(), Refusal> {
        for &resource in Resource::ALL {
            let (had, requested) = (old.of(resource), new.of(resource));
            let maximum = self.maximum(resource);
            let others = self.assigned(resource).map_or(0, |sum| sum.saturating_sub(had));
            let left = maximum.saturating_sub(others);
            if requested > had && requested > left {
                let resource = resource.name();
                return Err(Refusal::Resources { resource, requested, left, maximum });
            }
        }
        Ok(())
    }

    /// Sets the maximum of a function, which [`Self::check`] has accepted.
    pub fn replace(&mut self, name: &str, maximum: Limits) {
        if let Some(row) = self.rows.iter_mut().flatten().find(|row| row.name == name) {
            row.maximum = maximum;
        }
    }

    /// Removes a function, whose resources are then free.
    pub fn remove(&mut self, name: &str) {
        for place in &mut self.rows {
            place.take_if(|row| row.name == name);
        }
    }

    /// Returns the maxima of the adapter that are set.
    #[must_use]
    pub const fn physical(&self) -> &BTreeMap<Resource, u64> {
        &self.physical
    }

    /// Sets the maxima of the adapter. With [`Shrink::Drain`], a maximum may be below what is
    /// assigned; then functions get nothing more of it until less is assigned.
    ///
    /// # Errors
    /// [`Refusal::Assigned`] for the first resource of which more is assigned.
    pub fn set_physical(
        &mut self,
        physical: BTreeMap<Resource, u64>,
        shrink: Shrink,
    ) -> Result<(), Refusal> {
        let new = Self { physical, ..self.clone() };
        for &resource in Resource::ALL.iter().filter(|_| shrink == Shrink::Refuse) {
            let maximum = new.maximum(resource);
            let assigned = match resource.is_used_up() {
                true => new.assigned(resource).unwrap_or_default(),
                false => new.rows().map(|row| row.row.maximum.of(resource)).max().unwrap_or(0),
            };
            if maximum < self.maximum(resource) && assigned > maximum {
                return Err(Refusal::Assigned { resource: resource.name(), assigned, maximum });
            }
        }
        *self = new;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
