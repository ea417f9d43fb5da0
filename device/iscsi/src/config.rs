//! The properties that both ends of a connection have agreed on.

/// Minimum of both lengths of data segments, and of a burst (RFC 7143, 13.12 and 13.13).
pub const LENGTH_MIN: u32 = 512;
/// Maximum of these lengths.
pub const LENGTH_MAX: u32 = (1 << 24) - 1;

/// The properties, by their keys in the negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// `HeaderDigest` is CRC32C.
    pub header_digest: bool,
    /// `DataDigest` is CRC32C.
    pub data_digest: bool,
    /// The local `MaxRecvDataSegmentLength`: the maximum number of bytes in a PDU of the target.
    pub max_receive: u32,
    /// The target's `MaxRecvDataSegmentLength`: the maximum number of bytes in a PDU to it.
    pub max_send: u32,
    /// `MaxBurstLength`: the maximum number of bytes that an R2T asks for.
    pub max_burst: u32,
}
