//! The partitions of a disk, and the file systems in them.

use std::ops::Range;

use anyhow::Result;

use crate::roots::disk::contents::DiskContents;

/// Size of a sector.
const SECTOR: u64 = 512;
/// Maximum number of partitions that are looked at.
const PARTITIONS: u32 = 128;
/// Number of bytes of a volume that are looked at, which has the marks of all file systems.
const HEAD: u32 = 0x1_1000;

/// The mark of a table of 4 partitions, and its place.
const MBR: (usize, &[u8]) = (510, b"\x55\xaa");
/// The table's first entry, and the size of an entry.
const MBR_ENTRIES: Range<usize> = 446..510;
const MBR_ENTRY: usize = 16;
/// The mark of a table of many partitions in the second sector.
const GPT: &[u8] = b"EFI PART";

/// Marks of file systems: their place, the bytes, and what they mean.
const MARKS: [(usize, &[u8], Kind); 7] = [
    (0x438, b"\x53\xef", Kind::Root(FileSystem::Ext)),
    (0, b"XFSB", Kind::Root(FileSystem::Xfs)),
    (0x1_0040, b"_BHRfS_M", Kind::Root(FileSystem::Btrfs)),
    (0, b"LUKS\xba\xbe", Kind::Other("LUKS")),
    (512, b"LABELONE", Kind::Other("LVM")),
    (0, b"hsqs", Kind::Other("squashfs")),
    (0x8001, b"CD001", Kind::Other("ISO 9660")),
];

/// A file system that can have the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// ext2, ext3 or ext4.
    Ext,
    /// xfs.
    Xfs,
    /// btrfs.
    Btrfs,
}

/// What a volume has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file system that can have the root.
    Root(FileSystem),
    /// Something else, with its name for people.
    Other(&'static str),
}

/// A partition, or the whole disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Volume {
    /// The number of the partition.
    pub partition: Option<u32>,
    /// The contents of the device.
    pub kind: Kind,
}

impl FileSystem {
    /// Returns the name of its driver.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }
}

impl Volume {
    /// Returns the name of its device in a guest.
    #[must_use]
    pub fn device(&self) -> String {
        let number = self.partition.map(|number| number.to_string());
        format!("vda{}", number.unwrap_or_default())
    }
}

/// Returns the volumes whose contents are known.
///
/// # Errors
/// If the disk cannot be read.
pub fn volumes(disk: &mut dyn DiskContents) -> Result<Vec<Volume>> {
    if let Some(kind) = kind(&disk.read(0, HEAD)?) {
        return Ok(vec![Volume { partition: None, kind }]);
    }
    let mut found = Vec::new();
    for (number, at) in partitions(disk)? {
        if let Some(kind) = kind(&disk.read(at, HEAD)?) {
            found.push(Volume { partition: Some(number), kind });
        }
    }
    Ok(found)
}

/// Returns what else a disk has, as the end of a sentence.
#[must_use]
pub fn others(volumes: &[Volume]) -> String {
    let names = volumes.iter().filter_map(|volume| match volume.kind {
        Kind::Other(name) => Some(name),
        Kind::Root(_) => None,
    });
    let names = names.collect::<Vec<_>>().join(", ");
    if names.is_empty() {
        return ", and nothing else that is known; is it an image of a disk?".to_owned();
    }
    format!("; it has {names}, from which guests cannot start")
}

/// Returns the first mark that is there.
fn kind(head: &[u8]) -> Option<Kind> {
    let has = |at: usize, mark: &[u8]| head.get(at..).is_some_and(|rest| rest.starts_with(mark));
    MARKS.iter().find(|(at, mark, _)| has(*at, mark)).map(|(_, _, kind)| *kind)
}

/// Returns the numbers of the partitions and their places in bytes.
fn partitions(disk: &mut dyn DiskContents) -> Result<Vec<(u32, u64)>> {
    let first = disk.read(0, 1024)?;
    let (at, mark) = MBR;
    if !first.get(at..).is_some_and(|rest| rest.starts_with(mark)) {
        return Ok(Vec::new());
    }
    let second = first.get(512..).unwrap_or_default();
    if second.starts_with(GPT) {
        return gpt(disk, second);
    }
    let entries = first.get(MBR_ENTRIES).unwrap_or_default().chunks_exact(MBR_ENTRY);
    let starts = entries.map(|entry| (entry.get(4) != Some(&0)).then(|| number(entry, 8, 4))?);
    Ok(places(starts))
}

