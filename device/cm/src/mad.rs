//! The header that messages share (13.4.2): messages are management datagrams (MADs).

use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes};

/// Length of a message in bytes.
pub const MAD_LEN: usize = 256;
/// Length of its part after the header in bytes.
pub const BODY_LEN: usize = MAD_LEN - size_of::<Header>();

/// Version of the header.
const BASE_VERSION: u8 = 1;
/// The class of communication management.
const CLASS: u8 = 7;
/// Version of the class.
const CLASS_VERSION: u8 = 2;
/// The method of all messages of the class: Send.
const SEND: u8 = 3;

/// A message as bytes.
pub type Mad = [u8; MAD_LEN];

/// The header.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Header {
    /// Version of the header.
    pub base_version: u8,
    /// The management class.
    pub class: u8,
    /// Version of the class.
    pub class_version: u8,
    /// What is to be done.
    pub method: u8,
    /// Zero.
    pub status: U16,
    /// Zero.
    pub class_specific: U16,
    /// The number of the exchange that the message is of.
    pub transaction: U64,
    /// The kind of message.
    pub attribute: U16,
    /// Zero.
    pub reserved: U16,
    /// The options of enhanced connection establishment, in messages that have them.
    pub modifier: U32,
}

const _: () = assert!(size_of::<Header>() == 24);

/// The part of a message after the header.
pub trait Body: FromBytes + IntoBytes + Immutable {
    /// The number of the kind of message (table 104).
    const ATTRIBUTE: u16;
}

/// Returns a message.
#[must_use]
pub fn encode<T: Body>(transaction: u64, modifier: u32, body: &T) -> Mad {
    let header = Header {
        base_version: BASE_VERSION,
        class: CLASS,
        class_version: CLASS_VERSION,
        method: SEND,
        status: U16::ZERO,
        class_specific: U16::ZERO,
        transaction: U64::new(transaction),
        attribute: U16::new(T::ATTRIBUTE),
        reserved: U16::ZERO,
        modifier: U32::new(modifier),
    };
    let mut mad = [0; MAD_LEN];
    let (head, rest) = mad.split_at_mut(size_of::<Header>());
    head.copy_from_slice(header.as_bytes());
    // All bodies have this length.
    rest.iter_mut().zip(body.as_bytes()).for_each(|(to, from)| *to = *from);
    mad
}

/// Returns the header and the bytes of the body of a message. `None` if the bytes are no message of
/// this class.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<(Header, &[u8; BODY_LEN])> {
    let mad: &Mad = bytes.try_into().ok()?;
    let (header, body) = Header::read_from_prefix(mad).ok()?;
    let known = header.base_version == BASE_VERSION
        && header.class == CLASS
        && header.class_version == CLASS_VERSION
        && header.method == SEND;
    if known { Some((header, body.try_into().ok()?)) } else { None }
}

/// Returns the body of a message of a known kind. `None` never happens: all bodies have one length.
#[must_use]
pub fn body<T: Body>(bytes: &[u8; BODY_LEN]) -> Option<T> {
    T::read_from_bytes(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::Rtu;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let mut rtu = Rtu::new();
        rtu.local = 7.into();
        let mad = encode(5, 9, &rtu);
        let (header, bytes) = decode(&mad).expect("a message");
        assert_eq!((header.transaction.get(), header.modifier.get()), (5, 9));
        assert_eq!(body::<Rtu>(bytes).expect("a body").local.get(), 7);
        for byte in 0..4 {
            let mut other = mad;
            other[byte] ^= 0x10;
            assert!(decode(&other).is_none(), "byte {byte} is of another class");
        }
        assert!(decode(&mad[1..]).is_none());
    }
}
