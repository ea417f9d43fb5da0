//! The numbers of READs that a connection has, and their changes.
//!
//! Shows: iwarp

use vrnic_abi::admin::{self, CloseConnection, command};
use vrnic_abi::connection::{Closing, RdmaState};
use vrnic_abi::cq::Status;
use vrnic_abi::qp::{Attr, AttrMask, State};
use vrnic_abi::sq::Opcode;
use vrnic_simlink::Faults;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::wr::Wr;

use super::ends::{MS, connected, lose, pass, query};
use crate::bus::Endpoint;
use crate::cable::Cable;

const BUSY: Result<(), Refused> = Err(Refused(admin::Status::Busy, 0));

fn set_ord(end: &Endpoint, ord: u8) -> Result<(), Refused> {
    let attr = Attr { max_rd_atomic: ord, ..Attr::default() };
    end.guest.modify_qp(end.qpn, AttrMask::MAX_QP_RD_ATOMIC, &attr)
}

fn set_ird(end: &Endpoint, ird: u8) -> Result<(), Refused> {
    let attr = Attr { max_dest_rd_atomic: ird, ..Attr::default() };
    end.guest.modify_qp(end.qpn, AttrMask::MAX_DEST_RD_ATOMIC, &attr)
}

fn depths(end: &Endpoint) -> (u16, u16) {
    let status = query(end);
    (status.ird.get(), status.ord.get())
}

#[test]
fn the_numbers_of_reads_change_only_when_it_is_safe() {
    let cable = Cable::new(1, Faults::default());
    let (mut a, b) = connected(&cable);
    let (ird, ord) = depths(&a);
    assert!(ird > 1 && ord > 1 && ird < 100, "{ird} {ord}");
    let read = Wr::new(Opcode::Read, &[a.sge(0, 9000)]).to(b.buffer, b.key);
    lose(&cable, true);
    a.post_send(&read);
    pass(&cable, MS);
    assert_eq!((set_ord(&a, 1), set_ord(&a, 0), depths(&a)), (BUSY, BUSY, (ird, ord)));
    lose(&cable, false);
    let mut done = None;
    cable.run_until(|| {
        done = done.take().or_else(|| a.send_cq.poll());
        done.is_some()
    });
    assert_eq!(status(&done.expect("a completion")), Status::Success);
    assert_eq!((set_ord(&a, 1), depths(&a)), (Ok(()), (ird, 1)));
    // The number counts: a second READ waits for the first one. More of the peer may always come.
    assert_eq!((set_ird(&b, 100), depths(&b).0), (Ok(()), 100));
    assert_eq!((set_ird(&b, 99), depths(&b).0), (BUSY, 100));
    assert_eq!((set_ord(&a, 100), depths(&a).1), (Ok(()), 100));
    for _ in 0..12 {
        a.post_send(&read);
    }
    let mut count = 0;
    cable.run_until(|| {
        while let Some(cqe) = a.send_cq.poll() {
            assert_eq!(status(&cqe), Status::Success);
            count += 1;
        }
        count == 12
    });
    assert_eq!((count, a.state(), b.state()), (12, State::Rts, State::Rts));
    // No READ can be sent without a place.
    assert_eq!(set_ord(&a, 0), Ok(()));
    assert_eq!(status(&cable.complete(&mut a, &read)), Status::LocQpOpErr);
}

/// When this end has closed its direction, no request of the peer can come.
#[test]
fn fewer_requests_are_served_only_when_none_can_come() {
    let cable = Cable::new(2, Faults::default());
    let (a, b) = connected(&cable);
    let ird = depths(&a).0;
    assert_eq!(set_ird(&a, 1), BUSY);
    lose(&cable, true);
    let how = Closing::Graceful as u8;
    let params = CloseConnection { qpn: a.qpn.into(), how, reserved: [0; 3] };
    a.guest.command::<command::CloseConnection>(&params).expect("CLOSE_CONNECTION");
    pass(&cable, MS);
    assert_eq!(RdmaState::from_raw(query(&a).state), Some(RdmaState::Closing));
    assert_eq!((set_ird(&a, 1), depths(&a).0), (Ok(()), 1));
    assert_eq!((set_ird(&b, 1), depths(&b).0), (BUSY, depths(&b).0));
    assert!(ird > 1);
    // Other attributes do not change with them, nor without a connection.
    let mask = AttrMask::MAX_QP_RD_ATOMIC | AttrMask::TIMEOUT;
    let refused = Err(Refused(admin::Status::BadState, 0));
    assert_eq!(b.guest.modify_qp(b.qpn, mask, &Attr::default()), refused);
    let bare = Endpoint::new(&cable.ga, vrnic_testdriver::qp::Setup::default());
    assert_eq!(set_ord(&bare, 1), refused);
}
