//! Causes of Terminates (RFC 5040, section 4.8; RFC 5041, section 7; RFC 5044, section 8; RFC 6580;
//! RFC 6581, section 9).

macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident = $octets:expr,)*) => {
        /// The reason for which a stream is terminated.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Cause {
            $($(#[$doc])* $name,)*
            /// A cause that no RFC defines: layer and type, and code.
            Other(u8, u8),
        }

        impl Cause {
            /// All causes that the RFCs define.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns layer and type in one octet, and the code.
            #[must_use]
            pub const fn octets(self) -> [u8; 2] {
                match self {
                    $(Self::$name => $octets,)*
                    Self::Other(kind, code) => [kind, code],
                }
            }
        }
    };
}

causes! {
    /// RDMAP, local catastrophic error.
    LocalCatastrophic = [0x00, 0x00],
    /// RDMAP, remote protection: the STag is invalid.
    InvalidStag = [0x01, 0x00],
    /// RDMAP, remote protection: base or bounds.
    Bounds = [0x01, 0x01],
    /// RDMAP, remote protection: access rights.
    Rights = [0x01, 0x02],
    /// RDMAP, remote protection: the STag is not associated with the stream.
    NotAssociated = [0x01, 0x03],
    /// RDMAP, remote protection: the tagged offset wraps.
    Wrap = [0x01, 0x04],
    /// RDMAP, remote protection: the STag cannot be invalidated.
    CannotInvalidate = [0x01, 0x09],
    /// RDMAP, remote protection, not specified.
    ProtectionUnspecified = [0x01, 0xff],
    /// RDMAP, remote operation: unsupported version.
    RdmapVersion = [0x02, 0x05],
    /// RDMAP, remote operation: unexpected opcode.
    Opcode = [0x02, 0x06],
    /// RDMAP, remote operation: catastrophic for the stream.
    CatastrophicStream = [0x02, 0x07],
    /// RDMAP, remote operation: catastrophic for all streams.
    CatastrophicGlobal = [0x02, 0x08],
    /// RDMAP, remote operation: the STag cannot be invalidated.
    OperationCannotInvalidate = [0x02, 0x09],
    /// RDMAP, remote operation, not specified.
    OperationUnspecified = [0x02, 0xff],
    /// DDP, local catastrophic error.
    DdpCatastrophic = [0x10, 0x00],
    /// DDP, tagged buffer: the STag is invalid.
    TaggedInvalidStag = [0x11, 0x00],
    /// DDP, tagged buffer: base or bounds.
    TaggedBounds = [0x11, 0x01],
    /// DDP, tagged buffer: the STag is not associated with the stream.
    TaggedNotAssociated = [0x11, 0x02],
    /// DDP, tagged buffer: the tagged offset wraps.
    TaggedWrap = [0x11, 0x03],
    /// DDP, tagged buffer: unsupported version.
    TaggedVersion = [0x11, 0x04],
    /// DDP, untagged buffer: invalid queue number.
    QueueNumber = [0x12, 0x01],
    /// DDP, untagged buffer: no buffer is available.
    NoBuffer = [0x12, 0x02],
    /// DDP, untagged buffer: the MSN is out of range.
    MsnRange = [0x12, 0x03],
    /// DDP, untagged buffer: invalid offset.
    MessageOffset = [0x12, 0x04],
    /// DDP, untagged buffer: the message is longer than the buffer.
    TooLong = [0x12, 0x05],
    /// DDP, untagged buffer: unsupported version.
    UntaggedVersion = [0x12, 0x06],
    /// MPA: the TCP connection was closed or lost.
    ConnectionLost = [0x20, 0x01],
    /// MPA: wrong CRC.
    Crc = [0x20, 0x02],
    /// MPA: a marker does not agree with the length of the ULPDU.
    MarkerOrLength = [0x20, 0x03],
    /// MPA: a start frame is invalid.
    StartFrame = [0x20, 0x04],
    /// MPA: local catastrophic error.
    MpaCatastrophic = [0x20, 0x05],
    /// MPA: the IRD is too small.
    InsufficientIrd = [0x20, 0x06],
    /// MPA: the two ends support no common type of first message.
    NoRtr = [0x20, 0x07],
}

impl Cause {
    /// Returns the cause with these octets.
    #[must_use]
    pub fn of(octets: [u8; 2]) -> Self {
        let known = Self::ALL.iter().copied().find(|cause| cause.octets() == octets);
        let [kind, code] = octets;
        known.unwrap_or(Self::Other(kind, code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_octets() {
        for cause in Cause::ALL {
            assert_eq!(Cause::of(cause.octets()), *cause);
        }
        assert_eq!(Cause::Crc.octets(), [0x20, 2]);
        assert_eq!(Cause::TooLong.octets(), [0x12, 5]);
        assert_eq!(Cause::of([0x31, 9]), Cause::Other(0x31, 9));
    }
}
