//! The way of the adapter's events to the files from which programs read them.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use vrnic_abi::eq::Kind;

use super::channel::Channel;
use crate::adapter::bell::Bell;
use crate::adapter::worker::Events;

/// The kind of an object that has events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A completion queue.
    Cq,
    /// A queue pair.
    Qp,
    /// A shared receive queue.
    Srq,
}

/// An object that has events: its adapter, its kind and its number there.
pub type Key = (usize, Source, u32);

/// The number of an opening of a queue pair that programs share.
pub type Opening = u64;

/// The way of the events of an object to its program.
#[derive(Debug, Default)]
pub struct Route {
    /// The program's number for it.
    pub user_handle: u64,
    /// The channel for completion events, of a completion queue.
    pub completions: Option<Arc<Channel>>,
    /// The channel for asynchronous events.
    pub events: Option<Arc<Channel>>,
    /// Number of completion events that were sent.
    pub completion_count: u32,
    /// Number of asynchronous events that were sent.
    pub event_count: u32,
}

impl Route {
    /// Ends. Returns the numbers of completion events and of asynchronous events that the program
    /// has read.
    fn end(self) -> [u32; 2] {
        let unread = |channel: &Option<Arc<Channel>>| {
            channel.as_ref().map_or(0, |channel| channel.take_back(self.user_handle))
        };
        [
            self.completion_count.wrapping_sub(unread(&self.completions)),
            self.event_count.wrapping_sub(unread(&self.events)),
        ]
    }
}

/// The ways of all objects.
#[derive(Debug, Default)]
pub struct Routes {
    objects: Mutex<HashMap<Key, Route>>,
    /// Ways of queue pairs that several programs have opened, by opening.
    shared: Mutex<HashMap<Key, BTreeMap<Opening, Route>>>,
    /// Number of openings so far.
    openings: AtomicU64,
    /// The channels for the events of ports and devices, with their adapters.
    devices: Mutex<Vec<(usize, Arc<Channel>)>>,
    /// Number of device files that are open.
    files: AtomicUsize,
    /// True if records wait in a channel.
    waits: AtomicBool,
    /// The bell of messages for connection managers.
    bell: OnceLock<Arc<Bell>>,
}

impl Routes {
    /// Adds an object.
    pub fn insert(&self, key: Key, route: Route) {
        self.objects.lock().insert(key, route);
    }

    /// Removes an object. Returns the numbers of completion events and of asynchronous events that
    /// the program has read. It acknowledges these before it forgets the object.
    pub fn remove(&self, key: Key) -> [u32; 2] {
        self.objects.lock().remove(&key).map_or([0; 2], |route| route.end())
    }

    /// Adds an opening of a queue pair that programs share. Each gets all events. Returns its
    /// number.
    pub fn insert_shared(&self, key: Key, route: Route) -> Opening {
        let opening = self.openings.fetch_add(1, Ordering::Relaxed);
        self.shared.lock().entry(key).or_default().insert(opening, route);
        opening
    }

    /// Removes an opening. Returns what [`Self::remove`] does.
    pub fn remove_shared(&self, key: Key, opening: Opening) -> [u32; 2] {
        let mut shared = self.shared.lock();
        let Entry::Occupied(mut all) = shared.entry(key) else { return [0; 2] };
        let removed = all.get_mut().remove(&opening);
        if all.get().is_empty() {
            all.remove();
        }
        drop(shared);
        removed.map_or([0; 2], |route| route.end())
    }

    /// Adds a channel for the events of an adapter.
    pub fn add_device(&self, adapter: usize, channel: &Arc<Channel>) {
        self.devices.lock().push((adapter, Arc::clone(channel)));
    }

    /// Removes a channel.
    pub fn remove_device(&self, channel: &Arc<Channel>) {
        self.devices.lock().retain(|(_, other)| !Arc::ptr_eq(other, channel));
    }

    /// Sets what rings when messages of connection managers wait. Only the first call has an
    /// effect.
    pub fn set_bell(&self, bell: &Arc<Bell>) {
        let _first = self.bell.set(Arc::clone(bell));
    }

