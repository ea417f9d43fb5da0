//! A hostile or mistaken guest gets a status or a logged line. Nothing panics, and no other
//! function notices.

mod common;

use common::{connected_pair, pair, start, still_works};
use vrnic_abi::admin::{self, CreateCq, CreateQp, Pages, Status as AdminStatus};
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::Access;
use vrnic_abi::regs::{self, FatalCode};
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::endpoint::Endpoint;
use vrnic_testdriver::guest::Guest;
use vrnic_testdriver::qp::{QpSetup, QueuePair, Send, sge};

/// An address that no guest of these tests has.
const NOWHERE: u64 = 0xdead_0000_0000;

/// The device's own status of a refused command.
fn status<T>(result: anyhow::Result<T>) -> AdminStatus {
    let error = result.err().expect("the command was accepted");
    let refused = error
        .downcast_ref::<Refused>()
        .unwrap_or_else(|| panic!("{error:#}"));
    refused.status
}

fn still_alive(daemon: &mut vrnic_testdriver::daemon::Daemon, guest: &Guest) {
    assert!(guest.caps().expect("QUERY_DEVICE").max_qp.get() > 0);
    daemon.check().expect("healthy");
}

fn write(to: &Endpoint<'_>) -> Send {
    Send::new(Opcode::Write, 1).remote(to.buffer, to.key)
}

fn good(from: &Endpoint<'_>, to: &Endpoint<'_>) -> Send {
    write(to).sges(&[from.sge(0, 8)])
}

#[test]
fn memory_that_is_not_there_fails_the_operation() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let [mut a, b] = connected_pair(&guests);
    let [mut c, d] = connected_pair(&guests);
    let [mut e, f] = connected_pair(&guests);
    // A region may name memory that the VMM has not mapped; using it is what fails.
    let access = (Access::LOCAL_WRITE | Access::REMOTE_WRITE).bits();
    let local = a
        .guest
        .reg_flat(a.pdn, access, NOWHERE, 4096)
        .expect("region");
    let wr = write(&b).sges(&[sge(NOWHERE, 64, local)]);
    let cqe = a.run(&wr).expect("completion");
    assert!(
        [Status::LocProtErr as u8, Status::LocAccessErr as u8].contains(&cqe.status),
        "{cqe:?}"
    );
    let remote = d
        .guest
        .reg_flat(d.pdn, access, NOWHERE, 4096)
        .expect("region");
    let wr = Send::new(Opcode::Write, 1)
        .sges(&[c.sge(0, 64)])
        .remote(NOWHERE, remote);
    let cqe = c.run(&wr).expect("completion");
    assert!(
        [Status::RemOpErr as u8, Status::RemAccessErr as u8].contains(&cqe.status),
        "{cqe:?}"
    );
    still_works(&mut e, &f);
    daemon.check().expect("healthy");
}

#[test]
fn rings_in_memory_that_is_not_there_are_refused_or_fatal() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let guest = &guests[0];
    let [a, b] = connected_pair(&guests);
    // Memory may come and go: a CQ whose memory is not there fails when it is used.
    let pages = Pages::new(NOWHERE, 12, 0);
    let (cqn, _) = guest
        .create_cq(&CreateCq::new(a.uar, a.eqn, 4, pages))
        .expect("CQ");
    let setup = QpSetup {
        pdn: a.pdn,
        send_cqn: cqn,
        recv_cqn: cqn,
        uar: a.uar,
        log_size: 4,
        log_stride: 6,
        in_device: false,
    };
    let mut lost = QueuePair::create(guest, &setup).expect("QP");
    lost.connect(guest, guests[1].mac, b.qp.qpn, |_| {})
        .expect("connect");
    b.qp.connect(b.guest, guest.mac, lost.qpn, |_| {})
        .expect_err("the peer is connected already");
    lost.post_send(guest, &good(&a, &b)).expect("post");
    let event = guest.events.lock().wait(guest).expect("event");
    assert_eq!(event, (Kind::CqError, cqn));
    let lists = guest.create_cq(&CreateCq::new(a.uar, a.eqn, 4, Pages::new(NOWHERE, 12, 1)));
    assert_eq!(status(lists), AdminStatus::BadAddress);
    let qp = CreateQp {
        qp_type: vrnic_abi::qp::Type::Rc as u8,
        sq_log_size: 40,
        sq_page_shift: 12,
        rq_log_size: admin::NO_QUEUE,
        pdn: a.pdn.into(),
        send_cqn: a.send_cq.cqn.into(),
        recv_cqn: a.recv_cq.cqn.into(),
        uar: a.uar.into(),
        ..CreateQp::default()
    };
    assert_eq!(status(guest.create_qp(&qp)), AdminStatus::BadParam);
    // The admin rings themselves.
    guest.reset().expect("reset");
    guest
        .write_address(regs::ADMIN_SQ_LO, NOWHERE)
        .expect("register");
    guest
        .write_address(regs::ADMIN_CQ_LO, NOWHERE)
        .expect("register");
    guest
        .set_register(regs::ADMIN_LOG_SIZE, 6)
        .expect("register");
    guest
        .write_address(regs::ASYNC_EQ_LO, NOWHERE)
        .expect("register");
    guest
        .set_register(regs::ASYNC_EQ_LOG_SIZE, 6)
        .expect("register");
    guest
        .set_register(regs::CONTROL, regs::Control::ENABLE.bits())
        .expect("register");
    guest
        .wait_status("FATAL", |status| status.contains(regs::Status::FATAL))
        .expect("fatal");
    let code = guest.register(regs::FATAL_CODE).expect("code");
    assert!(
        [FatalCode::RingMemory as u32, FatalCode::BadRings as u32].contains(&code),
        "{code}"
    );
    // A reset mends it.
    guest.bring_up().expect("bring-up");
    still_alive(&mut daemon, guest);
}

#[test]
fn registers_take_whole_words_alone() {
    let mut daemon = start(1);
    let guest = daemon.ready_guest(0).expect("bring-up");
    for (offset, len) in [
        (0u64, 8usize),
        (1, 4),
        (2, 2),
        (0x1000, 8),
        (0x1ffd, 3),
        (12, 1),
    ] {
        guest.with_client(|client| {
            client
                .region_write(0, offset, &vec![1; len])
                .expect("write");
            let mut bytes = vec![0; len];
            client.region_read(0, offset, &mut bytes).expect("read");
            assert!(bytes.iter().all(|byte| *byte == 0xff), "{offset:#x}");
        });
    }
    // Registers that do not exist.
    for offset in [0x100, 0xffc] {
        guest.set_register(offset, 7).expect("write");
        assert_eq!(guest.register(offset).expect("read"), 0);
    }
    still_alive(&mut daemon, &guest);
}
