// SPDX-License-Identifier: GPL-2.0 OR MIT
//! BAR0: registers. All are 32 bits wide and are accessed as aligned 32-bit words. A pair `_LO`,
//! `_HI` is a 64-bit value. Every access traps to the device (tens of microseconds), so none is on
//! a data path. Reads of undefined offsets return zero. Writes to them are ignored and logged.
//!
//! # Bring-up
//! 1. Read [`MAGIC`] and [`VERSION`].
//! 2. Write [`Control::RESET`] to [`CONTROL`]; poll [`STATUS`] until [`Status::RESETTING`] clears.
//! 3. Write the addresses and sizes of the admin queue and the asynchronous event queue.
//! 4. Write [`Control::ENABLE`]; poll [`STATUS`] for [`Status::ENABLED`] (or [`Status::FATAL`]
//!    with a code in [`FATAL_CODE`]).

use bitflags::bitflags;

/// Reads [`MAGIC_VALUE`].
pub const MAGIC: u32 = 0x000;
/// Reads [`crate::ABI_VERSION`].
pub const VERSION: u32 = 0x004;
/// [`Status`], read only.
pub const STATUS: u32 = 0x008;
/// [`Control`], write only. A bit has its effect when one is written to it.
pub const CONTROL: u32 = 0x00c;
/// Increments while the daemon runs, at least every [`HEARTBEAT_PERIOD_MS`]. The same counter is in
/// the mapped [`crate::uar::Control::heartbeat`] of UAR 0, where reading is cheap.
pub const HEARTBEAT: u32 = 0x010;
/// The reason for which [`Status::FATAL`] is set, as the number of a [`FatalCode`].
pub const FATAL_CODE: u32 = 0x014;
/// MAC of the port, first four bytes (byte 0 in bits 0–7).
pub const MAC_LO: u32 = 0x018;
/// MAC of the port, bytes 4 and 5 in bits 0–15.
pub const MAC_HI: u32 = 0x01c;
/// Number of UARs in BAR2, including UAR 0.
pub const UAR_COUNT: u32 = 0x020;
/// Number of MSI-X vectors that the device uses.
pub const VECTOR_COUNT: u32 = 0x024;
/// Length of device memory ([`crate::uar::DEVICE_MEMORY_OFFSET`]) in units of
/// [`crate::uar::DEVICE_MEMORY_UNIT`]; zero if there is none.
pub const DEVICE_MEMORY: u32 = 0x028;

/// Guest address of the admin submission ring: 64-byte [`crate::admin::Submission`]s, contiguous,
/// page aligned.
pub const ADMIN_SQ_LO: u32 = 0x040;
/// Upper half of [`ADMIN_SQ_LO`].
pub const ADMIN_SQ_HI: u32 = 0x044;
/// Guest address of the admin completion ring: 64-byte [`crate::admin::Completion`]s, as many
/// as the submission ring has entries, contiguous, page aligned, zeroed by the driver.
pub const ADMIN_CQ_LO: u32 = 0x048;
/// Upper half of [`ADMIN_CQ_LO`].
pub const ADMIN_CQ_HI: u32 = 0x04c;
/// log2 of the entries of both admin rings, 2 to [`ADMIN_LOG_SIZE_MAX`].
pub const ADMIN_LOG_SIZE: u32 = 0x050;
/// Producer index of the admin submission ring. Writing it starts the commands. The driver must not
/// have more commands outstanding than the ring has entries.
pub const ADMIN_SQ_PI: u32 = 0x054;

/// Guest address of the asynchronous event queue: [`crate::eq::Eqe`]s, contiguous, page aligned,
/// zeroed by the driver. Its consumer index is in slot [`crate::uar::ASYNC_EQ_SLOT`] of UAR 0, and
/// its vector is [`crate::pci::VECTOR_ASYNC`].
pub const ASYNC_EQ_LO: u32 = 0x060;
/// Upper half of [`ASYNC_EQ_LO`].
pub const ASYNC_EQ_HI: u32 = 0x064;
/// log2 of the entries of the asynchronous event queue, 4 to [`crate::eq::LOG_SIZE_MAX`].
pub const ASYNC_EQ_LOG_SIZE: u32 = 0x068;

/// Write only: the number of an address range whose transfer the controller has completed. It has
/// an effect only for ranges of [`crate::direct::Notice::Mapped`].
pub const RANGE_DONE: u32 = 0x06c;

/// Offset of the kick page, 4 KiB that user contexts may map. Any aligned 32-bit write wakes the
/// worker that serves the function. The value is a hint: the index of the UAR whose doorbell was
/// rung.
pub const KICK: u32 = 0x1000;
/// Length of the kick page in bytes.
pub const KICK_LEN: u32 = 0x1000;

/// The clock of completions ([`crate::cq::Cqe::timestamp`]) in nanoseconds, lower half. It is on
/// the kick page, so that user contexts can read it. Read the upper half before and after it, and
/// read again if the upper half has changed.
pub const CLOCK_LO: u32 = KICK + 8;
/// Upper half of [`CLOCK_LO`].
pub const CLOCK_HI: u32 = KICK + 12;

/// Value of [`MAGIC`]: "vrnc".
pub const MAGIC_VALUE: u32 = 0x7672_6e63;
/// Maximum of [`ADMIN_LOG_SIZE`].
pub const ADMIN_LOG_SIZE_MAX: u32 = 10;
/// The maximum time between two steps of the heartbeat in milliseconds, while the daemon works. A
/// driver tolerates a loaded host, and regards a device as dead after [`HEARTBEAT_DEAD_MS`] without
/// a step.
pub const HEARTBEAT_PERIOD_MS: u32 = 100;
/// Time in milliseconds without a step of the heartbeat after which a driver regards a device as
/// dead.
pub const HEARTBEAT_DEAD_MS: u32 = 5000;

bitflags! {
    /// Bits of [`STATUS`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Status: u32 {
        /// A reset is in progress; no other register may be used.
        const RESETTING = 1 << 0;
        /// The admin queue runs.
        const ENABLED = 1 << 1;
        /// The device has failed, and needs a reset. See [`FATAL_CODE`].
        const FATAL = 1 << 2;
        /// The Ethernet port of the function has a link.
        const LINK_UP = 1 << 3;
    }
}

bitflags! {
    /// Bits of [`CONTROL`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Control: u32 {
        /// Destroys all objects, stops all DMA and interrupts, and discards the addresses of the
        /// rings.
        const RESET = 1 << 0;
        /// Reads the ring registers and starts the admin queue.
        const ENABLE = 1 << 1;
    }
}

wire_enum! {
    /// Values of [`FATAL_CODE`].
    pub enum FatalCode: u32 {
        /// No fatal error.
        None = 0,
        /// The ring registers do not describe usable rings.
        BadRings = 1,
        /// The admin producer index is beyond the ring.
        AdminIndex = 2,
        /// Admin or event ring memory cannot be accessed.
        RingMemory = 3,
        /// An internal error of the device.
        Internal = 4,
        /// The daemon that emulates the device ends.
        Stopped = 5,
    }
}
