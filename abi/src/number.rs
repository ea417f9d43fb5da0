// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Types for numbers of objects, addresses and sequence numbers, so that they cannot be confused.
//! In memory they are little-endian and need no alignment, like all fields of the formats.

use core::fmt;

use zerocopy::little_endian::{U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Declares types of numbers, with their stored form, their native form, and their text form.
macro_rules! numbers {
    ($($(#[$about:meta])* $name:ident: $stored:ident as $native:ident, $format:literal;)+) => {$(
        $(#[$about])*
        #[derive(
            Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, FromBytes, IntoBytes,
            Immutable, KnownLayout, Unaligned,
        )]
        #[repr(transparent)]
        pub struct $name($stored);

        impl $name {
            /// Returns the number as a value of this type.
            #[inline]
            #[must_use]
            pub const fn new(number: $native) -> Self {
                Self($stored::new(number))
            }

            /// Returns the bare number.
            #[inline]
            #[must_use]
            pub const fn get(self) -> $native {
                self.0.get()
            }
        }

        impl From<$native> for $name {
            #[inline]
            fn from(number: $native) -> Self {
                Self::new(number)
            }
        }

        impl From<$name> for $native {
            #[inline]
            fn from(number: $name) -> Self {
                number.get()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.get())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )+};
}

numbers! {
    /// The number of a context; 0 is the kernel's.
    ContextId: U32 as u32, "{}";
    /// The number of a UAR (doorbell page); 0 is the kernel's.
    UarIndex: U32 as u32, "{}";
    /// The number of a doorbell slot in its UAR.
    SlotIndex: U32 as u32, "{}";
    /// The number of a protection domain.
    Pdn: U32 as u32, "{}";
    /// The number of an event queue; 0 is the asynchronous one.
    Eqn: U32 as u32, "{}";
    /// The number of a completion queue.
    Cqn: U32 as u32, "{}";
    /// The number of a queue pair, 24 bits.
    Qpn: U32 as u32, "{}";
    /// The number of a shared receive queue, 24 bits.
    Srqn: U32 as u32, "{}";
    /// The number of an XRC domain.
    Xrcdn: U32 as u32, "{}";
    /// The number of an address range of the window ([`crate::direct`]).
    RangeNumber: U32 as u32, "{}";
    /// The number of a flow rule ([`crate::flow`]).
    FlowId: U32 as u32, "{}";
    /// The number of a set of counters; 0 is none.
    CountersId: U32 as u32, "{}";
    /// A key of memory, local or remote: the index of its entry in bits 8–31, the instance in
    /// bits 0–7.
    Key: U32 as u32, "{:#x}";
    /// An address in guest memory, as the device uses it.
    GuestAddr: U64 as u64, "{:#x}";
}

impl GuestAddr {
    /// Returns the address `bytes` higher, or `None` if it wraps around.
    #[inline]
    #[must_use]
    pub const fn checked_add(self, bytes: u64) -> Option<Self> {
        match self.get().checked_add(bytes) {
            Some(addr) => Some(Self::new(addr)),
            None => None,
        }
    }

    /// Returns the address `bytes` higher, which may wrap around.
    #[inline]
    #[must_use]
    pub const fn wrapping_add(self, bytes: u64) -> Self {
        Self::new(self.get().wrapping_add(bytes))
    }

    /// Returns whether the address is a multiple of `bytes`, which is not zero.
    #[inline]
    #[must_use]
    pub const fn is_multiple_of(self, bytes: u64) -> bool {
        self.get() % bytes == 0
    }
}

impl Key {
    /// The local key of memory that does not exist: it reads as zeros, and what is written to it is
    /// lost. It belongs to every PD, and has every address. No entry of the table has index 0.
    pub const NULL: Self = Self::new(0xd0);
    /// The local key of the ranges of direct transfers: an address is an offset from the first
    /// range. A QP can use it for its own ranges with blocks of the adapter
    /// ([`crate::direct::PacketMemory`]). No entry of the table has index 0.
    pub const WINDOW: Self = Self::new(0xd1);

    /// Returns the index of the key's entry in the table.
    #[inline]
    #[must_use]
    pub const fn index(self) -> u32 {
        self.get() >> 8
    }
}
