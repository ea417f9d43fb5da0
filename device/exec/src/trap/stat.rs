//! Attributes of files, as the kernel writes them for programs: `struct stat` of x86-64
//! (arch/x86/include/uapi/asm/stat.h) and `struct statx` (linux/stat.h).

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use zerocopy::IntoBytes;
use zerocopy_derive::{Immutable, IntoBytes};

/// Major number of the device files of RDMA (`IB_UVERBS_MAJOR` in the kernel's
/// drivers/infiniband/core/uverbs_main.c).
pub const MAJOR: u32 = 231;
/// Minor number of the first one (`IB_UVERBS_BASE_MINOR`).
pub const FIRST_MINOR: u32 = 192;

/// Major number of miscellaneous devices (`MISC_MAJOR` in linux/major.h).
const MISC_MAJOR: u32 = 10;
/// Minor number of the connection manager, which the kernel chooses when it starts.
const RDMA_CM_MINOR: u32 = 119;

/// The number of a device. Both parts are small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceNumber {
    /// The number of the driver.
    pub major: u32,
    /// The number of the device.
    pub minor: u32,
}

impl DeviceNumber {
    /// The number of the connection manager.
    pub const RDMA_CM: Self = Self { major: MISC_MAJOR, minor: RDMA_CM_MINOR };

    /// Returns the number of the device file of an adapter.
    #[must_use]
    pub const fn adapter(number: u32) -> Self {
        Self { major: MAJOR, minor: FIRST_MINOR + number }
    }

    /// Returns the number as `struct stat` has it (`makedev(3)`).
    const fn encoded(self) -> u64 {
        let Self { major, minor } = self;
        (major as u64) << 8 | (minor & 0xff) as u64 | ((minor & !0xff) as u64) << 12
    }
}

/// The kind of a file, and its rights: a device file that all may read and write.
const DEVICE_MODE: u32 = libc::S_IFCHR | 0o666;
/// The fields of [`Statx`] that are filled in: `STATX_BASIC_STATS`.
const BASIC: u32 = 0x7ff;

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Stat {
    dev: u64,
    ino: u64,
    nlink: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    pad: u32,
    rdev: u64,
    size: u64,
    blksize: u64,
    blocks: u64,
    times: [i64; 6],
    unused: [u64; 3],
}

#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Statx {
    mask: u32,
    blksize: u32,
    attributes: u64,
    nlink: u32,
    uid: u32,
    gid: u32,
    mode: u16,
    pad: u16,
    ino: u64,
    size: u64,
    blocks: u64,
    attributes_mask: u64,
    times: [StatxTime; 4],
    rdev: [u32; 2],
    dev: [u32; 2],
    spare: [u64; 14],
}

#[derive(Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
struct StatxTime {
    seconds: i64,
    nanoseconds: u32,
    pad: u32,
}

const _: () = assert!(size_of::<Stat>() == 144 && size_of::<Statx>() == 256);

/// Returns the `struct stat` of a file of the tree. With `device`, it is that of the device file of
/// the device with this number.
#[must_use]
pub fn stat(file: &Metadata, device: Option<DeviceNumber>) -> Vec<u8> {
    Stat {
        dev: file.dev(),
        ino: file.ino(),
        nlink: file.nlink(),
        mode: device.map_or(file.mode(), |_| DEVICE_MODE),
        uid: file.uid(),
        gid: file.gid(),
        pad: 0,
        rdev: device.map_or(file.rdev(), DeviceNumber::encoded),
        size: if device.is_some() { 0 } else { file.size() },
        blksize: file.blksize(),
        blocks: file.blocks(),
        times: [
            file.atime(),
            file.atime_nsec(),
            file.mtime(),
            file.mtime_nsec(),
            file.ctime(),
            file.ctime_nsec(),
        ],
        unused: [0; 3],
    }
    .as_bytes()
    .to_vec()
}

/// Returns the `struct statx` of a file, as [`stat`] does.
#[must_use]
pub fn statx(file: &Metadata, device: Option<DeviceNumber>) -> Vec<u8> {
    // CAST: nanoseconds of a second, the mode, and the parts of device numbers are small.
    let time =
        |seconds, nanoseconds: i64| StatxTime { seconds, nanoseconds: nanoseconds as u32, pad: 0 };
    let mode = device.map_or(file.mode(), |_| DEVICE_MODE);
    Statx {
        mask: BASIC,
        blksize: file.blksize() as u32,
        attributes: 0,
        nlink: file.nlink() as u32,
        uid: file.uid(),
        gid: file.gid(),
        mode: mode as u16,
        pad: 0,
        ino: file.ino(),
        size: if device.is_some() { 0 } else { file.size() },
        blocks: file.blocks(),
        attributes_mask: 0,
        times: [
            time(file.atime(), file.atime_nsec()),
            time(0, 0),
            time(file.ctime(), file.ctime_nsec()),
            time(file.mtime(), file.mtime_nsec()),
        ],
        rdev: device.map_or([0; 2], |number| [number.major, number.minor]),
        dev: [rustix::fs::major(file.dev()), rustix::fs::minor(file.dev())],
        spare: [0; 14],
    }
    .as_bytes()
    .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_those_of_the_kernel() {
        for number in [0, 1, 63, 64, 900] {
            let made = rustix::fs::makedev(MAJOR, FIRST_MINOR + number);
            assert_eq!(DeviceNumber::adapter(number).encoded(), made, "{number}");
        }
    }

    #[test]
    fn attributes_are_at_their_places() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "12345").expect("a file");
        let metadata = file.as_file().metadata().expect("attributes");
        let plain = stat(&metadata, None);
        assert_eq!(plain[8..16], metadata.ino().to_le_bytes());
        assert_eq!(plain[48..56], 5u64.to_le_bytes());
        let device = statx(&metadata, Some(DeviceNumber::adapter(1)));
        assert_eq!(device[28..30], (0o020_666u16).to_le_bytes());
        assert_eq!(device[128..136], [231, 0, 0, 0, 193, 0, 0, 0]);
    }
}
