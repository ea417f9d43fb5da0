//! What is counted in the memory for connections is what QPs have that are reached by packets,
//! whatever happens to them.
//!
//! Shows: roce

use proptest::prelude::*;
use vrnic_abi::qp::State;
use vrnic_abi::sq::Opcode;
use vrnic_adapter::limits::CONNECTION_MEMORY;
use vrnic_adapter::objects::qp::Path;
use vrnic_simlink::{Fate, Faults};
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wr::Wr;

use crate::bus::{Endpoint, Guest};
use crate::cable::Cable;
use crate::network::streams::ends::pass;

const MS: u64 = 1_000_000;
/// READs and atomics that each end serves at a time.
const READS: u8 = 12;
/// Requests of a QP that are outstanding at most, and entries of its queue.
const MOST: u32 = 120;
const LOG_WQES: u8 = 7;

/// What happens to a connection.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Requests are posted.
    Post { read: bool, len: u32, count: u32 },
    /// Every so many frames to the peer are lost from now on; none if zero.
    Lose(u32),
    /// Both ends begin again.
    Reset,
    /// One of the ends fails.
    Fail { peer: bool },
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<bool>(), 1..20_000u32, 1..60u32)
            .prop_map(|(read, len, count)| Step::Post { read, len, count }),
        2 => prop_oneof![Just(0), 2..40u32].prop_map(Step::Lose),
        1 => Just(Step::Reset),
        1 => any::<bool>().prop_map(|peer| Step::Fail { peer }),
    ]
}

/// Two ends, and the number of requests of the first one that have not completed.
struct Line {
    a: Endpoint,
    b: Endpoint,
    posted: u32,
}

impl Line {
    fn new(cable: &Cable) -> Self {
        let setup = Setup { log_wqes: LOG_WQES, log_cqes: 8, region: 1 << 20, ..Setup::default() };
        let [a, b] = [&cable.ga, &cable.gb].map(|guest| Endpoint::new(guest, setup));
        let line = Self { a, b, posted: 0 };
        line.connect();
        line
    }

    fn connect(&self) {
        for (end, peer) in [(&self.a, &self.b), (&self.b, &self.a)] {
            end.connect(peer.guest.mac(), peer.qpn, |attr| {
                (attr.max_rd_atomic, attr.max_dest_rd_atomic) = (READS, READS);
                (attr.timeout, attr.retry_cnt) = (10, 7);
            });
        }
    }

    fn poll(&mut self) {
        while self.a.send_cq.poll().is_some() {
            self.posted = self.posted.saturating_sub(1);
        }
    }

    fn take(&mut self, cable: &Cable, step: Step) {
        match step {
            Step::Post { read, len, count } if self.a.state() == State::Rts => {
                let opcode = if read { Opcode::Read } else { Opcode::Write };
                let wr = Wr::new(opcode, &[self.a.sge(0, len)]).to(self.b.buffer, self.b.key);
                for _ in 0..count.min(MOST - self.posted) {
                    self.a.store_send(&wr);
                    self.posted += 1;
                }
                self.a.ring();
            }
            Step::Post { .. } => {}
            Step::Lose(every) => {
                let mut count = 0;
                cable.links[0].borrow_mut().rule(move |_| {
                    count += 1;
                    if every > 0 && count % every == 0 { Fate::Drop } else { Fate::Pass }
                });
            }
            Step::Reset => {
                self.a.set_state(State::Reset);
                self.b.set_state(State::Reset);
                self.poll();
                self.posted = 0;
                self.connect();
            }
            Step::Fail { peer } => {
                let end = if peer { &mut self.b } else { &mut self.a };
                end.set_state(State::Err);
            }
        }
    }
}

/// Checks what is counted at a guest against what its ends have. `later` is true if there was time
/// to give memory back.
fn check(guest: &Guest, ends: &[&Endpoint], what: &str, later: bool) -> Result<(), TestCaseError> {
    let mut charged = 0;
    for end in ends {
        let qp = guest.adapter.qp(end.qpn).expect("it exists");
        let mut requester = qp.requester.lock();
        let is_idle = requester.path.outstanding().is_none_or(|requests| requests.is_empty());
        let kept = match &requester.path {
            Path::Packets(sender) => sender.kept(),
            _ => 0,
        };
        let sends = requester.path.charged();
        prop_assert!(kept <= sends, "{what}: {sends} bytes are counted for {kept} of requests");
        prop_assert!(!(later && is_idle) || sends == 0, "{what}: {sends} bytes for no request");
        drop(requester);
        let responder = qp.responder.lock();
        let receiver = responder.packets.as_ref().map(|it| (it.charged(), it.kept(READS)));
        let (receives, kept) = receiver.unwrap_or_default();
        prop_assert_eq!(receives, kept, "{}: frames and READs of the peer", what);
        charged += sends + receives;
    }
    let counted = CONNECTION_MEMORY - guest.adapter.connection_memory().free();
    prop_assert_eq!(counted, charged, "{}: what all ends have taken", what);
    Ok(())
}

fn check_both(cable: &Cable, lines: &[Line], what: &str, later: bool) -> Result<(), TestCaseError> {
    let a: Vec<_> = lines.iter().map(|line| &line.a).collect();
    let b: Vec<_> = lines.iter().map(|line| &line.b).collect();
    check(&cable.ga, &a, &format!("A, {what}"), later)?;
    check(&cable.gb, &b, &format!("B, {what}"), later)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Shows: roce: the memory for connections that queue pairs have taken
    #[test]
    fn what_queue_pairs_have_is_counted(
        steps in prop::collection::vec((0..2_usize, any_step(), 0..3u64), 0..40),
    ) {
        let cable = Cable::new(46, Faults::default());
        let mut lines = [Line::new(&cable), Line::new(&cable)];
        check_both(&cable, &lines, "at first", true)?;
        for (nth, step, time) in steps {
            lines[nth].take(&cable, step);
            check_both(&cable, &lines, &format!("after {step:?}"), false)?;
            // A part of the work, and then a part of the time.
            cable.ga.adapter.poll(0);
            check_both(&cable, &lines, &format!("in the work after {step:?}"), false)?;
            pass(&cable, time * MS / 2);
            check_both(&cable, &lines, &format!("some time after {step:?}"), false)?;
            lines.iter_mut().for_each(Line::poll);
            if time == 2 {
                pass(&cable, 500 * MS);
                check_both(&cable, &lines, "later", true)?;
                lines.iter_mut().for_each(Line::poll);
            }
        }
    }
}
