//! Reads and writes consecutive fields. All of them are big-endian.

/// The octets end before the fields do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short;

/// The octets that have not been read.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Creates a reader at the first octet.
    #[must_use]
    pub const fn new(octets: &'a [u8]) -> Self {
        Self(octets)
    }

    /// Reads the next `N` octets.
    ///
    /// # Errors
    /// [`Short`] if there are fewer.
    pub const fn take<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        match self.0.split_first_chunk() {
            Some((taken, rest)) => {
                self.0 = rest;
                Ok(*taken)
            }
            None => Err(Short),
        }
    }

    /// Reads the next `count` octets.
    ///
    /// # Errors
    /// [`Short`] if there are fewer.
    pub fn slice(&mut self, count: usize) -> Result<&'a [u8], Short> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Short)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Reads a 16-bit number.
    ///
    /// # Errors
    /// [`Short`] if there are fewer.
    pub fn u16(&mut self) -> Result<u16, Short> {
        self.take().map(u16::from_be_bytes)
    }

    /// Reads a 32-bit number.
    ///
    /// # Errors
    /// [`Short`] if there are fewer.
    pub fn u32(&mut self) -> Result<u32, Short> {
        self.take().map(u32::from_be_bytes)
    }

    /// Reads a 64-bit number.
    ///
    /// # Errors
    /// [`Short`] if there are fewer.
    pub fn u64(&mut self) -> Result<u64, Short> {
        self.take().map(u64::from_be_bytes)
    }

    /// Returns all remaining octets.
    #[must_use]
    pub const fn rest(self) -> &'a [u8] {
        self.0
    }
}

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
