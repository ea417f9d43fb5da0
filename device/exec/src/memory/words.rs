//! Copies to and from memory that other threads or processes access at the same time. It is only
//! accessed as atomic words.

use std::sync::atomic::{AtomicU64, Ordering};

/// Copies bytes from byte `offset` on. Returns `None` if not all of them are inside.
pub fn read(words: &[AtomicU64], offset: u64, into: &mut [u8]) -> Option<()> {
    let mut at = usize::try_from(offset).ok()?;
    let mut rest = into;
    while !rest.is_empty() {
        let skip = at % 8;
        let (now, later) = rest.split_at_mut(rest.len().min(8 - skip));
        let bytes = words.get(at / 8)?.load(Ordering::Acquire).to_le_bytes();
        now.copy_from_slice(bytes.get(skip..skip + now.len())?);
        at = at.checked_add(now.len())?;
        rest = later;
    }
    Some(())
}

/// Copies bytes to byte `offset`, in ascending order. Returns `None` if not all of them are inside.
pub fn write(words: &[AtomicU64], offset: u64, from: &[u8]) -> Option<()> {
    let mut at = usize::try_from(offset).ok()?;
    let mut rest = from;
    while !rest.is_empty() {
        let skip = at % 8;
        let (now, later) = rest.split_at(rest.len().min(8 - skip));
        let word = words.get(at / 8)?;
        match <[u8; 8]>::try_from(now) {
            Ok(whole) => word.store(u64::from_le_bytes(whole), Ordering::Release),
            Err(_) => replace(word, skip, now),
        }
        at = at.checked_add(now.len())?;
        rest = later;
    }
    Some(())
}

/// Replaces some bytes of a word.
fn replace(word: &AtomicU64, skip: usize, bytes: &[u8]) {
    let with = |old: u64| {
        let mut whole = old.to_le_bytes();
        whole.iter_mut().skip(skip).zip(bytes).for_each(|(to, from)| *to = *from);
        Some(u64::from_le_bytes(whole))
    };
    let _old = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, with);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_at_any_offset_is_read_back() {
        for offset in 0..16 {
            let words: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(u64::MAX)).collect();
            write(&words, offset, &[1, 2, 3, 4, 5, 6, 7, 8, 9]).expect("inside");
            let mut all = [0; 32];
            read(&words, 0, &mut all).expect("inside");
            let start = offset as usize;
            assert_eq!(all[start..start + 9], [1, 2, 3, 4, 5, 6, 7, 8, 9]);
            assert!(all[..start].iter().chain(&all[start + 9..]).all(|byte| *byte == 0xff));
        }
    }

    #[test]
    fn accesses_beyond_the_end_fail() {
        let words = [AtomicU64::new(0), AtomicU64::new(0)];
        assert!(read(&words, 9, &mut [0; 8]).is_none());
        assert!(write(&words, u64::MAX, &[0; 8]).is_none());
    }
}
