//! Fields to write. All of them are big-endian.

/// At most `N` octets, written field by field. Octets beyond `N` are dropped, so `N` must be the
/// maximum length of what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields<const N: usize> {
    octets: [u8; N],
    len: usize,
}

impl<const N: usize> Default for Fields<N> {
    fn default() -> Self {
        Self { octets: [0; N], len: 0 }
    }
}

impl<const N: usize> Fields<N> {
    /// Appends octets.
    #[must_use]
    pub fn put(mut self, octets: &[u8]) -> Self {
        let end = self.len.saturating_add(octets.len());
        if let Some(to) = self.octets.get_mut(self.len..end) {
            to.copy_from_slice(octets);
            self.len = end;
        }
        self
    }

    /// Appends a 16-bit number.
    #[must_use]
    pub fn u16(self, value: u16) -> Self {
        self.put(&value.to_be_bytes())
    }

    /// Appends a 32-bit number.
    #[must_use]
    pub fn u32(self, value: u32) -> Self {
        self.put(&value.to_be_bytes())
    }

    /// Appends a 64-bit number.
    #[must_use]
    pub fn u64(self, value: u64) -> Self {
        self.put(&value.to_be_bytes())
    }

    /// Returns the octets that have been written.
    #[must_use]
    pub fn octets(&self) -> &[u8] {
        self.octets.get(..self.len).unwrap_or_default()
    }
}
