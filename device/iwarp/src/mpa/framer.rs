//! Builds the FPDUs that are sent.

use std::ops::Range;

use super::markers::Markers;
use crate::crc;
use crate::wire::fpdu;

/// The form of the FPDUs of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// True if FPDUs have CRCs. Otherwise the field is zero.
    pub crc: bool,
    /// True if FPDUs have markers.
    pub markers: Markers,
}

/// An FPDU of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fpdu {
    /// The plain position of its length field.
    pub start: u64,
    /// Number of octets of its ULPDU.
    pub ulpdu: usize,
}

impl Fpdu {
    /// Returns the plain position after it.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.start + fpdu::size(self.ulpdu) as u64
    }

    /// Returns the wire positions of its octets, including the markers that belong to it.
    #[must_use]
    pub const fn wire(&self, markers: Markers) -> Range<u64> {
        markers.wire(self.start)..markers.wire(self.end())
    }
}

/// Builds FPDUs.
#[derive(Debug)]
pub struct Framer {
    form: Form,
    /// An FPDU without markers, if the stream has markers.
    plain: Vec<u8>,
}

impl Framer {
    /// Creates a framer.
    #[must_use]
    pub const fn new(form: Form) -> Self {
        Self { form, plain: Vec::new() }
    }

    /// Gives memory back.
    pub fn shrink(&mut self) {
        self.plain = Vec::new();
    }

    /// Returns the form of its FPDUs.
    #[must_use]
    pub const fn form(&self) -> Form {
        self.form
    }

    /// Builds an FPDU into `into`, which has the length of the FPDU on the wire. `ulpdu` writes the
    /// ULPDU.
    /// # Errors
    /// The error of `ulpdu`. Nothing must be sent in this case.
    pub fn build<E>(
        &mut self,
        which: &Fpdu,
        into: &mut [u8],
        ulpdu: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.form.markers.0 {
            let size = fpdu::size(which.ulpdu);
            if self.plain.len() < size {
                self.plain.resize(size, 0);
            }
            let plain = self.plain.get_mut(..size).unwrap_or_default();
            fill(plain, which.ulpdu, ulpdu)?;
            let mut at = 0;
            self.form.markers.pieces(which.start, plain.len(), |marker, range| {
                at += put(into, at, marker.as_ref().map_or(&[], |marker| &marker[..]));
                at += put(into, at, plain.get(range).unwrap_or_default());
                Ok(())
            })?;
        } else {
            fill(into, which.ulpdu, ulpdu)?;
        }
        if self.form.crc
            && let Some((covered, crc)) = into.split_last_chunk_mut::<{ crc::LEN }>()
        {
            *crc = crc::octets(covered);
        }
        Ok(())
    }
}

/// Writes the length, the ULPDU, the padding, and zeros for the CRC.
fn fill<E>(
    fpdu: &mut [u8],
    len: usize,
    ulpdu: impl FnOnce(&mut [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let Some((length, rest)) = fpdu.split_first_chunk_mut::<{ fpdu::LENGTH }>() else {
        return Ok(());
    };
    *length = u16::try_from(len).unwrap_or_default().to_be_bytes();
    let Some((body, trailer)) = rest.split_at_mut_checked(len) else { return Ok(()) };
    trailer.fill(0);
    ulpdu(body)
}

fn put(into: &mut [u8], at: usize, octets: &[u8]) -> usize {
    if let Some(to) = into.get_mut(at..at + octets.len()) {
        to.copy_from_slice(octets);
    }
    octets.len()
}
