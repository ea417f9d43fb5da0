//! The path MTU of RDMA that fits into an IP packet.

/// Bytes that the headers of RoCE v2 may take of an IP packet, as Linux counts them
/// (include/rdma/ib_addr.h, `iboe_get_mtu`).
const HEADERS: u32 = 96;

/// A path MTU as `enum ib_mtu`: 1 for 256 bytes, 5 for 4,096.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathMtu(u8);

impl PathMtu {
    /// The longest there is.
    pub const MAX: Self = Self(5);

    /// Returns the longest one for IP packets of `mtu` bytes, or the shortest there is if not even
    /// that fits.
    #[must_use]
    pub fn of_ip(mtu: u32) -> Self {
        let payload = mtu.saturating_sub(HEADERS);
        Self((2..=Self::MAX.0).rev().find(|code| 128 << code <= payload).unwrap_or(1))
    }

    /// Returns the one with this code, or the nearest.
    #[must_use]
    pub fn from_code(code: u8) -> Self {
        Self(code.clamp(1, Self::MAX.0))
    }

    /// Returns its code.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns how many bytes it is.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        128 << self.0
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
            assert_eq!(PathMtu::of_ip(mtu).bytes(), path, "{mtu}");
        }
    }
}
