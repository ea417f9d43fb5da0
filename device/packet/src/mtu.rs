//! The path MTU of RDMA.

/// Maximum number of bytes of an IP packet that the headers of RoCE v2 take, as Linux counts them
/// (include/rdma/ib_addr.h, `iboe_get_mtu`).
const HEADERS: u32 = 96;

/// Path MTU: number of bytes of payload in each packet of a message except the last one (IBTA
/// volume 1, 9.7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    /// The largest path MTU.
    pub const MAX: Self = Self::M4096;

    /// Returns the MTU with this code in verbs (`enum ib_mtu`: 1 to 5).
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// Returns the largest MTU of at most this many bytes, or the smallest if none fits.
    #[must_use]
    pub fn within(bytes: u32) -> Self {
        Self::ALL.into_iter().rfind(|mtu| mtu.bytes() <= bytes).unwrap_or(Self::M256)
    }

    /// Returns the largest path MTU for IP packets of `mtu` bytes, or the smallest if none fits.
    #[must_use]
    pub fn of_ip(mtu: u32) -> Self {
        Self::within(mtu.saturating_sub(HEADERS))
    }

    /// Returns the code in verbs.
    #[must_use]
    pub const fn code(self) -> u8 {
        // CAST: the exponent is from 8 to 12.
        self.bytes().ilog2() as u8 - 7
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_room() {
        for (mtu, path) in [
            (0, 256),
            (351, 256),
            (607, 256),
            (608, 512),
            (1500, 1024),
            (4191, 2048),
            (4192, 4096),
            (u32::MAX, 4096),
        ] {
            assert_eq!(Mtu::of_ip(mtu).bytes(), path, "{mtu}");
        }
    }

    #[test]
    fn each_mtu_has_its_code() {
        assert_eq!(Mtu::ALL.map(Mtu::code), [1, 2, 3, 4, 5]);
        assert_eq!(Mtu::ALL.map(|mtu| Mtu::from_code(mtu.code())), Mtu::ALL.map(Some));
        assert_eq!([0, 6].map(Mtu::from_code), [None; 2]);
    }
}
