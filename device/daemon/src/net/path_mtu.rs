//! The path MTU of RDMA for an MTU of IP.

/// Maximum number of bytes of an IP packet that the headers of RoCE v2 take, as Linux counts them
/// (include/rdma/ib_addr.h, `iboe_get_mtu`).
const HEADERS: u32 = 96;

/// A path MTU as `enum ib_mtu`: 1 for 256 bytes, 5 for 4,096.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathMtu(u8);

impl PathMtu {
    /// The largest path MTU.
    pub const MAX: Self = Self(5);

    /// Returns the largest path MTU for IP packets of `mtu` bytes, or the smallest path MTU if none
    /// fits.
    #[must_use]
    pub fn of_ip(mtu: u32) -> Self {
        let payload = mtu.saturating_sub(HEADERS);
        Self((2..=Self::MAX.0).rev().find(|code| 128 << code <= payload).unwrap_or(1))
    }

    /// Returns the path MTU with this code, or the nearest one.
    #[must_use]
    pub fn from_code(code: u8) -> Self {
        Self(code.clamp(1, Self::MAX.0))
    }

    /// Returns its code in `enum ib_mtu`.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns its number of bytes.
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