    /// Records that a device file has been opened.
    pub fn opened(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that a device file has been closed.
    pub fn closed(&self) {
        self.files.fetch_sub(1, Ordering::Relaxed);
    }

    /// Sends an asynchronous event of an object.
    fn report(&self, route: &mut Route, number: u32) {
        if let Some(channel) = &route.events
            && self.push(channel, record(route.user_handle, number))
        {
            route.event_count = route.event_count.wrapping_add(1);
        }
    }

    fn push(&self, channel: &Channel, record: [u8; 16]) -> bool {
        let sent = channel.push(record);
        if channel.waits() {
            self.waits.store(true, Ordering::Relaxed);
        }
        sent
    }
}

/// Returns the record of an asynchronous event (`struct ib_uverbs_async_event_desc`).
fn record(element: u64, number: u32) -> [u8; 16] {
    let mut record = [0; 16];
    let [low, high] = [u128::from(element), u128::from(number) << 64];
    record.copy_from_slice(&(low | high).to_le_bytes());
    record
}

impl Events for Routes {
    fn event(&self, adapter: usize, kind: Kind, id: u32) {
        let Some((source, number)) = verbs_event(kind) else {
            // A port or the device.
            if let Some(number) = device_event(kind) {
                let devices = self.devices.lock();
                for (_, channel) in devices.iter().filter(|(of, _)| *of == adapter) {
                    let _counted_nowhere = self.push(channel, record(id.into(), number));
                }
            }
            return;
        };
        let mut objects = self.objects.lock();
        let key = (adapter, source, id);
        let Some(route) = objects.get_mut(&key) else {
            let mut shared = self.shared.lock();
            let all = shared.get_mut(&key).into_iter().flat_map(BTreeMap::values_mut);
            return all.for_each(|route| self.report(route, number));
        };
        if kind == Kind::Completion {
            if let Some(channel) = &route.completions
                && self.push(channel, record(route.user_handle, 0))
            {
                route.completion_count = route.completion_count.wrapping_add(1);
            }
        } else {
            self.report(route, number);
        }
    }

    fn messages(&self) {
        if let Some(bell) = self.bell.get() {
            bell.ring();
        }
    }

    fn retry(&self) {
        if !self.waits.swap(false, Ordering::Relaxed) {
            return;
        }
        let objects = self.objects.lock();
        let channels = objects.values().flat_map(|route| [&route.completions, &route.events]);
        let mut waits = false;
        channels.flatten().for_each(|channel| waits |= channel.retry());
        let shared = self.shared.lock();
        let channels = shared.values().flat_map(BTreeMap::values).flat_map(|route| &route.events);
        channels.for_each(|channel| waits |= channel.retry());
        self.devices.lock().iter().for_each(|(_, channel)| waits |= channel.retry());
        if waits {
            self.waits.store(true, Ordering::Relaxed);
        }
    }

    fn is_used(&self) -> bool {
        self.files.load(Ordering::Relaxed) > 0
    }
}

/// Returns the kind of object that an event is of, and the event's number in verbs
/// (`enum ib_event_type`). `None` if it is not of an object of a program.
fn verbs_event(kind: Kind) -> Option<(Source, u32)> {
    Some(match kind {
        Kind::Completion | Kind::CqError | Kind::CqFull | Kind::CqFew => (Source::Cq, 0),
        Kind::QpFatal => (Source::Qp, 1),
        Kind::QpRequestError => (Source::Qp, 2),
        Kind::QpAccessError => (Source::Qp, 3),
        Kind::CommEstablished => (Source::Qp, 4),
        Kind::SqDrained => (Source::Qp, 5),
        Kind::SrqError => (Source::Srq, 14),
        Kind::SrqLimit => (Source::Srq, 15),
        Kind::QpLastWqe => (Source::Qp, 16),
        _ => return None,
    })
}

/// Returns the number in verbs of an event of a port or the device.
fn device_event(kind: Kind) -> Option<u32> {
    Some(match kind {
        Kind::DeviceFatal => 8,
        Kind::PortUp => 9,
        Kind::PortDown => 10,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_is_an_error_of_the_queue_as_the_driver_reports_it() {
        for kind in [Kind::CqError, Kind::CqFull, Kind::CqFew] {
            assert_eq!(verbs_event(kind), Some((Source::Cq, 0)), "{kind:?}");
        }
    }
}
