//! Requests that concern keys, and the options of QPs and requests for them, on each path between
//! two QPs.
//!
//! Shows: memory

use vrnic_abi::admin::{DeviceFeatures, MrFlags, MwType, Pages, QpFlags, RegMr, TagForm, command};
use vrnic_abi::cq::Status;
use vrnic_abi::qp::{Access, State};
use vrnic_abi::sq::{BindMwSeg, CommandFlags, MemFlags, Opcode, RegMrSeg};
use vrnic_adapter::memory::tpt::Denied;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{ALL, Setup};
use vrnic_testdriver::stream;
use vrnic_testdriver::wr::Wr;
use zerocopy::IntoBytes;

use crate::bus::Endpoint;
use crate::memory::commands::command;
use crate::memory::keys::{BINDABLE, PAGE, REMOTE, alloc_mr, alloc_mw, local_inv, reg, reg_seg};
use crate::network::streams::ends::MS;
use crate::network::streams::pairs::Daemon;

/// The transport between two QPs, and whether their messages travel as packets.
const PATHS: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

/// Two connected QPs of kernel clients, of which B has flags.
struct Scene {
    daemon: Daemon,
    a: Endpoint,
    b: Endpoint,
}

impl Scene {
    fn new((iwarp, packets): (bool, bool), flags: QpFlags) -> Self {
        let daemon = Daemon::new(packets);
        let setup = Setup { kernel: true, ..Setup::default() };
        let commands = !iwarp && flags.contains(QpFlags::NO_SQ_KEYS);
        let tags = (if commands { TagForm::General } else { TagForm::None }, 0);
        let [a, b] = [0, 1].map(|guest: usize| {
            let setup = if guest == 1 { Setup { tags, flags, ..setup } } else { setup };
            Endpoint::new(&daemon.guests[guest], setup)
        });
        if iwarp {
            stream::connect_pair(&a, &b);
        } else {
            a.connect(daemon.guests[1].mac(), b.qpn, |_| {});
            b.connect(daemon.guests[0].mac(), a.qpn, |_| {});
        }
        daemon.pass(2 * MS);
        Self { daemon, a, b }
    }

    /// Posts on B. Returns the status, and the number of the check that failed.
    fn on_b(&mut self, wr: &Wr) -> (Status, u32) {
        self.b.post_send(wr);
        self.daemon.pass(50 * MS);
        let cqe = self.b.send_cq.poll().expect("a completion");
        (status(&cqe), if status(&cqe) == Status::Success { 0 } else { cqe.vendor_err.get() })
    }

    /// Posts a WRITE on A.
    fn write(&mut self, key: u32, at: u64) -> Status {
        self.a.post_send(&Wr::new(Opcode::Write, &[self.a.sge(0, 8)]).to(at, key));
        // A connection that fails has some time to end.
        self.daemon.pass(3000 * MS);
        status(&self.a.send_cq.poll().expect("a completion"))
    }

    /// Registers B's first page by a work request.
    fn register(&self, key: u32, flags: MemFlags) -> Wr {
        let seg = reg_seg(&self.b.guest, &[self.b.buffer], PAGE, ALL);
        reg(key, self.b.buffer, &RegMrSeg { flags: flags.bits(), ..seg })
    }

    /// Binds a window to B's first page.
    fn bind(&self, key: u32, lkey: u32, flags: MemFlags) -> Wr {
        let seg = BindMwSeg {
            length: PAGE.into(),
            lkey: lkey.into(),
            access: REMOTE.into(),
            flags: flags.bits(),
            ..BindMwSeg::default()
        };
        Wr::new(Opcode::BindMw, &[]).body(seg.as_bytes()).to(self.b.buffer, key)
    }

    fn bindable(&self) -> u32 {
        let b = &self.b;
        b.guest.reg_flat(b.pdn, BINDABLE, b.buffer, 1 << 20).expect("a region")
    }

    /// Returns a request of each kind that concerns a key, all of which are refused.
    fn refused(&self) -> [Wr; 3] {
        let nothing = 0x7f_0000;
        [
            self.register(nothing, MemFlags::empty()),
            local_inv(nothing),
            self.bind(nothing, self.b.key, MemFlags::empty()),
        ]
    }
}

fn refused(why: Denied) -> (Status, u32) {
    (Status::MwBindErr, why as u32)
}

const DONE: (Status, u32) = (Status::Success, 0);

#[test]
fn the_device_has_the_options() {
    let daemon = Daemon::new(false);
    assert!(daemon.guests[0].caps().has(DeviceFeatures::KEY_OPTIONS));
}

