//! An entry of the table: the line that look-ups read, and what stands behind it.

use std::sync::atomic::Ordering;

use vrnic_abi::admin::KeyKind;
use vrnic_abi::qp::Access;
use vrnic_abi::{Key, Pdn, Qpn};

use super::denied::Denied;
use super::message::Touch;
use crate::memory::mtt::Table;
use crate::sync::{AtomicU32, AtomicU64, Mutex, beside, fence};

/// Seqlock read: it fails if the entry is being written.
const LOOKS: u32 = 4;
/// [`Back::windows`] of an entry that takes none.
const CLOSED: u32 = u32::MAX;

/// Kinds of valid entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A region.
    #[default]
    Region = 0,
    /// A window, bound.
    Window = 1,
    /// A command's data.
    Command = 2,
}

/// The user of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// The PD of its QP.
    pub pdn: Pdn,
    /// Its QP.
    pub qpn: Qpn,
}

/// The bytes of an entry that are to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// The address of the first, as work requests name it.
    pub addr: u64,
    /// Their number.
    pub len: u64,
}

/// Contents of a valid entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mr {
    /// Its key: index and instance.
    pub key: Key,
    /// Its PD.
    pub pdn: Pdn,
    /// The only QP that may use it; zero for all of the PD.
    pub qpn: Qpn,
    /// The kind of the object.
    pub kind: Kind,
    /// True if it serves a single message.
    pub one_touch: bool,
    /// The rights.
    pub access: Access,
    /// Address of its first byte, as work requests name it.
    pub iova: u64,
    /// Length in bytes.
    pub length: u64,
    /// Offset of its first byte in its first page.
    pub offset: u64,
    /// Its pages; of a command, its segments.
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
            access: Access::empty(),
            iova: 0,
            length: 0,
            offset: 0,
            table: Table::default(),
        }
    }
}

impl Mr {
    /// The checks that an entry itself can answer, in order; the offset of the first byte in its
    /// pages.
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

/// The line that look-ups read: atomic words under a sequence count. It is written under the lock
/// of [`Back::cold`] alone.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Entry {
    /// Odd while the entry changes.
    sequence: AtomicU32,
    /// Zero while the entry is not valid.
    key: AtomicU32,
    pdn: beside::AtomicU32,
    qpn: beside::AtomicU32,
    access: beside::AtomicU32,
    /// Page shift, depth, kind, and whether it is good for one message: a byte each.
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

    /// Returns the entry's contents or, with the key zero, those before it became invalid. They are
    /// there whenever no thread changes the entry.
    #[inline(always)]
    pub(super) fn last(&self) -> Option<Mr> {
        let order = Ordering::Relaxed;
        for _ in 0..LOOKS {
            let sequence = self.sequence.load(Ordering::Acquire);
            let [shift, depth, kind, one_touch] = self.shape.load(order).to_le_bytes();
            let mr = Mr {
                key: self.key.load(order).into(),
                pdn: self.pdn.load(order).into(),
                qpn: self.qpn.load(order).into(),
                kind: match kind {
                    0 => Kind::Region,
                    1 => Kind::Window,
                    _ => Kind::Command,
                },
                one_touch: one_touch != 0,
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
        let shape = [shift, depth, mr.kind as u8, u8::from(mr.one_touch)];
        self.shape.store(u32::from_le_bytes(shape), order);
        self.iova.store(mr.iova, order);
        self.length.store(mr.length, order);
        self.offset.store(mr.offset, order);
        self.root.store(root, order);
        self.sequence.store(sequence.wrapping_add(2), Ordering::Release);
    }

    /// Makes the entry invalid. Who loaded it before may still use it while it holds the guest's
    /// memory.
    pub(super) fn invalidate(&self) {
        // A look-up whose other words are old sees this one or the sequence of a later entry.
        self.key.store(0, Ordering::SeqCst);
    }
}

/// To whom an index belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Owner {
    /// Unbinds the window.
    #[default]
    Nobody,
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
    /// It was removed, but may still be in use.
    Leaving,
}

impl Owner {
    /// Returns a snapshot for inspection; `None` if the entry is free.
    pub(super) fn kind(self) -> Option<KeyKind> {
        Some(match self {
            Self::Nobody => return None,
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
    /// Its key, valid or not.
    pub key: Key,
    /// Its PD.
    pub pdn: Pdn,
    /// The kind of the object.
    pub kind: KeyKind,
    /// The rights.
    pub valid: Option<Mr>,
    /// Windows bound to it.
    pub windows: u32,
}

/// The part that look-ups do not need.
#[derive(Debug, Default)]
pub(super) struct Cold {
    pub(super) owner: Owner,
    /// Instance of the last key that the device gave.
    pub(super) instance: u8,
    /// The key, valid or not.
    pub(super) key: Key,
    pub(super) pdn: Pdn,
    /// The QP of a command.
    pub(super) qpn: Qpn,
    /// Index of the region that a bound window shows.
    pub(super) region: Option<u32>,
    /// Pages of its own.
    pub(super) table: Table,
    /// Pages that a fast registration may have.
    pub(super) max_pages: u32,
    pub(super) touch: Touch,
}

/// The object behind an entry.
#[derive(Debug)]
pub(super) struct Back {
    /// Windows bound to the region; [`CLOSED`] unless the entry is a valid region, or becomes one.
    windows: AtomicU32,
    pub(super) cold: Mutex<Cold>,
}

impl Default for Back {
    fn default() -> Self {
        Self { windows: AtomicU32::new(CLOSED), cold: Mutex::default() }
    }
}

impl Back {
    /// One more window; false when the region takes none any more.
    pub(super) fn hold(&self) -> bool {
        let more = |windows: u32| windows.checked_add(1).filter(|more| *more != CLOSED);
        self.windows.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// Windows bound now.
    pub(super) fn bound(&self) -> u32 {
        match self.windows.load(Ordering::Relaxed) {
            CLOSED => 0,
            windows => windows,
        }
    }

    /// One window less.
    pub(super) fn release(&self) {
        self.windows.fetch_sub(1, Ordering::AcqRel);
    }

    /// Lets no window be bound any more; false when one is.
    pub(super) fn close(&self) -> bool {
        let closed = self.windows.compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Acquire);
        closed.is_ok() || closed == Err(CLOSED)
    }

    /// Lets windows be bound, to a region that becomes valid after this.
    pub(super) fn open(&self) {
        self.windows.store(0, Ordering::Release);
    }

    /// The entry has nothing any more, windows neither.
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
