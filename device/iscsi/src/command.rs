//! Checks of the PDUs that a consumer posts, before they are sent.

use crate::header::{BHS_LEN, Bhs, Opcode};

/// The bits of a SCSI Command for its direction (RFC 7143, 11.3.1).
const READ: u8 = 0x40;
const WRITE: u8 = 0x20;

/// The kind of the device at the other end, which decides what operations a command may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// Any device: operations are not checked.
    #[default]
    Any,
    /// A direct access block device (SBC).
    Disk,
}

/// The direction of a command's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direction {
    /// The target may send Data-In.
    pub reads: bool,
    /// The target may ask for Data-Out.
    pub writes: bool,
}

/// The reason for which a PDU is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The device, or the mode, does not have such an operation.
    Operation,
    /// The direction differs from the direction of the operation or of the buffer.
    Direction,
    /// The header contradicts the length of the PDU or of the buffer.
    Length,
}

/// What a disk does with an operation, as far as a command's data is concerned.
enum Use {
    Reads,
    Writes,
    Other,
    Missing,
}

impl Device {
    fn task(self, operation: u8) -> Use {
        match (self, operation) {
            (Self::Any, _) => Use::Other,
            // READ of 6, 10, 12 and 16 bytes, READ CAPACITY (10), INQUIRY, REPORT LUNS,
            // REQUEST SENSE, MODE SENSE of 6 and 10 bytes, and SERVICE ACTION IN (16).
            (
                Self::Disk,
                0x08 | 0x28 | 0xa8 | 0x88 | 0x25 | 0x12 | 0xa0 | 0x03 | 0x1a | 0x5a | 0x9e,
            ) => Use::Reads,
            // WRITE of 6, 10, 12 and 16 bytes, WRITE AND VERIFY of 10, 12 and 16 bytes, UNMAP, and
            // MODE SELECT of 6 and 10 bytes.
            (Self::Disk, 0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e | 0x42 | 0x15 | 0x55) => {
                Use::Writes
            }
            // Operations of tapes: WRITE FILEMARKS of 6 and 16 bytes, SPACE of 6 and 16 bytes,
            // ERASE of 6 and 16 bytes, LOCATE of 10 and 16 bytes, REWIND.
            (Self::Disk, 0x10 | 0x80 | 0x11 | 0x91 | 0x19 | 0x2b | 0x92 | 0x01) => Use::Missing,
            (Self::Disk, _) => Use::Other,
        }
    }
}

/// Returns the direction of the SCSI Command with this header for a device, whose PDU has `length`
/// bytes and whose buffer has `buffer` bytes.
///
/// # Errors
/// The reason for which it is not sent.
pub fn check(header: &Bhs, device: Device, length: u64, buffer: u64) -> Result<Direction, Refused> {
    if header.opcode() != Some(Opcode::ScsiCommand) {
        return Err(Refused::Operation);
    }
    check_length(header, length)?;
    let flags = header.flags();
    let (reads, writes) = (flags & READ != 0, flags & WRITE != 0);
    let expected = u64::from(header.expected_len());
    let fits = match device.task(header.operation()) {
        Use::Missing => return Err(Refused::Operation),
        // A command may ask for no data.
        Use::Reads => !writes && (reads || expected == 0),
        Use::Writes => !reads && (writes || expected == 0),
        Use::Other => true,
    };
    if !fits || (expected > 0) != (reads || writes) {
        return Err(Refused::Direction);
    }
    if expected > buffer { Err(Refused::Length) } else { Ok(Direction { reads, writes }) }
}

/// Checks the header of another PDU of `length` bytes.
///
/// # Errors
/// The reason for which it is not sent.
pub fn check_other(header: &Bhs, length: u64) -> Result<(), Refused> {
    match header.opcode() {
        Some(
            Opcode::NopOut
            | Opcode::TaskManagement
            | Opcode::Text
            | Opcode::DataOut
            | Opcode::Logout
            | Opcode::Snack,
        ) => check_length(header, length),
        _ => Err(Refused::Operation),
    }
}

fn check_length(header: &Bhs, length: u64) -> Result<(), Refused> {
    let named = BHS_LEN as u64 + header.additional_len() as u64 + u64::from(header.data_len());
    if named == length { Ok(()) } else { Err(Refused::Length) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(flags: u8, operation: u8, expected: u32) -> Bhs {
        let mut bytes = [0; BHS_LEN];
        (bytes[0], bytes[1], bytes[32]) = (0x41, flags, operation);
        bytes[20..24].copy_from_slice(&expected.to_be_bytes());
        Bhs(bytes)
    }

    #[test]
    fn directions_are_those_of_the_operations() {
        let check = |flags, operation, expected| {
            check(&header(flags, operation, expected), Device::Disk, 48, 4096)
        };
        let both = |reads, writes| Ok(Direction { reads, writes });
        assert_eq!(check(0xc0, 0x28, 4096), both(true, false));
        assert_eq!(check(0xa0, 0x2a, 512), both(false, true));
        assert_eq!(check(0x80, 0x00, 0), both(false, false));
        assert_eq!(check(0x80, 0x28, 0), both(false, false), "no blocks");
        for (flags, operation) in [(0xa0, 0x28), (0xc0, 0x2a), (0xe0, 0x2a), (0x80, 0x28)] {
            assert_eq!(check(flags, operation, 512), Err(Refused::Direction), "{operation:#x}");
        }
        assert_eq!(check(0xc0, 0x28, 0), Err(Refused::Direction));
        assert_eq!(check(0xa0, 0x10, 512), Err(Refused::Operation), "WRITE FILEMARKS");
        assert_eq!(check(0xc0, 0x28, 4097), Err(Refused::Length));
        let any = super::check(&header(0xa0, 0x28, 8), Device::Any, 48, 8);
        assert_eq!(any, both(false, true));
    }

    #[test]
    fn lengths_are_those_of_the_header() {
        let mut bytes = header(0xc0, 0x28, 8).0;
        (bytes[4], bytes[7]) = (2, 5);
        let check = |length| check(&Bhs(bytes), Device::Any, length, 8).map(|_| ());
        assert_eq!((check(61), check(60)), (Ok(()), Err(Refused::Length)));
        assert_eq!(check_other(&Bhs(bytes), 61), Err(Refused::Operation));
        for (opcode, expected) in [(0x40, true), (0x02, true), (0x03, false), (0x21, false)] {
            bytes[0] = opcode;
            assert_eq!(check_other(&Bhs(bytes), 61).is_ok(), expected, "{opcode:#x}");
        }
    }
}
