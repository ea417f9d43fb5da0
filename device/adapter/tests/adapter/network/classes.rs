//! Classes of service that the network pauses: an adapter holds back what has the class, and
//! nothing else.
//!
//! Shows: network: a paused class of an adapter

use vrnic_abi::cq::Status;
use vrnic_abi::sq::Opcode;
use vrnic_simlink::Faults;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::bus::Endpoint;
use crate::cable::Cable;

/// The DSCP of RoCE.
const ROCE: u8 = 26;
/// Several packets.
const LEN: u32 = 60_000;

/// Two connections with classes of their own.
struct Classes {
    cable: Cable,
    /// Has the class that is paused.
    paused: [Endpoint; 2],
    other: [Endpoint; 2],
}

impl Classes {
    fn new(seed: u64) -> Self {
        let cable = Cable::new(seed, Faults::default());
        for world in [&cable.world, &cable.other] {
            world.fabric.use_switch(true);
        }
        let [paused, other] = [ROCE << 2, 0].map(|class| {
            cable.connected(Setup::default(), |attr| attr.av.traffic_class = class).into()
        });
        Self { cable, paused, other }
    }

    /// Checks that the connection with the other class works.
    fn others_go_on(&mut self) {
        let [a, b] = &mut self.other;
        let write = Wr::new(Opcode::Write, &[a.sge(0, LEN)]).to(b.buffer, b.key);
        for _ in 0..10 {
            assert_eq!(status(&self.cable.complete(a, &write)), Status::Success);
        }
    }

    /// Posts a WRITE, or a READ, of the connection whose class is paused.
    fn post(&mut self, opcode: Opcode) {
        let [a, b] = &mut self.paused;
        a.post_send(&Wr::new(opcode, &[a.sge(0, LEN)]).to(b.buffer, b.key));
    }

    /// Returns the status of what was posted, if it has ended.
    fn ended(&mut self) -> Option<Status> {
        self.paused[0].send_cq.poll().map(|cqe| status(&cqe))
    }

    /// Waits for the end of what was posted.
    fn end(&mut self) -> Option<Status> {
        let Self { cable, paused: [a, _], .. } = self;
        let mut found = None;
        cable.run_until(|| {
            found = a.send_cq.poll();
            found.is_some()
        });
        found.as_ref().map(status)
    }
}

#[test]
fn a_paused_class_stops_its_queue_pairs_and_no_others() {
    let mut classes = Classes::new(21);
    classes.cable.plugs[0].pause(Some(ROCE));
    classes.paused[0].fill(0, b"held back");
    classes.post(Opcode::Write);
    classes.others_go_on();
    assert_eq!((classes.ended(), classes.paused[1].bytes(0, 9)), (None, vec![0; 9]));
    classes.cable.plugs[0].pause(None);
    assert_eq!(classes.end(), Some(Status::Success));
    assert_eq!(classes.paused[1].bytes(0, 9), b"held back");
}

#[test]
fn answers_of_a_paused_class_wait_too() {
    for (seed, opcode) in [(22, Opcode::Write), (23, Opcode::Read)] {
        let mut classes = Classes::new(seed);
        classes.cable.plugs[1].pause(Some(ROCE));
        classes.post(opcode);
        classes.others_go_on();
        assert_eq!(classes.ended(), None, "{opcode:?}");
        classes.cable.plugs[1].pause(None);
        assert_eq!(classes.end(), Some(Status::Success), "{opcode:?}");
    }
}