/// Reactive failure of registration, invalidation and binding: requests before are executed, later
/// ones flushed, what the peer sends goes on, and the queue starts again.
///
/// Shows: memory: a refused request about keys, with reactive failure: only the send queue stops
#[test]
fn a_refused_request_stops_the_send_queue_of_a_reactive_qp() {
    for path in PATHS {
        for nth in 0..3 {
            let mut s = Scene::new(path, QpFlags::REACTIVE);
            let write = Wr::new(Opcode::Write, &[s.b.sge(0, 64)]).to(s.a.buffer, s.a.key);
            s.b.post_recv(80, &[s.b.sge(0, 100)]);
            s.b.post_send(&write.clone().id(1));
            s.b.post_send(&s.refused()[nth].clone().id(2));
            s.b.post_send(&write.clone().id(3));
            s.daemon.pass(50 * MS);
            for (id, expected) in
                [(1, Status::Success), (2, Status::MwBindErr), (3, Status::WrFlushErr)]
            {
                s.b.send_cq.expect(id, expected);
            }
            assert_eq!([s.a.state(), s.b.state()], [State::Rts, State::Sqe], "{path:?} {nth}");
            let (key, addr) = (s.b.key, s.b.buffer);
            assert_eq!(s.write(key, addr), Status::Success);
            s.a.post_send(&Wr::new(Opcode::Send, &[s.a.sge(0, 64)]));
            s.daemon.pass(50 * MS);
            s.b.recv_cq.expect(80, Status::Success);
            s.b.set_state(State::Rts);
            assert_eq!(s.on_b(&write), DONE, "{path:?} {nth}");
        }
    }
}

/// Anticipatory failure of the same requests: both QPs are in the error state, the receives of both
/// are flushed, and the peer's next request fails.
///
/// Shows: memory: a refused request about keys, with anticipatory failure: the connection ends
#[test]
fn a_refused_request_ends_the_connection_of_another_qp() {
    for path in PATHS {
        for nth in 0..3 {
            let mut s = Scene::new(path, QpFlags::empty());
            s.b.post_recv(80, &[]);
            let wr = s.refused()[nth].clone();
            assert_eq!(s.on_b(&wr).0, Status::MwBindErr, "{path:?} {nth}");
            s.b.recv_cq.expect(80, Status::WrFlushErr);
            assert_eq!(s.b.state(), State::Err);
            // Over RoCE packets, the answer of the next request tells the peer.
            let (key, addr) = (s.b.key, s.b.buffer);
            let told = s.write(key, addr);
            let by_packets = path == (false, true);
            let expected = if by_packets { Status::RemOpErr } else { Status::WrFlushErr };
            assert_eq!((told, s.a.state()), (expected, State::Err), "{path:?} {nth}");
        }
    }
}

/// The switch for registration by the send queue: it makes no keys valid. It still ends keys.
#[test]
fn a_send_queue_that_makes_no_keys_refuses_to() {
    for path in PATHS {
        let flags = QpFlags::NO_SQ_KEYS | QpFlags::REACTIVE;
        let mut s = Scene::new(path, flags);
        let region = s.bindable();
        let [fast, window] =
            [alloc_mr(&s.b.guest, s.b.pdn, 1), alloc_mw(&s.b.guest, s.b.pdn, MwType::Type2)];
        let mut requests =
            vec![s.register(fast, MemFlags::empty()), s.bind(window, region, MemFlags::empty())];
        if !path.0 {
            requests.push(command(&[s.b.sge(0, 64)], &[0; 64], 20, 1, CommandFlags::empty()));
        }
        for request in requests {
            assert_eq!(s.on_b(&request), refused(Denied::Rights), "{path:?}");
            s.b.set_state(State::Rts);
        }
        // Another QP of the PD registers.
        let other = Scene::new(path, QpFlags::empty());
        let key = alloc_mr(&other.b.guest, other.b.pdn, 1);
        let mut other = other;
        let wr = other.register(key, MemFlags::empty());
        assert_eq!(other.on_b(&wr), DONE);
        assert_eq!(other.on_b(&local_inv(key)), DONE);
        assert_eq!(s.on_b(&local_inv(fast)), refused(Denied::Invalid));
    }
}

/// A QP whose regions are not for its peer: windows are.
///
/// Shows: memory
#[test]
fn a_peer_reaches_windows_only_if_the_qp_says_so() {
    for path in PATHS {
        for by_window in [true, false] {
            let mut s = Scene::new(path, QpFlags::WINDOWS_ONLY);
            let (region, window) = (s.bindable(), alloc_mw(&s.b.guest, s.b.pdn, MwType::Type2));
            let wr = s.bind(window, region, MemFlags::empty());
            assert_eq!(s.on_b(&wr), DONE);
            let (key, expected) = match by_window {
                true => (window, Status::Success),
                false => (s.b.key, Status::RemAccessErr),
            };
            let addr = s.b.buffer;
            assert_eq!(s.write(key, addr), expected, "{path:?}");
            // Local use of regions goes on.
            if by_window {
                let wr = Wr::new(Opcode::Write, &[s.b.sge(0, 8)]).to(s.a.buffer, s.a.key);
                assert_eq!(s.on_b(&wr), DONE);
            }
        }
    }
}

