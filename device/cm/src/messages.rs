//! The formats of messages. Numbers are in network byte order. Fields that share a 32-bit word with
//! others are read and written by functions.

use zerocopy::FromZeros;
use zerocopy::network_endian::{U16, U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes};

use super::mad::{BODY_LEN, Body};

/// Declares messages.
macro_rules! messages {
    ($($(#[$about:meta])* $name:ident = $attribute:literal { $($field:ident: $type:ty,)+ })+) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
        #[repr(C)]
        #[expect(missing_docs, reason = "the names are those of the standard's fields")]
        pub struct $name { $(pub $field: $type,)+ }

        impl $name {
            /// Returns a message whose fields are zero.
            #[must_use]
            pub fn new() -> Self {
                Self::new_zeroed()
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        impl Body for $name {
            const ATTRIBUTE: u16 = $attribute;
        }

        const _: () = assert!(size_of::<$name>() == BODY_LEN);
    )+};
}

messages! {
    /// Request for communication (table 106).
    Req = 0x10 {
        local: U32, vendor: U32, service: U64, guid: U64, reserved: U32, qkey: U32,
        qpn_resources: U32, eecn_depth: U32, remote_eecn_transport: U32, psn_timeout: U32,
        pkey: U16, mtu_rnr: u8, retries_srq: u8, primary: PathFields, alternate: PathFields,
        private: [u8; 92],
    }
    /// Message receipt acknowledgement (table 107).
    Mra = 0x11 {
        local: U32, remote: U32, answered: u8, service_timeout: u8, private: [u8; 222],
    }
    /// Reject (table 108).
    Rej = 0x12 {
        local: U32, remote: U32, answered: u8, info_len: u8, reason: U16, info: [u8; 72],
        private: [u8; 148],
    }
    /// Reply to a request for communication (table 110).
    Rep = 0x13 {
        local: U32, remote: U32, qkey: U32, qpn_vendor: U32, eecn_vendor: U32, psn_vendor: U32,
        resources: u8, depth: u8, delay_flow: u8, rnr_srq: u8, guid: U64, private: [u8; 196],
    }
    /// Ready to use (table 111).
    Rtu = 0x14 { local: U32, remote: U32, private: [u8; 224], }
    /// Request for communication release (table 112).
    Dreq = 0x15 { local: U32, remote: U32, remote_qpn: U32, private: [u8; 220], }
    /// Reply to a request for communication release (table 113).
    Drep = 0x16 { local: U32, remote: U32, private: [u8; 224], }
    /// Service ID resolution request (table 119).
    SidrReq = 0x17 { request: U32, pkey: U16, reserved: U16, service: U64, private: [u8; 216], }
    /// Service ID resolution response (table 120).
    SidrRep = 0x18 {
        request: U32, status: u8, info_len: u8, vendor: U16, qpn_vendor: U32, service: U64,
        qkey: U32, info: [u8; 72], private: [u8; 136],
    }
}

/// A path in a request.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct PathFields {
    /// The LID of the sender's port; all ones with GIDs only.
    pub local_lid: U16,
    /// The LID of the receiver's port.
    pub remote_lid: U16,
    /// The GID of the sender's port.
    pub local_gid: [u8; 16],
    /// The GID of the receiver's port.
    pub remote_gid: [u8; 16],
    /// The flow label in the upper 20 bits, and the packet rate in the lower 6.
    pub flow_rate: U32,
    /// The traffic class.
    pub traffic_class: u8,
    /// The hop limit.
    pub hop_limit: u8,
    /// The service level in the upper 4 bits, and whether the path is within a subnet in the next.
    pub level: u8,
    /// The ACK timeout of the sender's queue pair in the upper 5 bits.
    pub ack_timeout: u8,
}

/// The message to which a reject or an MRA answers, in the upper two bits of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Answered {
    /// A request.
    Req = 0,
    /// A reply.
    Rep = 1,
    /// Another one.
    Other = 2,
}

impl Answered {
    /// Returns the byte.
    #[must_use]
    pub fn byte(self) -> u8 {
        (self as u8) << 6
    }
}

/// Returns a word of a number of 24 bits and a byte.
#[must_use]
pub fn word(number: u32, byte: u8) -> U32 {
    U32::new(number << 8 | u32::from(byte))
}

/// Returns the number of 24 bits in a word.
#[must_use]
pub fn number(word: U32) -> u32 {
    word.get() >> 8
}

/// Returns the byte after the number of 24 bits in a word.
#[must_use]
pub fn byte(word: U32) -> u8 {
    // CAST: takes the lowest byte.
    word.get() as u8
}

/// Returns private data, followed by zeroes. `None` if the data is longer than the message permits.
#[must_use]
pub fn private<const N: usize>(data: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    bytes.get_mut(..data.len())?.copy_from_slice(data);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn fields_are_where_the_standard_has_them() {
        assert_eq!([offset_of!(Req, service), offset_of!(Req, qpn_resources)], [8, 32]);
        assert_eq!([offset_of!(Req, pkey), offset_of!(Req, primary)], [48, 52]);
        assert_eq!([offset_of!(Req, alternate), offset_of!(Req, private)], [96, 140]);
        assert_eq!([offset_of!(Rep, resources), offset_of!(Rep, guid)], [24, 28]);
        assert_eq!([offset_of!(Rej, reason), offset_of!(Rej, private)], [10, 84]);
        assert_eq!([offset_of!(SidrRep, service), offset_of!(SidrRep, private)], [12, 96]);
    }

    #[test]
    fn words_keep_both_parts() {
        let made = word(0x12_3456, 0x78);
        assert_eq!((number(made), byte(made)), (0x12_3456, 0x78));
        assert_eq!(private::<4>(&[1, 2]), Some([1, 2, 0, 0]));
        assert_eq!(private::<1>(&[1, 2]), None);
    }
}
