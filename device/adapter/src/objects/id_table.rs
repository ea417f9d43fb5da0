//! Tables of numbered objects.

use std::marker::PhantomData;
use std::sync::Arc;

use parking_lot::RwLock;

/// Objects by their number of type `N`. Numbers are assigned round-robin, so that a number is not
/// reused soon after its object's end.
#[derive(Debug)]
pub struct IdTable<N, T> {
    inner: RwLock<Inner<T>>,
    first: u32,
    number: PhantomData<N>,
}

#[derive(Debug)]
struct Inner<T> {
    slots: Vec<Option<Arc<T>>>,
    next: usize,
    used: u32,
    max: u32,
}

impl<N: From<u32> + Into<u32>, T> IdTable<N, T> {
    /// Creates a table for up to `max` objects, numbered from `first` on.
    #[must_use]
    pub fn new(first: u32, max: u32) -> Self {
        let inner = Inner { slots: Vec::new(), next: 0, used: 0, max };
        Self { inner: RwLock::new(inner), first, number: PhantomData }
    }

    /// Changes the maximum number of objects. Objects above it stay.
    pub fn set_max(&self, max: u32) {
        self.inner.write().max = max;
    }

    /// Returns the object with this number.
    #[must_use]
    pub fn get(&self, id: N) -> Option<Arc<T>> {
        self.inner.read().slots.get(self.index(id)?)?.clone()
    }

    /// Passes the object with this number to `f`, which must not wait, and returns the result. This
    /// takes less time than [`Self::get`], which writes to a word of the object.
    pub fn with<R>(&self, id: N, f: impl FnOnce(&T) -> R) -> Option<R> {
        self.inner.read().slots.get(self.index(id)?)?.as_deref().map(f)
    }

    fn index(&self, id: N) -> Option<usize> {
        usize::try_from(id.into().checked_sub(self.first)?).ok()
    }

    /// Adds an object that gets its number in `make`. Returns `None` if the table is full.
    ///
    /// # Errors
    /// Returns the error of `make`. The table is unchanged then.
    pub fn insert<E>(&self, make: impl FnOnce(N) -> Result<T, E>) -> Result<Option<Arc<T>>, E> {
        let mut inner = self.inner.write();
        if inner.used >= inner.max {
            return Ok(None);
        }
        let len = inner.slots.len();
        // The table grows to its full size before a number is reused.
        let index = if len < inner.max as usize {
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
        let object = Arc::new(make(N::from(self.first + number))?);
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

    /// Removes an object, and returns it.
    pub fn remove(&self, id: N) -> Option<Arc<T>> {
        let index = self.index(id)?;
        let mut inner = self.inner.write();
        let object = inner.slots.get_mut(index)?.take()?;
        inner.used -= 1;
        Some(object)
    }

    /// Calls `f`, which must not wait, for all objects.
    pub fn each(&self, f: impl FnMut(&T)) {
        self.inner.read().slots.iter().flatten().map(Arc::as_ref).for_each(f);
    }

    /// Removes all objects, and returns them. Their numbers are not reused soon.
    pub fn drain(&self) -> Vec<Arc<T>> {
        let mut inner = self.inner.write();
        inner.used = 0;
        inner.slots.iter_mut().filter_map(Option::take).collect()
    }

    /// Removes all objects. The next one gets the first number again.
    pub fn restart(&self) {
        let mut inner = self.inner.write();
        (inner.used, inner.next) = (0, 0);
        inner.slots.clear();
    }

    /// Returns the number of objects.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.inner.read().used
    }

    /// Returns whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all objects.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<T>> {
        self.inner.read().slots.iter().flatten().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(table: &IdTable<u32, u32>) -> Option<u32> {
        table.insert(Ok::<_, ()>).expect("made").map(|number| *number)
    }

    #[test]
    fn numbers_are_used_again_late() {
        let table = IdTable::new(2, 4);
        assert_eq!([(); 2].map(|()| insert(&table)), [Some(2), Some(3)]);
        assert_eq!(table.remove(2).map(|number| *number), Some(2));
        assert!(table.get(2).is_none() && table.remove(2).is_none());
        assert_eq!([(); 3].map(|()| insert(&table)), [Some(4), Some(5), Some(2)]);
        assert_eq!(insert(&table), None);
        assert_eq!(table.drain().len(), 4);
        assert_eq!(insert(&table), Some(3));
        table.restart();
        assert_eq!(insert(&table), Some(2));
        assert!(table.get(u32::MAX).is_none() && table.get(0).is_none());
    }

    #[test]
    fn a_lower_maximum_lets_objects_stay() {
        let table = IdTable::new(0, 3);
        assert_eq!([(); 3].map(|()| insert(&table)), [Some(0), Some(1), Some(2)]);
        table.set_max(2);
        assert_eq!((table.len(), insert(&table)), (3, None));
        table.remove(0);
        assert_eq!(insert(&table), None);
        table.remove(1);
        assert_eq!((insert(&table), insert(&table)), (Some(0), None));
        table.set_max(4);
        assert_eq!([(); 3].map(|()| insert(&table)), [Some(3), Some(1), None]);
    }

    #[test]
    fn a_failed_insert_changes_nothing() {
        let table = IdTable::new(0, 1);
        assert_eq!(table.insert(|_| Err::<u32, _>("no")).map(|_| ()), Err("no"));
        assert_eq!(insert(&table), Some(0));
    }
}
