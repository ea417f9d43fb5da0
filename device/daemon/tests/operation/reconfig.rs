//! Changes to a running daemon through its control socket.
//!
//! Shows: daemon

use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use vrnic_abi::admin::{SetGid, command};
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::{AddressVector, Attr, AttrMask, NO_VLAN, State, Type};
use vrnic_abi::sq::{DatagramSeg, Flags, Opcode};
use vrnic_abi::uar::ARM_NEXT;
use vrnic_control_api::per_second::PerSecond;
use vrnic_testdriver::qp::{Setup, link_local};
use vrnic_testdriver::vmm::daemon::{Daemon, mac};
use vrnic_testdriver::vmm::vfio::{Endpoint, Guest};
use vrnic_testdriver::wait;
use vrnic_testdriver::wr::Wr;
use zerocopy::IntoBytes;

use crate::common::ethernet::{BROADCAST, STRANGER, frame, nothing_comes, receive, send};
use crate::common::switch::Folder;
use crate::common::trunk::Peer;
use crate::common::{connected, descriptors, start_with, still_works};

/// A daemon with a control socket and a monitor.
struct Changed {
    folder: Folder,
    daemon: Daemon,
}

impl Changed {
    fn start(functions: usize) -> Self {
        Self::start_with(functions, &[])
    }

    fn start_with(functions: usize, more: &[(&str, &str)]) -> Self {
        let folder = Folder::new();
        let args = [&[("--control", "@control"), ("--monitor", "@monitor")], more].concat();
        let daemon = folder.daemon(functions, &args);
        wait::until("control socket", || UnixStream::connect(folder.path("control")).ok());
        Self { folder, daemon }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path(name)
    }

    fn vrnic(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vrnic"));
        command.arg("--control").arg(self.path("control"));
        command.arg("--monitor").arg(self.path("monitor"));
        let args = args.iter().map(|arg| self.folder.settings(arg));
        command.args(args).output().expect("vrnic runs")
    }

