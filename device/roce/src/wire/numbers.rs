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

/// Path MTU: number of bytes of payload in each packet of a message except the last one (IBTA
/// volume 1, 9.7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Mtu {
    /// 256 bytes.
    M256 = 256,
    /// 512 bytes.
    M512 = 512,
    /// 1024 bytes.
    M1024 = 1024,
    /// 2048 bytes.
    M2048 = 2048,
    /// 4096 bytes.
    M4096 = 4096,
}

impl Mtu {
    /// All path MTUs.
    pub const ALL: [Self; 5] = [Self::M256, Self::M512, Self::M1024, Self::M2048, Self::M4096];

    /// Returns the MTU with this code in verbs (`enum ib_mtu`: 1 to 5).
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// Returns the number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        self as u32
    }

    /// Returns the number of packets of a message with `length` bytes. An empty message is one
    /// packet.
    #[must_use]
    pub const fn packets(self, length: u32) -> u32 {
        if length == 0 { 1 } else { length.div_ceil(self.bytes()) }
    }
}