/// A request that names the present key is refused if that is another one.
#[test]
fn the_instance_is_compared_where_asked() {
    let same = MemFlags::SAME_KEY;
    for path in PATHS {
        let mut s = Scene::new(path, QpFlags::REACTIVE);
        let fast = alloc_mr(&s.b.guest, s.b.pdn, 1);
        let other = fast & !0xff | (fast + 1) & 0xff;
        for (key, flags, expected) in [
            (other, same, refused(Denied::Stale)),
            (fast, same, DONE),
            (other, same, refused(Denied::Stale)),
            (other, MemFlags::empty(), DONE),
            (fast, same, refused(Denied::Stale)),
            (other, same, DONE),
        ] {
            let wr = s.register(key, flags);
            assert_eq!(s.on_b(&wr), expected, "{path:?} {key:#x}");
            match expected {
                DONE => assert_eq!(s.on_b(&local_inv(key)), DONE),
                _ => s.b.set_state(State::Rts),
            }
        }
        let region = s.bindable();
        for kind in [MwType::Type1, MwType::Type2] {
            let window = alloc_mw(&s.b.guest, s.b.pdn, kind);
            let other = window & !0xff | (window + 1) & 0xff;
            for (key, flags, expected) in
                [(other, same, refused(Denied::Stale)), (window, same, DONE)]
            {
                let wr = s.bind(key, region, flags);
                assert_eq!(s.on_b(&wr), expected, "{path:?} {key:#x}");
                s.b.set_state(State::Rts);
            }
        }
    }
}

/// A region without the right of local reads is written by its peer and by receives, but nothing is
/// sent from it.
///
/// Shows: memory
#[test]
fn nothing_is_sent_from_a_region_without_local_reads() {
    for path in PATHS {
        for fast in [false, true] {
            let mut s = Scene::new(path, QpFlags::empty());
            let key = if fast {
                let key = alloc_mr(&s.b.guest, s.b.pdn, 1);
                let wr = s.register(key, MemFlags::NO_LOCAL_READ);
                assert_eq!(s.on_b(&wr), DONE);
                key
            } else {
                let params = RegMr {
                    flags: MrFlags::NO_LOCAL_READ.bits().into(),
                    ..RegMr::new(s.b.pdn, ALL, s.b.buffer, PAGE, Pages::new(s.b.buffer, 12, 0))
                };
                s.b.guest.command::<command::RegMr>(&params).expect("a key").get()
            };
            let sge = vrnic_testdriver::wr::sge(s.b.buffer, 8, key);
            s.b.post_recv(1, &[sge]);
            s.a.post_send(&Wr::new(Opcode::Send, &[s.a.sge(0, 8)]));
            s.daemon.pass(50 * MS);
            s.b.recv_cq.expect(1, Status::Success);
            assert_eq!(status(&s.a.send_cq.poll().expect("sent")), Status::Success);
            let addr = s.b.buffer;
            assert_eq!(s.write(key, addr), Status::Success);
            // The data of a READ is written to the region.
            let read = Wr::new(Opcode::Read, &[sge]).to(s.a.buffer, s.a.key);
            assert_eq!(s.on_b(&read), DONE);
            let send = Wr::new(Opcode::Write, &[sge]).to(s.a.buffer, s.a.key);
            assert_eq!(s.on_b(&send).0, Status::LocProtErr, "{path:?} {fast}");
        }
    }
}

/// REREG_MR keeps the option.
#[test]
fn a_reregistered_region_stays_without_local_reads() {
    use vrnic_abi::admin::{Rereg, ReregMr};
    let mut s = Scene::new((false, false), QpFlags::empty());
    let params = RegMr {
        flags: MrFlags::NO_LOCAL_READ.bits().into(),
        ..RegMr::new(s.b.pdn, ALL, s.b.buffer, PAGE, Pages::new(s.b.buffer, 12, 0))
    };
    let key = s.b.guest.command::<command::RegMr>(&params).expect("a key").get();
    let change =
        ReregMr { access: Access::LOCAL_WRITE.bits().into(), ..ReregMr::new(key, Rereg::ACCESS) };
    let key = s.b.guest.command::<command::ReregMr>(&change).expect("a key").get();
    let sge = vrnic_testdriver::wr::sge(s.b.buffer, 8, key);
    let send = Wr::new(Opcode::Write, &[sge]).to(s.a.buffer, s.a.key);
    assert_eq!(s.on_b(&send).0, Status::LocProtErr);
}