    /// Returns the output of a command, which must succeed.
    #[track_caller]
    fn said(&self, args: &[&str]) -> String {
        let output = self.vrnic(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Returns the reason for which a command is refused.
    #[track_caller]
    fn refused(&self, args: &[&str]) -> String {
        let output = self.vrnic(args);
        assert!(!output.status.success(), "{args:?} was accepted");
        String::from_utf8(output.stderr).expect("text")
    }

    /// Returns the guest of a function that was added, with the MAC of number `index`.
    fn guest(&self, name: &str, index: usize) -> Guest {
        Guest::connect(&self.path(name), mac(index)).expect("a VMM")
    }
}

/// The settings of function 1 without and with a netdev.
const ADDED: &str = "name=late,mac=52:54:00:00:00:0b,socket=@late";

#[test]
fn a_function_that_was_added_works_like_the_others() {
    let mut changed = Changed::start(1);
    let first = changed.daemon.ready_guest(0);
    // The workers are asleep, and no doorbell of the new function has woken them yet.
    std::thread::sleep(std::time::Duration::from_millis(50));
    changed.said(&["function", "add", ADDED]);
    let list = changed.said(&["function", "list"]);
    assert!(list.contains("f0") && list.contains("52:54:00:00:00:0b"), "{list}");
    let shown = changed.said(&["show", "function"]);
    assert!(shown.contains("late"), "{shown}");
    let late = changed.guest("late", 1);
    late.bring_up();
    let guests = [first, late];
    let [mut a, mut b] = connected(&guests, Setup::default());
    still_works(&mut a, &b);
    still_works(&mut b, &a);
    changed.daemon.check();
}

#[test]
fn functions_come_and_go_without_a_trace() {
    let mut changed = Changed::start(1);
    let first = changed.daemon.ready_guest(0);
    let mut before = None;
    for round in 0..4 {
        changed.said(&["function", "add", &format!("{ADDED},net=@late.net")]);
        let late = changed.guest("late", 1);
        let _netdev = changed.folder.plug("late.net");
        late.bring_up();
        let guests = [first.clone(), late];
        let [mut a, b] = connected(&guests, Setup::default());
        still_works(&mut a, &b);
        let why = changed.refused(&["function", "remove", "late"]);
        assert!(why.contains("a VMM is connected"), "{why}");
        changed.said(&["function", "remove", "late", "--force"]);
        for file in ["late", "late.net"] {
            assert!(!changed.path(file).exists(), "{file} is left");
        }
        assert!(!changed.said(&["function", "list"]).contains("late"));
        assert!(!changed.said(&["show", "function"]).contains("late"));
        // The last connections, and housekeeping, release their descriptors within a short time.
        if round > 0 {
            let before = *before.get_or_insert_with(|| descriptors(&changed.daemon));
            wait::until("descriptors", || (descriptors(&changed.daemon) <= before).then_some(()));
        }
    }
    changed.daemon.check();
}

#[test]
fn an_uplink_and_a_port_come_and_go() {
    let mut changed = Changed::start(0);
    let other = changed
        .folder
        .daemon(0, &[("--uplink", "name=up,connect=@t"), ("--port", "name=g,net=@other")]);
    changed.said(&["port", "add", "name=g,net=@g"]);
    changed.said(&["uplink", "add", "name=up,listen=@t"]);
    let (mut a, mut b) = (changed.folder.plug("g"), changed.folder.plug("other"));
    for daemon in [&changed.daemon, &other] {
        daemon.wait_for_log("link up port=\"up\"");
        daemon.wait_for_log("link up port=\"g\"");
    }
    let sent = frame(BROADCAST, STRANGER, 64);
    send(&mut a, &sent);
    assert_eq!(receive(&mut b), sent);
    let list = changed.said(&["uplink", "list"]);
    assert!(list.contains("up") && list.contains("listen=") && list.contains("no"), "{list}");
    assert!(changed.said(&["port", "list"]).contains('g'));

    changed.said(&["uplink", "remove", "up"]);
    assert!(!changed.path("t").exists());
    other.wait_for_log("link down port=\"up\"");
    send(&mut a, &sent);
    nothing_comes(&mut b);
    changed.said(&["port", "remove", "g"]);
    assert_eq!(a.read(&mut [0; 1]).expect("the end"), 0);
    assert!(!changed.said(&["show", "port"]).contains("trunk"));
    changed.daemon.check();
}

/// Starts a daemon with two functions, and connects their guests.
fn with_connection() -> (Changed, [Endpoint; 2]) {
    let changed = Changed::start(2);
    let guests = [0, 1].map(|number| changed.daemon.ready_guest(number));
    let ends = connected(&guests, Setup::default());
    (changed, ends)
}

/// A ceiling holds from the command on, and ends by another command. Only a lower limit of the time
/// is checked, because a loaded machine is slow.
#[test]
fn the_ceilings_of_a_function_change_under_traffic() {
    let (mut changed, [mut a, b]) = with_connection();
    let mut run = |count: u64| {
        let start = Instant::now();
        for id in 0..count {
            a.post_send(&Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key).id(id));
        }
        for id in 0..count {
            a.send_cq.expect(id, Status::Success);
        }
        start.elapsed()
    };
    run(8);
    for limit in ["--ops=101", "--rate=6400"] {
        changed.said(&["function", "limit", "f0", limit]);
        let (_, value) = limit.split_once('=').expect("a value");
        let text = value.parse::<PerSecond>().expect("an amount").to_string();
        assert!(changed.said(&["function", "list"]).contains(&text));
        // The first one begins at once.
        assert!(run(10) >= Duration::from_millis(75), "{limit}");
    }
    changed.said(&["function", "limit", "f0"]);
    run(8);
    assert!(changed.refused(&["function", "limit", "f9"]).contains("no function 'f9'"));
    assert!(changed.refused(&["function", "limit", "f0", "--ops=0"]).contains("above 0"));
    changed.daemon.check();
}

/// Events whose interrupts would exceed the ceiling come later.
#[test]
fn the_ceiling_of_interrupts_changes_under_traffic() {
    let (mut changed, [mut a, b]) = with_connection();
    let mut run = |count: u64| {
        let start = Instant::now();
        for id in 0..count {
            a.send_cq.arm(ARM_NEXT);
            a.post_send(&Wr::new(Opcode::Write, &[a.sge(0, 8)]).to(b.buffer, b.key).id(id));
            assert_eq!(a.events.wait(), (Kind::Completion, a.send_cq.cqn));
            a.send_cq.expect(id, Status::Success);
        }
        start.elapsed()
    };
    run(8);
    changed.said(&["function", "limit", "f0", "--interrupts=101"]);
    assert!(changed.said(&["function", "list"]).contains("101"));
    // The first one is raised at once.
    assert!(run(10) >= Duration::from_millis(75));
    changed.said(&["function", "limit", "f0"]);
    run(8);
    changed.daemon.check();
}

/// Several full queues of WRITEs of a function.
struct Busy {
    ends: Vec<[Endpoint; 2]>,
}

impl Busy {
    /// Messages of each queue, and their length.
    const MESSAGES: u64 = 250;
    const LEN: u32 = 256 << 10;

