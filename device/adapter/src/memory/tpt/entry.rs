//! An entry of the table: the cache line that look-ups read, and the data behind it.

use std::sync::atomic::Ordering;

use vrnic_abi::admin::KeyKind;
use vrnic_abi::qp::Access;
use vrnic_abi::{Key, Pdn, Qpn};

use super::denied::Denied;
use super::message::{Message, Position};
use crate::domain::User;
use crate::memory::mtt::Table;
use crate::sync::{AtomicU32, AtomicU64, Mutex, beside, fence};

/// Number of attempts of a seqlock read. It fails if the entry is being written each time.
const READ_ATTEMPTS: u32 = 4;
/// The bit of an entry that is valid for one message.
const ONE_TOUCH: u8 = 1;
/// The bit of an entry that no local access reads.
const NO_LOCAL_READ: u8 = 2;
/// The value of [`Back::windows`] for an entry to which no windows can be bound.
const CLOSED: u32 = u32::MAX;

/// Kinds of valid entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A region.
    #[default]
    Region = 0,
    /// A window that is bound.
    Window = 1,
    /// A command's data.
    Command = 2,
}

/// The bytes of an entry that an access uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// The address of the first byte, as work requests name it.
    pub addr: u64,
    /// The number of bytes.
    pub len: u64,
}

/// The contents of a valid entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mr {
    /// The key of the region: index and instance.
    pub key: Key,
    /// The PD of the region.
    pub pdn: Pdn,
    /// The only QP that may use it; zero for all QPs of the PD.
    pub qpn: Qpn,
    /// The kind of the object.
    pub kind: Kind,
    /// True if it is valid for a single message.
    pub one_touch: bool,
    /// True if no local access reads it.
    pub no_local_read: bool,
    /// The rights.
    pub access: Access,
    /// Address of its first byte, as work requests name it.
    pub iova: u64,
    /// Length in bytes.
    pub length: u64,
    /// Offset of its first byte in its first page.
    pub offset: u64,
    /// The pages of the region, or the segments of a command.
    pub table: Table,
}

impl Default for Mr {
    fn default() -> Self {
        Self {
            key: Key::default(),
            pdn: Pdn::default(),
            qpn: Qpn::default(),
            kind: Kind::Region,
            one_touch: false,
            no_local_read: false,
            access: Access::empty(),
            iova: 0,
            length: 0,
            offset: 0,
            table: Table::default(),
        }
    }
}

impl Mr {
    /// Performs the checks that need only the entry, in order. Returns the offset of the first byte
    /// in its pages.
    #[inline(always)]
    pub(super) fn check(
        &self,
        key: Key,
        user: User,
        ByteRange { addr, len }: ByteRange,
        need: Access,
    ) -> Result<u64, Denied> {
        if self.pdn != user.pdn || (self.qpn.get() != 0 && self.qpn != user.qpn) {
            return Err(Denied::Foreign);
        }
        if self.key != key {
            return Err(Denied::Stale);
        }
        let start = addr.checked_sub(self.iova).ok_or(Denied::Bounds)?;
        if start > self.length || len > self.length - start {
            return Err(Denied::Bounds);
        }
        if !self.access.contains(need) {
            return Err(Denied::Rights);
        }
        self.offset.checked_add(start).ok_or(Denied::Bounds)
    }
}

/// The cache line that look-ups read: atomic words under a sequence count. Only a thread that holds
/// the lock of [`Back::cold`] writes it.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Entry {
    /// Odd while the entry is being written.
    sequence: AtomicU32,
    /// Zero if the entry is not valid.
    key: AtomicU32,
    pdn: beside::AtomicU32,
    qpn: beside::AtomicU32,
    access: beside::AtomicU32,
    /// Page shift, depth, kind, and bits of [`ONE_TOUCH`] and [`NO_LOCAL_READ`]: a byte each.
    shape: beside::AtomicU32,
    iova: beside::AtomicU64,
    length: beside::AtomicU64,
    offset: beside::AtomicU64,
    root: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Entry>() == 64);

impl Entry {
    /// Returns the entry's contents, if it is valid.
    #[inline(always)]
    pub(super) fn load(&self) -> Option<Mr> {
        self.last().filter(|mr| mr.key.get() != 0)
    }

    /// Returns the entry's contents or, with the key zero, those before it became invalid. Returns
    /// none only while a thread writes the entry.
    #[inline(always)]
    pub(super) fn last(&self) -> Option<Mr> {
        let order = Ordering::Relaxed;
        for _ in 0..READ_ATTEMPTS {
            let sequence = self.sequence.load(Ordering::Acquire);
            let [shift, depth, kind, options] = self.shape.load(order).to_le_bytes();
            let mr = Mr {
                key: self.key.load(order).into(),
                pdn: self.pdn.load(order).into(),
                qpn: self.qpn.load(order).into(),
                kind: match kind {
                    0 => Kind::Region,
                    1 => Kind::Window,
                    _ => Kind::Command,
                },
                one_touch: options & ONE_TOUCH != 0,
                no_local_read: options & NO_LOCAL_READ != 0,
                access: Access::from_bits_retain(self.access.load(order)),
                iova: self.iova.load(order),
                length: self.length.load(order),
                offset: self.offset.load(order),
                table: Table { shift, depth, root: self.root.load(order) },
            };
            fence(Ordering::Acquire);
            if sequence & 1 == 0 && self.sequence.load(order) == sequence {
                return Some(mr);
            }
        }
        // The entry is being created or destroyed; reporting it absent is linearizable.
        None
    }

