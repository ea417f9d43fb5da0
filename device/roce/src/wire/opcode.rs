//! The table of opcodes (IBTA volume 1, table 38; annexes A14, A17 and A19).
//!
//! The upper three bits of an opcode are the transport, the lower five bits the operation. RC, UC
//! and XRC have the same numbers for the same operations; UC has fewer operations, and UD has two.

use std::fmt::{self, Write};
use std::str::FromStr;

/// A transport service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Transport {
    /// Reliable connection.
    Rc = 0,
    /// Unreliable connection.
    Uc = 1,
    /// Unreliable datagram.
    Ud = 3,
    /// Congestion notification: a single packet that belongs to no message (A17).
    Cnp = 4,
    /// Extended reliable connection (A14).
    Xrc = 5,
}

impl Transport {
    const ALL: [Self; 5] = [Self::Rc, Self::Uc, Self::Ud, Self::Cnp, Self::Xrc];

    /// Returns whether packets are acknowledged.
    #[must_use]
    pub const fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::Xrc)
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The operation of a packet, including its position in the message. The numbers are the lower five
/// bits of the opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the specification's")]
pub enum Operation {
    SendFirst = 0x00,
    SendMiddle = 0x01,
    SendLast = 0x02,
    SendLastImm = 0x03,
    SendOnly = 0x04,
    SendOnlyImm = 0x05,
    WriteFirst = 0x06,
    WriteMiddle = 0x07,
    WriteLast = 0x08,
    WriteLastImm = 0x09,
    WriteOnly = 0x0a,
    WriteOnlyImm = 0x0b,
    ReadRequest = 0x0c,
    ReadResponseFirst = 0x0d,
    ReadResponseMiddle = 0x0e,
    ReadResponseLast = 0x0f,
    ReadResponseOnly = 0x10,
    Acknowledge = 0x11,
    AtomicAcknowledge = 0x12,
    CompareSwap = 0x13,
    FetchAdd = 0x14,
    SendLastInvalidate = 0x16,
    SendOnlyInvalidate = 0x17,
    Flush = 0x1c,
    AtomicWrite = 0x1d,
    Congestion = 0x1e,
}

const RELIABLE: u8 = Transport::Rc.bit() | Transport::Xrc.bit();
const CONNECTED: u8 = RELIABLE | Transport::Uc.bit();
const ALL: u8 = CONNECTED | Transport::Ud.bit();

/// Each operation with the transports that have it. The congestion notification has the number 1 in
/// a transport of its own.
const TABLE: [(Operation, u8); 25] = [
    (Operation::SendFirst, CONNECTED),
    (Operation::SendMiddle, CONNECTED),
    (Operation::SendLast, CONNECTED),
    (Operation::SendLastImm, CONNECTED),
    (Operation::SendOnly, ALL),
    (Operation::SendOnlyImm, ALL),
    (Operation::WriteFirst, CONNECTED),
    (Operation::WriteMiddle, CONNECTED),
    (Operation::WriteLast, CONNECTED),
    (Operation::WriteLastImm, CONNECTED),
    (Operation::WriteOnly, CONNECTED),
    (Operation::WriteOnlyImm, CONNECTED),
    (Operation::ReadRequest, RELIABLE),
    (Operation::ReadResponseFirst, RELIABLE),
    (Operation::ReadResponseMiddle, RELIABLE),
    (Operation::ReadResponseLast, RELIABLE),
    (Operation::ReadResponseOnly, RELIABLE),
    (Operation::Acknowledge, RELIABLE),
    (Operation::AtomicAcknowledge, RELIABLE),
    (Operation::CompareSwap, RELIABLE),
    (Operation::FetchAdd, RELIABLE),
    (Operation::SendLastInvalidate, RELIABLE),
    (Operation::SendOnlyInvalidate, RELIABLE),
    (Operation::Flush, RELIABLE),
    (Operation::AtomicWrite, RELIABLE),
];

/// The number of a congestion notification within its transport.
const CNP: u8 = 1;

/// The operation of each number, and the transports that have it.
const BY_NUMBER: [Option<(Operation, u8)>; 32] = {
    let mut by_number = [None; 32];
    let mut at = 0;
    while at < TABLE.len() {
        by_number[TABLE[at].0 as usize] = Some(TABLE[at]);
        at += 1;
    }
    by_number
};

/// A valid opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Opcode {
    transport: Transport,
    operation: Operation,
}

