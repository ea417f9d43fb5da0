//! Reads and writes consecutive fields. All of them are big-endian.

/// The bytes end before the fields do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short;

/// The bytes that have not been read.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Creates a reader at the first byte.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Reads the next `N` bytes.
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

    /// Reads the next `count` bytes.
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

    /// Returns all remaining bytes.
    #[must_use]
    pub const fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// The bytes of a buffer that have not been written.
#[derive(Debug)]
pub struct Writer<'a> {
    left: &'a mut [u8],
    written: usize,
}

/// The buffer is too small for what is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

impl<'a> Writer<'a> {
    /// Creates a writer at the first byte.
    #[must_use]
    pub const fn new(buffer: &'a mut [u8]) -> Self {
        Self { left: buffer, written: 0 }
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// [`NoRoom`] if they do not fit.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), NoRoom> {
        let left = std::mem::take(&mut self.left);
        let (to, left) = left.split_at_mut_checked(bytes.len()).ok_or(NoRoom)?;
        to.copy_from_slice(bytes);
        self.left = left;
        self.written += bytes.len();
        Ok(())
    }

    /// Writes a 16-bit number.
    ///
    /// # Errors
    /// [`NoRoom`] if it does not fit.
    pub fn u16(&mut self, value: u16) -> Result<(), NoRoom> {
        self.put(&value.to_be_bytes())
    }

    /// Writes a 32-bit number.
    ///
    /// # Errors
    /// [`NoRoom`] if it does not fit.
    pub fn u32(&mut self, value: u32) -> Result<(), NoRoom> {
        self.put(&value.to_be_bytes())
    }

    /// Writes a 64-bit number.
    ///
    /// # Errors
    /// [`NoRoom`] if it does not fit.
    pub fn u64(&mut self, value: u64) -> Result<(), NoRoom> {
        self.put(&value.to_be_bytes())
    }

    /// Returns the number of bytes that have been written.
    #[must_use]
    pub const fn written(&self) -> usize {
        self.written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows: hostile
    #[test]
    fn a_field_beyond_the_end_is_an_error() {
        let mut udp = Reader::new(&[0x12, 0xb7, 0x12, 0xb7, 0x00]);
        assert_eq!((udp.u16(), udp.u16(), udp.u16()), (Ok(4791), Ok(4791), Err(Short)));
    }
}