/// Returns the partitions of a table with this header.
fn gpt(disk: &mut dyn DiskContents, header: &[u8]) -> Result<Vec<(u32, u64)>> {
    let (Some(table), Some(count), Some(size)) =
        (number(header, 72, 8), number(header, 80, 4), number(header, 84, 4))
    else {
        return Ok(Vec::new());
    };
    let count = count.min(u64::from(PARTITIONS));
    // The standard's entries have 128 bytes or a multiple of that.
    if size == 0 || size > 4096 {
        return Ok(Vec::new());
    }
    let Some(at) = table.checked_mul(SECTOR) else { return Ok(Vec::new()) };
    let data = disk.read(at, u32::try_from(count * size)?)?;
    let entries = data.chunks_exact(usize::try_from(size)?);
    let used = |entry: &[u8]| entry.get(..16).is_some_and(|kind| kind.iter().any(|it| *it != 0));
    Ok(places(entries.map(|entry| used(entry).then(|| number(entry, 32, 8))?)))
}

/// Numbers the entries of a table, from 1, and leaves out those that are not in use.
fn places(starts: impl Iterator<Item = Option<u64>>) -> Vec<(u32, u64)> {
    let starts = (1..).zip(starts);
    starts.filter_map(|(number, start)| Some((number, start?.checked_mul(SECTOR)?))).collect()
}

/// Returns a number of so many bytes.
fn number(data: &[u8], at: usize, len: usize) -> Option<u64> {
    let bytes = data.get(at..at.checked_add(len)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk in memory.
    struct Memory(Vec<u8>);

    impl DiskContents for Memory {
        fn read(&mut self, at: u64, len: u32) -> Result<Vec<u8>> {
            let at = usize::try_from(at)?.min(self.0.len());
            let end = at.saturating_add(usize::try_from(len)?).min(self.0.len());
            Ok(self.0.get(at..end).unwrap_or_default().to_vec())
        }
    }

    fn put(disk: &mut [u8], at: usize, bytes: &[u8]) {
        disk[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn seen(disk: &[u8]) -> Vec<(String, Kind)> {
        let found = volumes(&mut Memory(disk.to_vec())).expect("a disk in memory");
        found.into_iter().map(|volume| (volume.device(), volume.kind)).collect()
    }

    #[test]
    fn a_file_system_without_partitions() {
        let mut disk = vec![0; 0x2_0000];
        assert_eq!(seen(&disk), []);
        put(&mut disk, 0x1_0040, b"_BHRfS_M");
        assert_eq!(seen(&disk), [("vda".into(), Kind::Root(FileSystem::Btrfs))]);
        assert_eq!(seen(&disk[..0x1_0044]), []);
        assert_eq!(seen(b""), []);
    }

    #[test]
    fn partitions_of_both_kinds_of_tables() {
        let mut disk = vec![0; 0x8_0000];
        put(&mut disk, 510, b"\x55\xaa");
        // The third partition starts at sector 256, and an unused entry names sector 512.
        put(&mut disk, 446 + 32, &[0x80, 0, 0, 0, 0x83, 0, 0, 0, 0, 1, 0, 0]);
        put(&mut disk, 446 + 48, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0]);
        put(&mut disk, 256 * 512 + 0x438, b"\x53\xef");
        put(&mut disk, 512 * 512, b"XFSB");
        let third = ("vda3".to_owned(), Kind::Root(FileSystem::Ext));
        assert_eq!(seen(&disk), [third]);
        put(&mut disk, 512, GPT);
        put(&mut disk, 512 + 72, &2_u64.to_le_bytes());
        put(&mut disk, 512 + 80, &128_u32.to_le_bytes());
        put(&mut disk, 512 + 84, &128_u32.to_le_bytes());
        for (entry, sector) in [(0, 300_u64), (14, 512)] {
            put(&mut disk, 1024 + entry * 128, b"0123456789abcdef");
            put(&mut disk, 1024 + entry * 128 + 32, &sector.to_le_bytes());
        }
        put(&mut disk, 300 * 512, b"LUKS\xba\xbe");
        let other = ("vda1".to_owned(), Kind::Other("LUKS"));
        let root = ("vda15".to_owned(), Kind::Root(FileSystem::Xfs));
        assert_eq!(seen(&disk), [other, root]);
    }

    #[test]
    fn tables_with_any_numbers_lead_nowhere() {
        let mut disk = vec![0xff; 0x1000];
        put(&mut disk, 510, b"\x55\xaa");
        assert_eq!(seen(&disk), []);
        put(&mut disk, 512, GPT);
        assert_eq!(seen(&disk), []);
        put(&mut disk, 512 + 84, &128_u32.to_le_bytes());
        assert_eq!(seen(&disk), []);
        put(&mut disk, 512 + 72, &2_u64.to_le_bytes());
        assert_eq!(seen(&disk), []);
    }

    #[test]
    fn what_else_is_there_is_named() {
        let volume = Volume { partition: Some(1), kind: Kind::Other("LVM") };
        assert_eq!(others(&[volume]), "; it has LVM, from which guests cannot start");
        assert!(others(&[]).contains("is it an image of a disk?"));
    }
}
