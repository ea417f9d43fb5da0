//! No portion of the work for iSCSI keeps a worker for long.
//!
//! Shows: iscsi

use vrnic_simlink::Faults;
use vrnic_testdriver::wr::sge;

use super::rig::{
    MAX_BURST, MAX_RECEIVE, READ, Rig, WRITE, data_in, r2t, read10, response, write10,
};
use crate::polls::KINDS;

/// Segments of a buffer.
const SEGMENTS: u32 = 16;

/// Commands with as many segments as possible, R2Ts of the largest bursts, and the largest PDUs.
///
/// Shows: iscsi: the longest portion of work of a PDU
#[test]
fn commands_in_portions() {
    for kind in KINDS {
        let mut rig = Rig::new(1, Faults::default(), true);
        rig.receives(0..16);
        let each = MAX_BURST / SEGMENTS;
        // The segments lie apart.
        let segment = |nth| sge(rig.a.buffer + u64::from(nth * 2 * each), each, rig.a.key);
        let data: Vec<_> = (0..SEGMENTS).map(segment).collect();
        rig.cable.polls.measure(&[&rig.cable.ga, &rig.cable.gb], kind);
        rig.post(&write10(MAX_BURST), &data, READ);
        let key = rig.heard().tag();
        rig.say(&r2t(key, 0, MAX_BURST));
        let mut heard = 0;
        while heard < MAX_BURST as usize {
            heard += rig.heard().data.len();
        }
        rig.say(&response(key));
        rig.post(&read10(MAX_BURST), &data, WRITE);
        let key = rig.heard().tag();
        for at in (0..MAX_BURST).step_by(MAX_RECEIVE as usize) {
            rig.say(&data_in(key, at, &[7; MAX_RECEIVE as usize]));
        }
        rig.say(&response(key));
        // The R2T, the PDUs with data, and both responses.
        for _ in 0..MAX_BURST / MAX_RECEIVE + 3 {
            rig.received();
        }
        rig.cable.polls.check("iSCSI");
        assert_eq!(rig.counters().ended.get(), 2);
    }
}
