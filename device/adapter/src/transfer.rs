//! Moving a message between the memories of two QPs: checked windows on both sides, one copy.

use arrayvec::ArrayVec;
use vrnic_abi::qp::Access;
use vrnic_abi::sq::MAX_SGE;

use crate::host::{CopyFault, Host};
use crate::tpt::{Denied, Tpt, Window};
use crate::wqe::Segments;

/// Most bytes that a QP moves in one turn, so that long messages do not hold up other QPs.
pub const TURN: u64 = 256 << 10;

/// Checked memory of one side of a message.
#[derive(Debug)]
pub struct Side<'a> {
    pieces: Pieces<'a>,
}

// On the stack and short-lived: boxing the windows would cost an allocation a message.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
enum Pieces<'a> {
    /// Windows with their lengths.
    Windows(ArrayVec<(Window, u64), { MAX_SGE as usize }>),
    /// Bytes of a WQE.
    Inline(&'a [u8]),
}

impl<'a> Side<'a> {
    /// Checks all segments of a list.
    ///
    /// # Errors
    /// The first refusal.
    pub fn segments(
        tpt: &Tpt,
        pdn: u32,
        segments: &Segments,
        need: Access,
    ) -> Result<Self, Denied> {
        let mut windows = ArrayVec::new();
        for segment in segments.list().iter().filter(|segment| segment.len > 0) {
            let len = u64::from(segment.len);
            windows.push((tpt.check(segment.key, pdn, segment.addr, len, need)?, len));
        }
        Ok(Self { pieces: Pieces::Windows(windows) })
    }

    /// Checks one range; none of length zero is looked at.
    ///
    /// # Errors
    /// The refusal.
    pub fn range(
        tpt: &Tpt,
        pdn: u32,
        (key, addr, len): (u32, u64, u64),
        need: Access,
    ) -> Result<Self, Denied> {
        let mut windows = ArrayVec::new();
        if len > 0 {
            windows.push((tpt.check(key, pdn, addr, len, need)?, len));
        }
        Ok(Self { pieces: Pieces::Windows(windows) })
    }

    /// Inline data.
    #[must_use]
    pub fn inline(data: &'a [u8]) -> Self {
        Self { pieces: Pieces::Inline(data) }
    }

    /// The guest address of a side that is one 8-byte word.
    #[must_use]
    pub fn word(&self) -> Option<u64> {
        self.resolve(0, 8).filter(|(_, len)| *len == 8).map(|(addr, _)| addr)
    }

    /// The guest address of byte `at` and the bytes that follow without a gap, up to `len`.
    fn resolve(&self, at: u64, len: u64) -> Option<(u64, u64)> {
        let Pieces::Windows(windows) = &self.pieces else { return None };
        let mut start = 0;
        for (window, size) in windows {
            if at < start + size {
                return window.resolve(at - start, len.min(start + size - at));
            }
            start += size;
        }
        None
    }
}

/// Which side of a transfer failed.
#[derive(Clone, Copy, Debug)]
pub enum Broken {
    /// The memory read.
    Source,
    /// The memory written.
    Target,
}

/// Moves bytes `from..to` of a message.
///
/// # Errors
/// The side whose memory is not there.
pub fn copy<H: Host>(
    (source, source_host): (&Side<'_>, &H),
    (target, target_host): (&Side<'_>, &H),
    from: u64,
    to: u64,
) -> Result<(), Broken> {
    let mut at = from;
    while at < to {
        let (target_addr, run) = target.resolve(at, to - at).ok_or(Broken::Target)?;
        let moved = match &source.pieces {
            Pieces::Inline(data) => {
                let range = usize::try_from(at).ok().zip(usize::try_from(at + run).ok());
                let bytes = range.and_then(|(start, end)| data.get(start..end));
                let bytes = bytes.ok_or(Broken::Source)?;
                target_host.write(target_addr, bytes).map_err(|_| Broken::Target)?;
                run
            }
            Pieces::Windows(_) => {
                let (source_addr, run) = source.resolve(at, run).ok_or(Broken::Source)?;
                let len = usize::try_from(run).map_err(|_| Broken::Source)?;
                source_host.copy_to(source_addr, target_host, target_addr, len).map_err(
                    |fault| match fault {
                        CopyFault::Source(_) => Broken::Source,
                        CopyFault::Target(_) => Broken::Target,
                    },
                )?;
                run
            }
        };
        at += moved;
    }
    Ok(())
}
