//! The acknowledge extended header (IBTA volume 1, 9.7.5.1, tables 43 to 45).

use vrnic_packet::{NoRoom, Reader, Writer};

use crate::discard::Discard;
use crate::psn::Msn;

/// Acknowledge extended header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// The type of the answer.
    pub syndrome: Syndrome,
    /// The number of messages that the responder has executed.
    pub msn: Msn,
}

/// A type of answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// All packets up to this one have been executed.
    Ack(Credits),
    /// No receive is posted for this packet, which must be sent again after the time of the timer.
    NotReady(RnrTimer),
    /// The packet was refused.
    Nak(Nak),
}

/// The number of further messages for which the responder has receives, as a code of 5 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credits(u8);

impl Credits {
    /// The responder does not limit messages.
    pub const UNLIMITED: Self = Self(0x1f);
}

/// A time to wait, as a code of 5 bits (table 45).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RnrTimer(u8);

impl RnrTimer {
    /// Returns the timer with this code. The upper three bits are ignored.
    #[must_use]
    pub const fn new(code: u8) -> Self {
        Self(code & 0x1f)
    }

    /// Returns the code.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }
}

/// The reason for which a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Nak {
    /// An earlier packet is missing. The PSN of the answer is the expected PSN.
    Sequence = 0,
    /// Malformed, out of place, too long for the receive, or not enabled for the QP.
    InvalidRequest = 1,
    /// The key does not allow the access.
    RemoteAccess = 2,
    /// The responder cannot execute it, because of an error of its own.
    RemoteOperational = 3,
}

impl Nak {
    const ALL: [Self; 4] =
        [Self::Sequence, Self::InvalidRequest, Self::RemoteAccess, Self::RemoteOperational];
}

/// Types of the syndrome, in its upper three bits.
const ACK: u8 = 0;
const NOT_READY: u8 = 1;
const NAK: u8 = 3;

impl Syndrome {
    /// Returns the syndrome of a byte.
    ///
    /// # Errors
    /// [`Discard::Syndrome`] if the byte is not a valid syndrome. Linux' hfi1 driver also ignores
    /// such an answer (rc.c, `do_rc_ack`).
    pub fn from_byte(byte: u8) -> Result<Self, Discard> {
        let low = byte & 0x1f;
        match byte >> 5 {
            ACK => Ok(Self::Ack(Credits(low))),
            NOT_READY => Ok(Self::NotReady(RnrTimer(low))),
            NAK => Nak::ALL
                .get(usize::from(low))
                .map_or(Err(Discard::Syndrome), |nak| Ok(Self::Nak(*nak))),
            _ => Err(Discard::Syndrome),
        }
    }

    /// Returns the byte as in a packet.
    #[must_use]
    pub const fn byte(self) -> u8 {
        match self {
            Self::Ack(credits) => ACK << 5 | credits.0,
            Self::NotReady(timer) => NOT_READY << 5 | timer.0,
            Self::Nak(nak) => NAK << 5 | nak as u8,
        }
    }
}

impl Aeth {
    /// Returns a positive acknowledgement without a limit of messages, because no receiver in Linux
    /// counts them.
    #[must_use]
    pub const fn ack(msn: Msn) -> Self {
        Self { syndrome: Syndrome::Ack(Credits::UNLIMITED), msn }
    }

    /// Parses the header.
    ///
    /// # Errors
    /// [`Discard::Truncated`] if the packet ends before it, [`Discard::Syndrome`].
    pub fn read(from: &mut Reader<'_>) -> Result<Self, Discard> {
        let word = from.u32()?;
        let [byte, ..] = word.to_be_bytes();
        Ok(Self { syndrome: Syndrome::from_byte(byte)?, msn: Msn::new(word) })
    }

    /// Writes the header.
    ///
    /// # Errors
    /// [`NoRoom`] if it does not fit.
    pub fn write(&self, to: &mut Writer<'_>) -> Result<(), NoRoom> {
        to.u32(u32::from(self.syndrome.byte()) << 24 | self.msn.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_syndromes_agree() {
        let known: Vec<_> = (0..=255u8).filter(|byte| Syndrome::from_byte(*byte).is_ok()).collect();
        for byte in &known {
            assert_eq!(Syndrome::from_byte(*byte).map(Syndrome::byte), Ok(*byte));
        }
        assert_eq!(known.len(), 32 + 32 + 4);
        assert_eq!(Syndrome::Nak(Nak::RemoteAccess).byte(), 0x62);
        assert_eq!(Syndrome::Ack(Credits::UNLIMITED).byte(), 0x1f);
    }
}
