//! The Terminate message (RFC 5040, section 4.8).
//!
//! ```text
//! layer and type (1) │ code (1) │ which headers follow (1) │ reserved (1) │
//! length of the segment (2) │ its DDP header (14 or 18) │ its RDMAP header (28)
//! ```

pub use super::cause::Cause;
use super::ddp;
use super::fields::Fields;

/// Maximum number of octets of a Terminate, without its own DDP header.
pub const MAX: usize = 4 + 2 + ddp::UNTAGGED + READ_REQUEST;
/// Number of octets of the RDMAP header of a READ request.
pub const READ_REQUEST: usize = 28;

const SEGMENT_LENGTH: u8 = 0x80;
const DDP_HEADER: u8 = 0x40;
const RDMAP_HEADER: u8 = 0x20;

/// Returns whether a Terminate with this cause includes the DDP header and the RDMAP header of the
/// segment.
const fn includes(cause: Cause) -> (bool, bool) {
    match cause.octets()[0] {
        0x01 => (true, true),
        0x02 | 0x10..=0x1f => (true, false),
        _ => (false, false),
    }
}

/// A received Terminate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The first four octets of the message.
    pub raw: [u8; 4],
}

impl Report {
    /// Parses the payload of a Terminate. The headers in it are not examined.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        payload.first_chunk().map(|raw| Self { raw: *raw })
    }

    /// Returns the cause, as the RFCs define it.
    #[must_use]
    pub fn cause(self) -> Cause {
        let [kind, code, ..] = self.raw;
        Cause::of([kind, code])
    }

    /// Returns the cause if the peer is a Linux siw on a little-endian processor, which exchanges
    /// layer and type (iwarp.h, `struct iwarp_terminate`).
    #[must_use]
    pub fn cause_of_siw(self) -> Cause {
        let [kind, code, ..] = self.raw;
        Cause::of([kind.rotate_left(4), code])
    }
}

/// Returns the payload of a Terminate. `offender` is the ULPDU that caused it, if there is one.
#[must_use]
pub fn payload(cause: Cause, offender: Option<&[u8]>) -> Fields<MAX> {
    let [kind, code] = cause.octets();
    let (with_ddp, with_rdmap) = includes(cause);
    let ulpdu = offender.filter(|_| with_ddp).unwrap_or_default();
    let Some(header) = ddp::header_of(ulpdu) else {
        return Fields::default().put(&[kind, code, 0, 0]);
    };
    let length = u16::try_from(ulpdu.len()).unwrap_or(u16::MAX);
    let request = request_of(ulpdu).filter(|_| with_rdmap);
    let rdmap = if request.is_some() { RDMAP_HEADER } else { 0 };
    let flags = SEGMENT_LENGTH | DDP_HEADER | rdmap;
    Fields::default()
        .put(&[kind, code, flags, 0])
        .u16(length)
        .put(header)
        .put(request.unwrap_or_default())
}

/// Returns the RDMAP header of a READ request.
fn request_of(ulpdu: &[u8]) -> Option<&[u8]> {
    let is_read = ulpdu.first()? & 0x80 == 0 && ulpdu.get(1)? & 0x0f == 1;
    ulpdu.get(ddp::UNTAGGED..ddp::UNTAGGED + READ_REQUEST).filter(|_| is_read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siw_exchanges_layer_and_type() {
        let report = Report::parse(&[0x02, 2, 0, 0]).expect("four octets");
        assert_eq!(report.cause_of_siw(), Cause::Crc);
        assert_eq!(report.cause(), Cause::Other(2, 2));
        assert_eq!(Report::parse(&[0x20, 2, 0]), None);
    }

    #[test]
    fn headers_are_included_as_the_cause_says() {
        let mut read = [0; 46];
        (read[0], read[1]) = (0x41, 0x41);
        assert_eq!(payload(Cause::Crc, Some(&read)).octets(), [0x20, 2, 0, 0]);
        let with_request = payload(Cause::Bounds, Some(&read));
        assert_eq!(with_request.octets().len(), MAX);
        assert_eq!(with_request.octets()[..6], [0x01, 1, 0xe0, 0, 0, 46]);
        assert_eq!(payload(Cause::MsnRange, Some(&read)).octets().len(), 24);
        let write = [0xc1; 20];
        assert_eq!(payload(Cause::TaggedBounds, Some(&write)).octets().len(), 20);
        assert_eq!(payload(Cause::TaggedBounds, Some(&write[..13])).octets().len(), 4);
    }
}