    /// Makes the entry valid.
    pub(super) fn store(&self, mr: &Mr) {
        let order = Ordering::Relaxed;
        let sequence = self.sequence.load(order);
        self.sequence.store(sequence.wrapping_add(1), order);
        fence(Ordering::Release);
        self.key.store(mr.key.get(), order);
        self.pdn.store(mr.pdn.get(), order);
        self.qpn.store(mr.qpn.get(), order);
        self.access.store(mr.access.bits(), order);
        let Table { shift, depth, root } = mr.table;
        let bit = |is: bool, bit: u8| if is { bit } else { 0 };
        let options = bit(mr.one_touch, ONE_TOUCH) | bit(mr.no_local_read, NO_LOCAL_READ);
        let shape = [shift, depth, mr.kind as u8, options];
        self.shape.store(u32::from_le_bytes(shape), order);
        self.iova.store(mr.iova, order);
        self.length.store(mr.length, order);
        self.offset.store(mr.offset, order);
        self.root.store(root, order);
        self.sequence.store(sequence.wrapping_add(2), Ordering::Release);
    }

    /// Makes the entry invalid. A thread that has loaded it before may still use it while it holds
    /// the guest's memory.
    pub(super) fn invalidate(&self) {
        // A look-up that reads old values of the other words reads either this one, or the sequence
        // of a later entry.
        self.key.store(0, Ordering::SeqCst);
    }
}

/// The object that an index belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Owner {
    /// No object: the index is free.
    #[default]
    None,
    /// A region registered by command.
    Region,
    /// A region for fast registration.
    Fast,
    /// A window of type 1.
    Window1,
    /// A window of type 2.
    Window2,
    /// A command.
    Command,
    /// An object that was removed, but may still be in use.
    Leaving,
}

impl Owner {
    /// Returns the kind for inspection, or `None` if the entry is free.
    pub(super) fn kind(self) -> Option<KeyKind> {
        Some(match self {
            Self::None => return None,
            Self::Region => KeyKind::Region,
            Self::Fast => KeyKind::Fast,
            Self::Window1 => KeyKind::Window1,
            Self::Window2 => KeyKind::Window2,
            Self::Command => KeyKind::Command,
            Self::Leaving => KeyKind::Leaving,
        })
    }
}

/// An index in use, as inspection shows it.
#[derive(Clone, Debug)]
pub struct Known {
    /// The key of the object, valid or not.
    pub key: Key,
    /// The PD of the object.
    pub pdn: Pdn,
    /// The kind of the object.
    pub kind: KeyKind,
    /// The contents, if the key is valid.
    pub valid: Option<Mr>,
    /// Windows bound to it.
    pub windows: u32,
}

/// The data that look-ups do not need.
#[derive(Debug, Default)]
pub(super) struct Cold {
    pub(super) owner: Owner,
    /// Instance of the last key that the device has assigned.
    pub(super) instance: u8,
    /// The key, valid or not.
    pub(super) key: Key,
    pub(super) pdn: Pdn,
    /// The QP of a command.
    pub(super) qpn: Qpn,
    /// The name that its consumer has for a command.
    pub(super) command: u32,
    /// Index of the region of a bound window.
    pub(super) region: Option<u32>,
    /// The pages that belong to the entry itself.
    pub(super) table: Table,
    /// True if its pages come and go.
    pub(super) paged: bool,
    /// True if all access to it has been ended for good.
    pub(super) revoked: bool,
    /// Maximum number of pages of a fast registration.
    pub(super) max_pages: u32,
    /// The message that has used the entry, if that is valid for one message.
    pub(super) bound_to: Option<Message>,
    /// The position after the last segment of a message that was placed out of order, if the entry
    /// is valid for one message.
    pub(super) touched: Option<Position>,
}

/// The object behind an entry.
#[derive(Debug)]
pub(super) struct Back {
    /// Number of windows bound to the region. [`CLOSED`] unless the entry is a valid region, or is
    /// becoming one.
    windows: AtomicU32,
    pub(super) cold: Mutex<Cold>,
}

impl Default for Back {
    fn default() -> Self {
        Self { windows: AtomicU32::new(CLOSED), cold: Mutex::default() }
    }
}

impl Back {
    /// Counts one more window. Returns false if no windows can be bound to the region any more.
    pub(super) fn hold(&self) -> bool {
        let more = |windows: u32| windows.checked_add(1).filter(|more| *more != CLOSED);
        self.windows.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// Returns the number of windows that are bound.
    pub(super) fn bound(&self) -> u32 {
        match self.windows.load(Ordering::Relaxed) {
            CLOSED => 0,
            windows => windows,
        }
    }

    /// Counts one window less.
    pub(super) fn release(&self) {
        self.windows.fetch_sub(1, Ordering::AcqRel);
    }

    /// Allows no more windows. Returns false if one is bound.
    pub(super) fn close(&self) -> bool {
        let closed = self.windows.compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Acquire);
        closed.is_ok() || closed == Err(CLOSED)
    }

    /// Allows windows, for a region that becomes valid after this.
    pub(super) fn open(&self) {
        self.windows.store(0, Ordering::Release);
    }

    /// Ends an entry, which has no more windows.
    pub(super) fn shut(&self) {
        self.windows.store(CLOSED, Ordering::Release);
    }
}

/// The two halves of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot<'a> {
    pub(super) entry: &'a Entry,
    pub(super) back: &'a Back,
}
