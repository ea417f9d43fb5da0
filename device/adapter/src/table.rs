//! Numbered objects.

use std::sync::Arc;

use parking_lot::RwLock;

/// Objects by number. Numbers are given round-robin, so that one is not used again soon after its
/// object's end.
#[derive(Debug)]
pub struct Table<T> {
    inner: RwLock<Inner<T>>,
    first: u32,
    max: u32,
}

#[derive(Debug)]
struct Inner<T> {
    slots: Vec<Option<Arc<T>>>,
    next: usize,
    used: u32,
}

impl<T> Table<T> {
    /// A table for up to `max` objects, numbered from `first` on.
    #[must_use]
    pub fn new(first: u32, max: u32) -> Self {
        let inner = Inner { slots: Vec::new(), next: 0, used: 0 };
        Self { inner: RwLock::new(inner), first, max }
    }

    /// The object with this number.
    #[must_use]
    pub fn get(&self, id: u32) -> Option<Arc<T>> {
        let index = usize::try_from(id.checked_sub(self.first)?).ok()?;
        self.inner.read().slots.get(index)?.clone()
    }

    /// Adds an object that learns its number from `make`; `None` when the table is full.
    ///
    /// # Errors
    /// What `make` returns; the table is unchanged then.
    pub fn insert<E>(&self, make: impl FnOnce(u32) -> Result<T, E>) -> Result<Option<Arc<T>>, E> {
        let mut inner = self.inner.write();
        if inner.used >= self.max {
            return Ok(None);
        }
        let len = inner.slots.len();
        // Grow before a number is used again, until the table has its full size.
        let index = if len < self.max as usize {
            len
        } else {
            let from = inner.next;
            let mut free = (from..len).chain(0..from);
            let Some(index) = free.find(|index| matches!(inner.slots.get(*index), Some(None)))
            else {
                return Ok(None);
            };
            index
        };
        let Ok(number) = u32::try_from(index) else { return Ok(None) };
        let object = Arc::new(make(self.first + number)?);
        if index == len {
            inner.slots.push(None);
        }
        if let Some(slot) = inner.slots.get_mut(index) {
            *slot = Some(Arc::clone(&object));
        }
        inner.used += 1;
        inner.next = index + 1;
        Ok(Some(object))
    }

    /// Takes an object out.
    pub fn remove(&self, id: u32) -> Option<Arc<T>> {
        let index = usize::try_from(id.checked_sub(self.first)?).ok()?;
        let mut inner = self.inner.write();
        let object = inner.slots.get_mut(index)?.take()?;
        inner.used -= 1;
        Some(object)
    }

    /// Takes all objects out.
    pub fn drain(&self) -> Vec<Arc<T>> {
        let mut inner = self.inner.write();
        inner.used = 0;
        inner.next = 0;
        inner.slots.drain(..).flatten().collect()
    }

    /// All objects.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<T>> {
        self.inner.read().slots.iter().flatten().cloned().collect()
    }
}
