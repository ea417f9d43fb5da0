//! RDMA between functions of two daemons in TCP connections (iWARP), over a trunk.

mod common;

use common::joined::Joined;
use common::{Span, write_and_read};
use vrnic_abi::cq::Status;
use vrnic_abi::qp::State;
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::vfio::Endpoint;
use vrnic_testdriver::wr::Wr;
use vrnic_testdriver::{stream, wait};

#[test]
fn every_operation_goes_from_daemon_to_daemon() {
    let mut joined = Joined::by_trunk();
    let [mut a, mut b] =
        joined.guests.each_ref().map(|guest| Endpoint::new(guest, Setup::default()));
    stream::connect_pair(&a, &b);
    for (len, from, to) in [(0, 0, 0), (1, 3, 5), (4096, 4095, 1), (65_537, 7, 93), (4 << 20, 1, 0)]
    {
        write_and_read(&mut a, &b, Span { len, from, to });
        b.post_recv(1, &[b.sge(to, len as u32)]);
        a.run_expecting(&Wr::new(Opcode::Send, &[a.sge(from, len as u32)]), Status::Success);
        let got = wait::until("the receive", || b.recv_cq.poll());
        assert_eq!(got.byte_len.get() as usize, len);
    }
    // The end of one QP is the end of the other one.
    b.post_recv(2, &[b.sge(0, 100)]);
    a.set_state(State::Err);
    let flushed = wait::until("the receive", || b.recv_cq.poll());
    assert_eq!((status(&flushed), b.state()), (Status::WrFlushErr, State::Err));
    joined.check();
}
