//! A guest that makes mistakes, or is hostile, gets a status or a log line. Nothing panics, and no
//! other function is affected.
//!
//! Shows: hostile

use vrnic_abi::admin::{CreateCq, Pages, Status as AdminStatus, command};
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::Access;
use vrnic_abi::regs::{self, FatalCode};
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::vmm::vfio::Guest;
use vrnic_testdriver::wr::{Wr, sge};

use crate::common::{connected, pair, start, still_works};

/// An address that no guest of these tests has.
const NOWHERE: u64 = 0xdead_0000_0000;

fn still_alive(daemon: &mut vrnic_testdriver::vmm::daemon::Daemon, guest: &Guest) {
    assert!(guest.caps().max_qp.get() > 0);
    daemon.check();
}

#[test]
fn memory_that_is_not_there_fails_the_operation() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let [mut a, b] = connected(&guests, Setup::default());
    let [mut c, d] = connected(&guests, Setup::default());
    let [mut e, f] = connected(&guests, Setup::default());
    // A region may name memory that the VMM has not mapped. Only its use fails.
    let access = (Access::LOCAL_WRITE | Access::REMOTE_WRITE).bits();
    let local = a.guest.reg_flat(a.pdn, access, NOWHERE, 4096).expect("region");
    let wr = Wr::new(Opcode::Write, &[sge(NOWHERE, 64, local)]).to(b.buffer, b.key);
    let cqe = a.run(&wr);
    assert!(
        [Status::LocProtErr as u8, Status::LocAccessErr as u8].contains(&cqe.status),
        "{cqe:?}"
    );
    let remote = d.guest.reg_flat(d.pdn, access, NOWHERE, 4096).expect("region");
    let wr = Wr::new(Opcode::Write, &[c.sge(0, 64)]).to(NOWHERE, remote);
    let cqe = c.run(&wr);
    assert!([Status::RemOpErr as u8, Status::RemAccessErr as u8].contains(&cqe.status), "{cqe:?}");
    still_works(&mut e, &f);
    daemon.check();
}

#[test]
fn rings_in_memory_that_is_not_there_are_refused_or_fatal() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let guest = &guests[0];
    let [a, b] = connected(&guests, Setup::default());
    // Memory may be unmapped at any time: a CQ whose memory does not exist fails when it is used.
    let create = |levels| {
        let params = CreateCq::new(a.uar, a.eqn, 4, Pages::new(NOWHERE, 12, levels));
        guest.command::<command::CreateCq>(&params).map(|cq| cq.cqn)
    };
    let cqn = create(0).expect("CREATE_CQ");
    let mut lost = a.beside(|params| (params.send_cqn, params.recv_cqn) = (cqn, cqn));
    lost.connect(guests[1].mac(), b.qpn, |_| {});
    lost.post_send(&Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key));
    assert_eq!(guest.wait_event(), (Kind::CqError, cqn.get()));
    assert_eq!(create(1), Err(Refused(AdminStatus::BadAddress, 0)));
    // The admin rings themselves are outside of memory.
    guest.reset();
    guest.set_address(regs::ADMIN_SQ_LO, NOWHERE);
    guest.set_address(regs::ADMIN_CQ_LO, NOWHERE);
    guest.set_register(regs::ADMIN_LOG_SIZE, 6);
    guest.set_address(regs::ASYNC_EQ_LO, NOWHERE);
    guest.set_register(regs::ASYNC_EQ_LOG_SIZE, 6);
    guest.set_register(regs::CONTROL, regs::Control::ENABLE.bits());
    guest.wait_status("FATAL", |status| status.contains(regs::Status::FATAL));
    let code = guest.register(regs::FATAL_CODE);
    assert!([FatalCode::RingMemory as u32, FatalCode::BadRings as u32].contains(&code), "{code}");
    // After a reset the adapter works.
    guest.bring_up();
    still_alive(&mut daemon, guest);
}

#[test]
fn registers_take_whole_words_alone() {
    let mut daemon = start(1);
    let guest = daemon.ready_guest(0);
    for (offset, len) in [(0u64, 8usize), (1, 4), (2, 2), (0x1000, 8), (0x1ffd, 3), (12, 1)] {
        guest.with_client(|client| {
            client.region_write(0, offset, &vec![1; len]).expect("write");
            let mut bytes = vec![0; len];
            client.region_read(0, offset, &mut bytes).expect("read");
            assert!(bytes.iter().all(|byte| *byte == 0xff), "{offset:#x}");
        });
    }
    // Registers that do not exist.
    for offset in [0x100, 0xffc] {
        guest.set_register(offset, 7);
        assert_eq!(guest.register(offset), 0);
    }
    still_alive(&mut daemon, &guest);
}