    fn new(from: &Guest, to: &Guest) -> Self {
        let setup =
            Setup { region: Self::LEN.into(), log_wqes: 8, log_cqes: 8, ..Setup::default() };
        let pair = |_| {
            let ends = [Endpoint::new(from, setup), Endpoint::new(to, setup)];
            Endpoint::connect_pair(&ends[0], &ends[1]);
            ends
        };
        Self { ends: (0..8).map(pair).collect() }
    }

    fn store(&mut self) {
        for [a, b] in &mut self.ends {
            let write = Wr::new(Opcode::Write, &[a.sge(0, Self::LEN)]).to(b.buffer, b.key);
            (0..Self::MESSAGES).for_each(|_| a.store_send(&write));
        }
    }

    /// Returns the times at which the messages complete, in order.
    fn times(&mut self) -> Vec<u64> {
        let mut times = Vec::new();
        for [a, _] in &mut self.ends {
            times.extend((0..Self::MESSAGES).map(|_| {
                let entry = a.send_cq.wait();
                assert_eq!(entry.status, Status::Success as u8);
                entry.timestamp.get()
            }));
        }
        times.sort_unstable();
        times
    }

    /// Returns how many messages of each of two functions complete while both have work.
    fn race(functions: &mut [Self; 2]) -> [usize; 2] {
        functions.iter_mut().for_each(Self::store);
        for ([a, _], [b, _]) in functions[0].ends.iter().zip(&functions[1].ends) {
            a.ring();
            b.ring();
        }
        let times = functions.each_mut().map(Self::times);
        let start = times.iter().map(|times| times[0]).max().expect("two");
        let end = times.iter().map(|times| times[times.len() - 1]).min().expect("two");
        times.map(|times| times.iter().filter(|time| (start..=end).contains(time)).count())
    }
}

/// Two functions always have work for one worker. How much each gets follows from its share, which
/// changes at run time. The bounds are wide, because a loaded machine stops the worker at times.
/// The function whose turn it is then pays for the pause. Messages are copied: with packets, each
/// message costs the function that receives it as much as the one that sends it, so that neither
/// can be faster than the other.
///
/// Shows: resources: shares of functions in the time of a worker
#[test]
fn functions_share_a_worker_by_their_weights_and_floors() {
    let mut changed = Changed::start_with(2, &[("--workers", "1"), ("--fabric", "copy")]);
    let guests = [0, 1].map(|number| changed.daemon.ready_guest(number));
    let mut functions = [Busy::new(&guests[0], &guests[1]), Busy::new(&guests[1], &guests[0])];
    for (share, parts) in
        [(["", ""], [1, 1]), (["--weight=25", ""], [1, 4]), (["--floor=80%", ""], [9, 1])]
    {
        for (name, share) in ["f0", "f1"].iter().zip(share) {
            let args = ["function", "share", name, share];
            changed.said(if share.is_empty() { &args[..3] } else { &args });
        }
        let done = Busy::race(&mut functions);
        let [first, second] = [done[0] * parts[1], done[1] * parts[0]];
        assert!(first.max(second) * 2 <= first.min(second) * 5, "{share:?}: {done:?}");
    }
    assert!(changed.said(&["function", "list"]).contains("80%"));
    assert!(changed.refused(&["function", "share", "f1", "--floor=21%"]).contains("101 %"));
    assert!(changed.refused(&["function", "share", "f9"]).contains("no function 'f9'"));
    assert!(changed.refused(&["function", "share", "f0", "--weight=0"]).contains("1 to 1000"));
    changed.daemon.check();
}

/// Posts many datagrams to a station that is behind an uplink. Returns the endpoints.
fn flood(guest: &Guest) -> Vec<Endpoint> {
    let gid = link_local(guest.mac());
    guest.command::<command::SetGid>(&SetGid::set(0, gid, guest.mac(), NO_VLAN)).expect("SET_GID");
    let av = AddressVector {
        dgid: link_local(STRANGER),
        dmac: STRANGER,
        vlan: NO_VLAN.into(),
        hop_limit: 1,
        ..AddressVector::default()
    };
    let to = DatagramSeg { av, dest_qpn: 100.into(), qkey: 1.into() };
    let setup = Setup { kind: Type::Ud, log_wqes: 8, ..Setup::default() };
    let sender = |_| {
        let mut end = Endpoint::new(guest, setup);
        let init = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::QKEY;
        let rts = AttrMask::STATE | AttrMask::SQ_PSN;
        let steps = [(State::Init, init), (State::Rtr, AttrMask::STATE), (State::Rts, rts)];
        guest.take_through(end.qpn, Attr { port: 1, qkey: 1.into(), ..Attr::default() }, &steps);
        let send = Wr::new(Opcode::Send, &[end.sge(0, 4096)]).flags(Flags::empty());
        let send = send.body(to.as_bytes());
        (0..250).for_each(|_| end.store_send(&send));
        end.ring();
        end
    };
    (0..8).map(sender).collect()
}

/// Both functions always have frames for an uplink whose peer reads slowly.
///
/// Shows: resources: shares of functions in a busy uplink
#[test]
fn functions_share_a_busy_uplink_by_their_weights() {
    let mut changed = Changed::start_with(2, &[("--uplink", "name=up,listen=@trunk")]);
    let mut peer = Peer::greeted(&changed.path("trunk"));
    changed.daemon.wait_for_log("link up port=\"up\"");
    changed.said(&["function", "share", "f0", "--weight=50"]);
    changed.said(&["function", "share", "f1", "--weight=200"]);
    let guests = [0, 1].map(|number| changed.daemon.ready_guest(number));
    let _ends = guests.each_ref().map(flood);
    let mut frames = [0; 2];
    for nth in 0..1500 {
        let frame = peer.receive();
        // The first ones wait in the ring of the trunk already when both have begun.
        if let Some(from) = guests.iter().position(|guest| frame[6..12] == guest.mac())
            && nth >= 500
        {
            frames[from] += 1;
        }
    }
    let [few, many] = frames;
    assert!(many >= 2 * few && many <= 6 * few && few > 0, "{frames:?}");
    changed.daemon.check();
}

#[test]
fn what_cannot_be_done_is_said_and_changes_nothing() {
    let mut changed = Changed::start(1);
    for (args, part) in [
        (["function", "add", "name=f0,mac=52:54:00:00:00:0b,socket=@x"], "same name"),
        (["function", "add", "name=x,mac=52:54:00:00:00:0a,socket=@x"], "same MAC"),
        (["function", "add", "name=x,mac=52:54:00:00:00:0b,socket=/nonexistent/x"], "folder"),
        (["function", "remove", "x"], "no function 'x'"),
        (["port", "remove", "f0"], "no port 'f0'"),
        (["port", "add", "name=f0,net=@x"], "same name"),
        (["uplink", "remove", "x"], "no uplink 'x'"),
        (["uplink", "add", "name=x,packet=no-such-if"], "no-such-if"),
        (["uplink", "add", "name=x,fd=3"], "descriptor"),
        (["uplink", "add", "name=x,listen=/nonexistent/x"], "folder"),
    ] {
        let why = changed.refused(&args);
        assert!(why.contains(part), "{args:?}: {why}");
    }
    assert_eq!(changed.said(&["function", "list"]).lines().count(), 2);
    assert_eq!(changed.said(&["port", "list"]).lines().count(), 1);
    assert_eq!(changed.said(&["uplink", "list"]).lines().count(), 1);
    assert!(!changed.path("x").exists());
    // There is room for sixteen functions.
    for index in 1..16 {
        let settings = format!("name=l{index},mac=52:54:00:00:01:{index:02x},socket=@l{index}");
        changed.said(&["function", "add", &settings]);
    }
    let why = changed.refused(&["function", "add", ADDED]);
    assert!(why.contains("out of entries: there is room for 16"), "{why}");
    changed.daemon.check();
}

#[test]
fn the_control_socket_is_its_owners_and_survives_nonsense() {
    let folder = Folder::new();
    let control = folder.path("control");
    let path = control.to_str().expect("text").to_owned();
    let mut daemon = start_with(1, &["--control", &path, "--socket-mode", "0666"]);
    let mode = std::fs::metadata(&control).expect("the socket").mode() & 0o7777;
    assert_eq!(mode, 0o600);
    for nonsense in
        [&b"\n"[..], b"{}\n", b"{\"add-uplink\":{\"name\":\"x\"}}\n", b"\xff\n", &[b'a'; 20_000]]
    {
        let mut stream = UnixStream::connect(&control).expect("connect");
        // The daemon may have closed the connection before it has all bytes.
        let _part = stream.write_all(nonsense);
        let mut reply = String::new();
        let read = stream.read_to_string(&mut reply);
        assert!(read.is_err() || reply.contains("refused"), "{reply}");
    }
    // A silent client delays the next one for a few seconds only.
    let _silent = UnixStream::connect(&control).expect("connect");
    let output = Command::new(env!("CARGO_BIN_EXE_vrnic"))
        .args(["--control", &path, "function", "list"])
        .output()
        .expect("vrnic runs");
    assert!(output.status.success() && output.stdout.windows(2).any(|two| two == b"f0"));
    daemon.check();
}
