//! Positions with and without markers (RFC 5044, section 4.3).
//!
//! A marker of four octets is at every 512th octet of the stream, counted from the first octet of
//! the first FPDU. So there are 508 octets of FPDUs between two markers, and a position without
//! markers (*plain*) determines the one with markers (*wire*) and vice versa. FPDUs are multiples
//! of four octets, so no marker splits a length field or a CRC.

/// Number of octets from one marker to the next.
const PERIOD: u64 = 512;
/// Number of octets of a marker.
pub const LEN: u64 = 4;
/// Number of octets of FPDUs between two markers.
const BETWEEN: u64 = PERIOD - LEN;

/// Says whether a stream has markers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Markers(pub bool);

impl Markers {
    /// Returns the number of wire octets of the first `plain` octets of FPDUs. A marker directly
    /// after them is not counted, because it belongs to the next FPDU.
    #[must_use]
    pub const fn wire(self, plain: u64) -> u64 {
        if self.0 { plain + LEN * plain.div_ceil(BETWEEN) } else { plain }
    }

    /// Returns the number of octets of FPDUs among the first `wire` octets.
    #[must_use]
    pub fn plain(self, wire: u64) -> u64 {
        if self.0 { wire - LEN * (wire / PERIOD) - LEN.min(wire % PERIOD) } else { wire }
    }

    /// Returns whether a marker is directly in front of the octet at this plain position.
    const fn stands_at(self, plain: u64) -> bool {
        self.0 && plain.is_multiple_of(BETWEEN)
    }

    /// Returns the number of marker octets in front of the length field of an FPDU that starts at
    /// this plain position.
    #[must_use]
    pub const fn in_front(self, start: u64) -> usize {
        if self.stands_at(start) { LEN as usize } else { 0 }
    }

    /// Calls `f` for each piece of an FPDU that starts at `start` and has `len` plain octets, with
    /// the marker in front of the piece and the range of the piece in the FPDU.
    ///
    /// # Errors
    /// The first error of `f`.
    pub fn pieces<E>(
        self,
        start: u64,
        len: usize,
        mut f: impl FnMut(Option<[u8; 4]>, std::ops::Range<usize>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut at, mut passed) = (0, 0_u64);
        while at < len {
            let plain = start + at as u64;
            let to_next = BETWEEN - plain % BETWEEN;
            let piece = usize::try_from(to_next).unwrap_or(len).min(len - at);
            let marker = self.stands_at(plain).then(|| {
                // The distance back to the length field, including the markers in between.
                let back = if at == 0 { 0 } else { at as u64 + LEN * passed };
                let [.., high, low] = back.to_be_bytes();
                [0, 0, high, low]
            });
            // A marker in front of the length field is not between the field and the next marker.
            passed += u64::from(marker.is_some() && at > 0);
            f(marker, at..at + piece)?;
            at += piece;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn positions_follow_from_each_other(plain in 0..1_u64 << 40) {
            let on = Markers(true);
            prop_assert_eq!(on.plain(on.wire(plain)), plain);
            prop_assert!(on.wire(plain + 1) > on.wire(plain));
            prop_assert_eq!(Markers(false).plain(Markers(false).wire(plain)), plain);
        }

        #[test]
        fn pieces_make_up_the_fpdu(start in 0..1_u64 << 20, len in 1_usize..4000) {
            let start = start * 4;
            let (mut wire, mut next) = (0, 0);
            Markers(true).pieces(start, len, |marker, range| {
                assert_eq!(range.start, next);
                next = range.end;
                wire += 4 * usize::from(marker.is_some()) + range.len();
                Ok::<(), ()>(())
            }).expect("no error");
            prop_assert_eq!(next, len);
            let on = Markers(true);
            prop_assert_eq!(wire as u64, on.wire(start + len as u64) - on.wire(start));
        }
    }
}
