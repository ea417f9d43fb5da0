//! The counters of the priorities of an adapter, as ethtool shows them of an mlx5: what the lanes
//! of its port have counted, seen from the adapter.

use vrnic_control_api::port_view::LaneView;

/// Makes the names of all priorities, with help texts.
macro_rules! names {
    ($($number:literal)*) => {
        [$(
            (
                concat!("rx_prio", $number, "_packets"),
                concat!("Frames of priority ", $number, " that the adapter has received"),
            ),
            (
                concat!("rx_prio", $number, "_bytes"),
                concat!("Bytes of the frames of priority ", $number, " that it has received"),
            ),
            (
                concat!("rx_prio", $number, "_discards"),
                concat!("Frames of priority ", $number, " to or from it that were dropped"),
            ),
            (
                concat!("rx_prio", $number, "_pause"),
                concat!("PFC frames to it that paused priority ", $number, ", or ended a pause"),
            ),
            (
                concat!("tx_prio", $number, "_pause"),
                concat!("PFC frames from it that paused priority ", $number, ", or ended a pause"),
            ),
        )*]
    };
}

/// Number of counters of a priority.
const EACH: usize = 5;

/// The names of the counters, with help texts.
pub(super) const NAMES: [(&str, &str); 8 * EACH] = names!(0 1 2 3 4 5 6 7);

/// Returns the names and values of the counters of a priority.
pub(super) fn counters(lane: &LaneView) -> impl Iterator<Item = (&'static str, u64)> {
    let values = [lane.frames, lane.bytes, lane.drops, lane.pfc_sent, lane.pfc_received];
    let names = NAMES.chunks_exact(EACH).nth(lane.class.into()).unwrap_or_default();
    names.iter().map(|(name, _)| *name).zip(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lane_of_a_port_is_a_priority_of_its_adapter() {
        let lane = LaneView { class: 3, frames: 1, bytes: 2, drops: 3, ..LaneView::default() };
        let lane = LaneView { pfc_sent: 4, pfc_received: 5, ..lane };
        let expected = [
            ("rx_prio3_packets", 1),
            ("rx_prio3_bytes", 2),
            ("rx_prio3_discards", 3),
            ("rx_prio3_pause", 4),
            ("tx_prio3_pause", 5),
        ];
        assert!(counters(&lane).eq(expected));
        assert_eq!(counters(&LaneView { class: 8, ..lane }).count(), 0);
        let last = NAMES.last().expect("names");
        assert_eq!(last.0, "tx_prio7_pause");
    }
}
