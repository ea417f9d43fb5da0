//! Requests that must not overtake each other.

use crate::model::objects::QueuePair;
use crate::model::requests::{Queue, Request, Segment};
use crate::model::tables::Tables;
use crate::report::{self, Finding};
use crate::rules::Rule;

/// Bytes of a write that may be a flag.
const FLAG: u64 = 8;

/// Checks requests that were posted, from this number on, against the reads before them: a send
/// takes its data when the device gets to it, which may be before a read has brought them.
pub(crate) fn check_reads(pair: &QueuePair, queue: &Queue, first: u64) {
    if queue.filled() == 0 {
        return;
    }
    for request in queue.requests.iter().rev().take_while(|request| request.number >= first) {
        let earlier = |other: &&Request| other.number < request.number && other.is_filled;
        let overlaps = |other: &&Request| overlap(&other.segments, &request.segments);
        if !request.is_unfenced {
            continue;
        }
        let Some(read) = queue.requests.iter().filter(earlier).find(overlaps) else { continue };
        report::report(&Finding {
            rule: Rule::UnfencedRead,
            // Between two calls, the program may have seen that the data have come.
            is_hint: read.number < first,
            text: format!(
                "request {} of {} sends what request {} is still reading, without IBV_SEND_FENCE",
                request.id,
                pair.name(),
                read.id
            ),
            began: Some(read.place),
            shown: request.place,
        });
    }
}

/// Looks for flags that overtake their data: a short write to a region, while a longer write of
/// another queue pair to the same region is outstanding. Queue pairs have no common order.
pub(crate) fn check_flags(tables: &Tables, pair: &QueuePair, queue: &Queue, first: u64) {
    if !report::options().hints {
        return;
    }
    let new = queue.requests.iter().rev().take_while(|request| request.number >= first);
    for flag in new.filter(|request| request.target.is_some() && request.bytes() <= FLAG) {
        let others = tables.pairs.all().into_iter();
        let mut others = others.filter(|other| other.device_address == pair.device_address);
        let found = others.find_map(|other| {
            // This is also the queue pair itself, whose lock the caller has.
            let queues = other.queues.try_lock()?;
            let is_data =
                |request: &&Request| request.target == flag.target && request.bytes() > FLAG;
            let data = queues.sends.requests.iter().find(is_data)?;
            Some((format!("request {} of {}", data.id, other.name()), data.place))
        });
        let Some((data, began)) = found else { continue };
        report::report(&Finding {
            rule: Rule::FlagOnOtherPair,
            is_hint: true,
            text: format!(
                "request {} of {} writes {} bytes to the region that {data} is writing to, and \
                 may arrive first",
                flag.id,
                pair.name(),
                flag.bytes()
            ),
            began: Some(began),
            shown: flag.place,
        });
    }
}

/// Returns whether segments of two requests have bytes in common.
fn overlap(some: &[Segment], others: &[Segment]) -> bool {
    let touches = |one: &Segment, other: &Segment| {
        let end =
            |segment: &Segment| segment.sge.address.saturating_add(u64::from(segment.sge.length));
        one.sge.key == other.sge.key && one.sge.address < end(other) && other.sge.address < end(one)
    };
    some.iter().any(|one| others.iter().any(|other| touches(one, other)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::regions::Sge;

    #[test]
    fn segments_overlap_if_they_share_a_byte_of_one_region() {
        let segments =
            |address, length, key| [Segment { sge: Sge { address, length, key }, region: None }];
        let one = segments(1000, 10, 7);
        assert!(overlap(&one, &segments(1009, 1, 7)) && overlap(&segments(900, 101, 7), &one));
        assert!(!overlap(&one, &segments(1010, 1, 7)) && !overlap(&segments(900, 100, 7), &one));
        assert!(!overlap(&one, &segments(1000, 10, 8)) && !overlap(&one, &[]));
    }
}
