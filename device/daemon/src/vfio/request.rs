//! Parses the bytes of a message. This has no effects, and every number is checked.

use serde::Deserialize;
use vfio_user::Command;
use zerocopy::FromBytes;

use super::refusal::Refusal;
use super::wire::{
    DeviceInfo, DmaMap, DmaUnmap, IrqInfo, IrqSet, RegionAccess, RegionInfo, TRANSFER_MAX, Version,
};

/// A request of a VMM.
#[derive(Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Agree on a version of the protocol. If the VMM limits the data of a message, this is the
    /// limit in bytes.
    Version(Option<u64>),
    /// Make guest memory accessible.
    DmaMap(DmaMap),
    /// Remove guest memory.
    DmaUnmap(DmaUnmap),
    /// Describe the device.
    DeviceInfo,
    /// Describe a region.
    RegionInfo(RegionInfo),
    /// Describe interrupts.
    IrqInfo(IrqInfo),
    /// Change interrupts.
    SetIrqs(IrqSet),
    /// Read a region.
    Read(RegionAccess),
    /// Write a region.
    Write(RegionAccess, &'a [u8]),
    /// Reset the device.
    Reset,
}

/// The capabilities of a VMM. The number of descriptors is checked but not used, because the daemon
/// sends one at a time.
#[derive(Deserialize)]
struct Capabilities {
    #[serde(default)]
    capabilities: Limits,
}

/// The capabilities that can have a wrong type. Others are ignored.
#[derive(Default, Deserialize)]
struct Limits {
    #[serde(default, rename = "max_msg_fds")]
    _fds: Option<u32>,
    #[serde(default, rename = "max_data_xfer_size")]
    transfer: Option<u64>,
}

impl<'a> Request<'a> {
    /// Parses a command's body. Bytes after a body of fixed length are ignored, as the
    /// specification of `argsz` demands.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn parse(command: u16, body: &'a [u8]) -> Result<Self, Refusal> {
        let command = Command::n(command).ok_or(Refusal::Unknown(command))?;
        Ok(match command {
            Command::Version => {
                let (version, capabilities) = split(body)?;
                Self::Version(check_version(version, capabilities)?)
            }
            Command::DmaMap => Self::DmaMap(split(body)?.0),
            Command::DmaUnmap => Self::DmaUnmap(split(body)?.0),
            Command::DeviceGetInfo => {
                split::<DeviceInfo>(body)?;
                Self::DeviceInfo
            }
            Command::DeviceGetRegionInfo => Self::RegionInfo(split(body)?.0),
            Command::GetIrqInfo => Self::IrqInfo(split(body)?.0),
            Command::SetIrqs => Self::SetIrqs(split(body)?.0),
            Command::RegionRead => {
                let (access, _) = split::<RegionAccess>(body)?;
                if access.count as usize > TRANSFER_MAX {
                    return Err(Refusal::TooLong(access.count));
                }
                Self::Read(access)
            }
            Command::RegionWrite => {
                let (access, data) = split::<RegionAccess>(body)?;
                if access.count as usize != data.len() {
                    return Err(Refusal::Count { count: access.count, len: data.len() });
                }
                Self::Write(access, data)
            }
            Command::DeviceReset => Self::Reset,
            Command::Unknown => return Err(Refusal::Unknown(0)),
            Command::GetRegionIoFds
            | Command::DmaRead
            | Command::DmaWrite
            | Command::UserDirtyPages => return Err(Refusal::Unsupported(command)),
        })
    }
}

/// Splits a structure off the front of a body.
fn split<T: FromBytes>(body: &[u8]) -> Result<(T, &[u8]), Refusal> {
    T::read_from_prefix(body).map_err(|_| Refusal::Short(body.len()))
}

/// Accepts any minor version of major version 0, with capabilities or without. Returns the limit
/// for the data of a message, if there is one.
fn check_version(version: Version, capabilities: &[u8]) -> Result<Option<u64>, Refusal> {
    if version.major != 0 {
        return Err(Refusal::Major(version.major));
    }
    let text = match capabilities.split_last() {
        None => return Ok(None),
        Some((0, text)) => text,
        Some(_) => return Err(Refusal::NoNul),
    };
    let read = serde_json::from_slice::<Capabilities>(text).map_err(Refusal::Capabilities)?;
    Ok(read.capabilities.transfer)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    use super::*;

    fn version(text: &str) -> Result<Request<'static>, Refusal> {
        let body = [&[0, 0, 7, 0], text.as_bytes()].concat();
        Request::parse(Command::Version as u16, body.leak())
    }

    #[test]
    fn a_version_comes_with_capabilities_or_without() {
        let good = ["", "{}\0", "{\"capabilities\":{}}\0", "{\"capabilities\":{\"x\":[{}]}}\0"];
        for text in good {
            assert!(matches!(version(text), Ok(Request::Version(_))), "{text}");
        }
        assert!(matches!(version("{}"), Err(Refusal::NoNul)));
        let deep = format!("{}\0", "[".repeat(100_000));
        let wrong = "{\"capabilities\":{\"max_msg_fds\":\"many\"}}\0";
        for text in ["\0", "{\0", "{}\0\0", "7\0", "{}{}\0", wrong, &deep] {
            assert!(matches!(version(text), Err(Refusal::Capabilities(_))), "{text}");
        }
        let other = Request::parse(Command::Version as u16, &[1, 0, 0, 0]);
        assert!(matches!(other, Err(Refusal::Major(1))));
    }

    #[test]
    fn a_write_has_the_data_that_it_counts() {
        let access = RegionAccess { offset: 0, region: 7, count: 5 };
        for len in [0, 4, 6] {
            let body = [access.as_bytes(), &vec![0; len]].concat();
            let refused = Request::parse(Command::RegionWrite as u16, &body);
            assert!(matches!(refused, Err(Refusal::Count { count: 5, .. })), "{len}");
        }
    }

    proptest! {
        /// Shows: hostile: vfio-user messages of any bytes
        #[test]
        fn any_bytes_are_read_within_bounds_or_refused(
            command in 0u16..20,
            body in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            match Request::parse(command, &body) {
                Ok(Request::Read(access)) => prop_assert!(access.count as usize <= TRANSFER_MAX),
                Ok(Request::Write(access, data)) => {
                    prop_assert_eq!(access.count as usize, data.len());
                }
                Ok(_) => {}
                Err(why) => prop_assert!(why.errno().raw_os_error() > 0),
            }
        }
    }
}
