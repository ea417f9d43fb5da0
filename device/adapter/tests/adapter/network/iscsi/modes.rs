//! Who may set the mode, and when.
//!
//! Shows: iscsi

use std::mem::offset_of;

use vrnic_abi::admin::{Carried, DeviceFeatures, StartRdma, Status, TcpState, command};
use vrnic_abi::cq;
use vrnic_abi::iscsi::{EndCommand, SetIscsi};
use vrnic_abi::qp::{State, Type};
use vrnic_abi::sq::CommandFlags;
use vrnic_simlink::Faults;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{Setup, TO_RTS, attributes};
use vrnic_testdriver::stream;

use super::rig::{Rig, WRITE, parameters, read10};
use crate::bus::Endpoint;
use crate::memory::commands::command;
use crate::network::toe::{cable, connected, setup, wait};

fn set(end: &Endpoint, parameters: &SetIscsi) -> Result<(), Refused> {
    end.guest.command::<command::SetIscsi>(parameters)
}

fn initialize(end: &Endpoint, peer: [u8; 6]) {
    end.guest.take_through(end.qpn, attributes(peer, 0), &TO_RTS[..1]);
}

#[test]
fn only_the_kernel_sets_the_mode() {
    let cable = cable(1, Faults::default());
    let caps = cable.ga.caps();
    assert!(caps.has(DeviceFeatures::ISCSI));
    let user = Endpoint::new(&cable.ga, setup(false));
    initialize(&user, cable.gb.mac());
    let refused = set(&user, &parameters(user.qpn, false));
    assert_eq!(refused, Err(Refused(Status::Permission, 0)));
    let kernel = Endpoint::new(&cable.ga, Setup { kernel: true, ..setup(false) });
    assert_eq!(set(&kernel, &parameters(kernel.qpn, false)), Err(Refused(Status::BadState, 0)));
    initialize(&kernel, cable.gb.mac());
    assert_eq!(set(&kernel, &parameters(kernel.qpn, false)), Ok(()));
    assert_eq!(set(&kernel, &parameters(kernel.qpn, true)), Ok(()), "again");
    assert_eq!(set(&kernel, &parameters(9999, true)), Err(Refused(Status::NotFound, 0)));
    let other = Endpoint::new(&cable.ga, Setup { kernel: true, kind: Type::Rc, ..setup(false) });
    initialize(&other, cable.gb.mac());
    assert_eq!(set(&other, &parameters(other.qpn, false)), Err(Refused(Status::BadState, 0)));
}

#[test]
fn parameters_are_checked() {
    let cable = cable(2, Faults::default());
    let end = Endpoint::new(&cable.ga, Setup { kernel: true, ..setup(false) });
    initialize(&end, cable.gb.mac());
    let good = parameters(end.qpn, true);
    let bad = |offset: usize| Err(Refused(Status::BadParam, offset as u32));
    for length in [0, 511, 1 << 24, u32::MAX] {
        let length = length.into();
        let set = |parameters| set(&end, &parameters);
        assert_eq!(
            set(SetIscsi { max_receive: length, ..good }),
            bad(offset_of!(SetIscsi, max_receive))
        );
        assert_eq!(set(SetIscsi { max_send: length, ..good }), bad(offset_of!(SetIscsi, max_send)));
        assert_eq!(
            set(SetIscsi { max_burst: length, ..good }),
            bad(offset_of!(SetIscsi, max_burst))
        );
    }
    assert_eq!(set(&end, &SetIscsi { flags: 4, ..good }), bad(offset_of!(SetIscsi, flags)));
    assert_eq!(set(&end, &SetIscsi { device: 2, ..good }), bad(offset_of!(SetIscsi, device)));
    assert_eq!(
        set(&end, &SetIscsi { reserved: [0, 1], ..good }),
        bad(offset_of!(SetIscsi, reserved) + 1)
    );
}

/// The mode belongs to the connection that follows: not to one that exists, and not to one after a
/// reset.
#[test]
fn the_mode_is_set_before_the_connection() {
    let mut rig = Rig::new(3, Faults::default(), false);
    let again = rig.set_mode(&parameters(rig.a.qpn, true));
    assert_eq!(again, Err(Refused(Status::BadState, 0)));
    // Such a connection cannot carry RDMA.
    let rdma = Endpoint::new(&rig.cable.ga, Setup { kernel: true, ..Setup::default() });
    initialize(&rdma, rig.cable.gb.mac());
    let start = StartRdma { from: rig.a.qpn.into(), to: rdma.qpn.into(), ..StartRdma::default() };
    let refused = rig.a.guest.command::<command::StartRdma>(&start);
    assert_eq!(refused, Err(Refused(Status::BadState, 0)));
    rig.a.set_state(State::Reset);
    crate::network::toe::pass(&rig.cable, 1_000_000);
    rig.b.set_state(State::Reset);
    stream::connect_toes(&rig.a, &rig.b);
    rig.a.post_recv(9, &[rig.a.sge(0, 3)]);
    rig.b.fill(0, b"raw");
    crate::network::toe::send(&mut rig.b, 0, 3);
    let cqe = wait(&rig.cable, &mut rig.a, |a| a.recv_cq.poll());
    assert_eq!((cqe.wr_id.get(), rig.a.bytes(0, 3)), (9, b"raw".to_vec()));
}

/// Without the mode, the stream has no commands.
#[test]
fn streams_of_bytes_have_no_commands() {
    let cable = cable(4, Faults::default());
    let (mut a, _b) = connected(&cable, false);
    let wr = command(&[a.sge(0, 8)], &read10(8).head, 0, WRITE, CommandFlags::empty());
    a.post_send(&wr);
    let cqe = wait(&cable, &mut a, |a| a.send_cq.poll());
    assert_eq!(status(&cqe), cq::Status::LocQpOpErr);
    let end = EndCommand::new(a.qpn, a.key);
    let refused = a.guest.command::<command::EndCommand>(&end);
    assert_eq!(refused, Err(Refused(Status::NotFound, 0)));
}

#[test]
fn a_connection_of_pdus_says_what_it_carries() {
    let rig = Rig::new(1, Faults::default(), true);
    let record = rig.a.guest.adapter.connection_records(rig.a.qpn, 1).items[0];
    assert_eq!((record.carried, record.state), (Carried::Iscsi as u8, TcpState::Established as u8));
}