impl Opcode {
    /// Returns the opcode of an operation in a transport, if there is one.
    #[must_use]
    pub fn new(transport: Transport, operation: Operation) -> Option<Self> {
        let (_, transports) = BY_NUMBER.get(operation as usize).copied().flatten()?;
        (transports & transport.bit() != 0).then_some(Self { transport, operation })
    }

    /// The opcode of the congestion notification.
    pub const CNP: Self = Self { transport: Transport::Cnp, operation: Operation::Congestion };

    /// Returns the opcode with this number, if there is one.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        let transport = Transport::ALL.into_iter().find(|of| *of as u8 == number >> 5)?;
        let low = number & 0x1f;
        if transport == Transport::Cnp {
            return (low == CNP).then_some(Self::CNP);
        }
        let (operation, _) = BY_NUMBER.get(usize::from(low)).copied().flatten()?;
        Self::new(transport, operation)
    }

    /// Returns the number as in a packet.
    #[must_use]
    pub const fn number(self) -> u8 {
        let low = match self.transport {
            Transport::Cnp => CNP,
            _ => self.operation as u8,
        };
        (self.transport as u8) << 5 | low
    }

    /// Returns the transport.
    #[must_use]
    pub const fn transport(self) -> Transport {
        self.transport
    }

    /// Returns the operation.
    #[must_use]
    pub const fn operation(self) -> Operation {
        self.operation
    }
}

/// The names of transport and operation, such as `rc-write-only`.
impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = match self.transport {
            Transport::Rc => "rc",
            Transport::Uc => "uc",
            Transport::Ud => "ud",
            Transport::Cnp => "cnp",
            Transport::Xrc => "xrc",
        };
        f.write_str(transport)?;
        write!(Words(f), "{:?}", self.operation)
    }
}

/// Writes a name of capitalized words in lower case, with a hyphen before each word.
struct Words<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl Write for Words<'_, '_> {
    fn write_str(&mut self, name: &str) -> fmt::Result {
        for letter in name.chars() {
            if letter.is_uppercase() {
                self.0.write_char('-')?;
            }
            self.0.write_char(letter.to_ascii_lowercase())?;
        }
        Ok(())
    }
}

/// The text is not the name of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownOpcode;

impl FromStr for Opcode {
    type Err = UnknownOpcode;

    fn from_str(name: &str) -> Result<Self, UnknownOpcode> {
        let mut known = (0..=u8::MAX).filter_map(Self::from_number);
        known.find(|opcode| opcode.to_string() == name).ok_or(UnknownOpcode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_opcodes_agree() {
        for opcode in (0..=255).filter_map(Opcode::from_number) {
            assert_eq!(opcode.to_string().parse(), Ok(opcode));
        }
        let name = |number| Opcode::from_number(number).map(|opcode| opcode.to_string());
        assert_eq!(name(0x0a).as_deref(), Some("rc-write-only"));
        assert_eq!(name(0xa9).as_deref(), Some("xrc-write-last-imm"));
        assert_eq!(name(0x81).as_deref(), Some("cnp-congestion"));
        assert_eq!("rc".parse::<Opcode>(), Err(UnknownOpcode));
    }

    #[test]
    fn numbers_and_opcodes_agree() {
        let known: Vec<u8> =
            (0..=255).filter(|number| Opcode::from_number(*number).is_some()).collect();
        for number in &known {
            assert_eq!(Opcode::from_number(*number).map(Opcode::number), Some(*number));
        }
        // RC and XRC have 25 operations, UC the first 12, UD two, and there is one notification.
        assert_eq!(known.len(), 2 * 25 + 12 + 2 + 1);
        for number in [0x15, 0x18, 0x1b, 0x1e, 0x1f, 0x2c, 0x40, 0x60, 0x66, 0x80, 0x82, 0xc0] {
            assert_eq!(Opcode::from_number(number), None, "{number:#x}");
        }
    }

    #[test]
    fn named_numbers_are_the_specifications() {
        let opcode = |transport, operation| Opcode::new(transport, operation).map(Opcode::number);
        assert_eq!(opcode(Transport::Rc, Operation::Acknowledge), Some(0x11));
        assert_eq!(opcode(Transport::Uc, Operation::SendOnly), Some(0x24));
        assert_eq!(opcode(Transport::Ud, Operation::SendOnlyImm), Some(0x65));
        assert_eq!(opcode(Transport::Xrc, Operation::SendFirst), Some(0xa0));
        assert_eq!(opcode(Transport::Uc, Operation::ReadRequest), None);
        assert_eq!(opcode(Transport::Ud, Operation::WriteOnly), None);
        assert_eq!(Opcode::CNP.number(), 0x81);
    }
}
