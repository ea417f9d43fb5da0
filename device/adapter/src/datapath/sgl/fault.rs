//! The reasons for which an access to a part of a message fails.

use std::ops::Range;

use vrnic_abi::eq::Kind;

use super::SgList;
use crate::datapath::refusal::Refusal;
use crate::datapath::turn::TurnContext;
use crate::host::{Awaited, HeldMemory, Host};
use crate::memory::tpt::{Denied, Missing, Part, Piece, Window};

impl SgList<'_> {
    /// Returns the reason for which the bytes `range` of memory of the adapter of `turn` could not
    /// be used. If pages are absent, they are requested, and the caller tries again later.
    #[cold]
    pub fn fault<H: Host>(&self, turn: &TurnContext<'_, H>, range: Range<u64>) -> Denied {
        let (mut start, mut why) = (0, Denied::Memory);
        for (nth, Piece { window, len: size }) in self.windows.iter().enumerate() {
            let end = start + size;
            let (from, to) = (range.start.max(start), range.end.min(end));
            if from < to && self.special.has(nth) {
                match self.special.why(nth, window, from - start..to - start) {
                    None => {}
                    Some(Denied::Absent) => why = Denied::Absent,
                    Some(failed) => return failed,
                }
            } else if from < to {
                let part = Part { at: from - start, now: to - from, len: end - from };
                match turn.tpt.missing(window, part) {
                    Missing::Failed => return Denied::Memory,
                    Missing::Requested(region) => {
                        why = Denied::Absent;
                        if let Some(key) = region {
                            turn.core.report(Kind::PageFault, key);
                        }
                    }
                    found => match awaited(turn, window, part) {
                        Awaited::Failed => return Denied::Memory,
                        // Or they have been added since the access has failed.
                        Awaited::Soon => why = Denied::Absent,
                        Awaited::Nothing if found == Missing::Present => why = Denied::Absent,
                        Awaited::Nothing => {}
                    },
                }
            }
            start = end;
        }
        why
    }

    /// Returns the refusal of a message whose bytes `range` could not be moved to or from this
    /// memory.
    #[cold]
    pub fn refusal<H: Host>(&self, turn: &TurnContext<'_, H>, range: Range<u64>) -> Refusal {
        Refusal::of_memory(self.fault(turn, range))
    }
}

/// Returns what an access to a part of a window is waiting for. It has failed if a part of it is
/// not memory.
fn awaited<H: Host>(turn: &TurnContext<'_, H>, window: &Window<'_>, part: Part) -> Awaited {
    let Some(mut walk) = window.walk(part.at, part.now) else { return Awaited::Failed };
    let (mut left, mut awaited) = (part.now, Awaited::Nothing);
    while left > 0 {
        let Some(run) = walk.run() else { return Awaited::Failed };
        match turn.memory.awaited(run.addr, run.len) {
            Awaited::Failed => return Awaited::Failed,
            Awaited::Soon => awaited = Awaited::Soon,
            Awaited::Nothing if turn.memory.check(run.addr, run.len, false).is_err() => {
                return Awaited::Failed;
            }
            Awaited::Nothing => {}
        }
        left = left.saturating_sub(run.len);
    }
    awaited
}
