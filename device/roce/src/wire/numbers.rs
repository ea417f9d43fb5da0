//! Types for the numbers in packets.

/// Number of a QP, 24 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Qpn(u32);

impl Qpn {
    /// The general services QP, which the connection manager uses.
    pub const GSI: Self = Self(1);
    /// The number for all members of a multicast group.
    pub const MULTICAST: Self = Self(0xff_ffff);

    /// Returns the number with the low 24 bits of `value`.
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(value & 0xff_ffff)
    }

    /// Returns the number as in a packet.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// A key for memory of the responder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rkey(pub u32);

/// Number of a shared receive queue, 24 bits: the destination of a message to an XRC target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Srqn(u32);

impl Srqn {
    /// Returns the number with the low 24 bits of `value`.
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(value & 0xff_ffff)
    }

    /// Returns the number as in a packet.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}
