//! An uplink that is lost and comes back: the functions' ports, and connections over the uplink.
//!
//! Shows: network

use std::process::Command;

use vrnic_abi::cq::Status as Outcome;
use vrnic_abi::eq::Kind;
use vrnic_abi::regs::Status;
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::wait;
use vrnic_testdriver::wr::Wr;

use crate::common::joined::Joined;
use crate::common::pattern;
use crate::common::switch::Folder;

/// Starts two daemons with a trunk that can be removed from the first one. `follow` is a setting of
/// the second daemon's uplink.
fn start(follow: &str) -> Joined {
    let first = ["--uplink", "name=up,listen=@trunk", "--control", "@control"];
    let second = format!("name=up,connect=@trunk,follow={follow}");
    Joined::start(Folder::new(), [&first, &["--uplink", &second]])
}

/// Changes the first daemon's uplink.
fn uplink(joined: &Joined, args: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vrnic"));
    command.arg("--control").arg(joined.folder.path("control")).arg("uplink");
    assert!(command.args(args).status().expect("vrnic runs").success(), "{args:?}");
}

fn lose(joined: &Joined) {
    uplink(joined, &["remove", "up"]);
    joined.daemons[1].wait_for_log("link down port=\"up\"");
}

fn restore(joined: &Joined) {
    uplink(joined, &["add", &joined.folder.settings("name=up,listen=@trunk")]);
}

#[test]
fn a_port_goes_down_and_up_with_the_uplink_that_it_follows() {
    let mut joined = start("yes");
    let log = "because no uplink that they follow has one";
    // Before the trunk's peer had started, the functions had no link, either.
    assert_eq!(joined.daemons[1].log().matches(log).count(), 1);
    assert_eq!(joined.guests[1].event(), None);
    lose(&joined);
    assert_eq!(joined.guests[1].wait_event(), (Kind::PortDown, 1));
    assert!(!joined.guests[1].status().contains(Status::LINK_UP));
    restore(&joined);
    assert_eq!(joined.guests[1].wait_event(), (Kind::PortUp, 1));
    assert!(joined.guests[1].status().contains(Status::LINK_UP));
    // The first daemon's functions follow no uplink.
    assert_eq!(joined.guests[0].event(), None);
    joined.check();
}

/// If functions follow two uplinks, one with a link is enough.
#[test]
fn a_port_follows_the_last_of_its_uplinks() {
    let folder = Folder::new();
    let peer = |name: &str| {
        let (uplink, port) =
            (format!("name=up,connect=@{name}"), format!("name=g,net=@{name}.net"));
        folder.daemon(0, &[("--uplink", &uplink), ("--port", &port)])
    };
    let options = ["one", "two"].map(|name| format!("name={name},listen=@{name},follow=yes"));
    let daemon = folder
        .daemon(1, &[("--uplink", &options[0]), ("--uplink", &options[1]), ("--control", "@c")]);
    let [one, two] = ["one", "two"].map(peer);
    daemon.wait_for_log("link up port=\"two\"");
    daemon.wait_for_log("link up port=\"one\"");
    let guest = daemon.ready_guest(0);
    drop(one);
    daemon.wait_for_log("link down port=\"one\"");
    assert_eq!(guest.event(), None);
    drop(two);
    assert_eq!(guest.wait_event(), (Kind::PortDown, 1));
    // When both uplinks are removed, the functions follow none and have a link.
    for name in ["one", "two"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vrnic"));
        command.arg("--control").arg(folder.path("c")).args(["uplink", "remove", name]);
        assert!(command.status().expect("vrnic runs").success());
    }
    assert_eq!(guest.wait_event(), (Kind::PortUp, 1));
}

/// Requests that are posted while the uplink is away are executed when it returns in time.
#[test]
fn connections_go_on_when_the_uplink_returns() {
    for follow in ["no", "yes"] {
        let joined = start(follow);
        // The QPs retry seven times, after half a second or more each.
        let mut ends =
            joined.connected(Setup::default(), |attr| (attr.timeout, attr.retry_cnt) = (17, 7));
        lose(&joined);
        let data = [1, 2].map(|seed| pattern(60_000, seed));
        let peers = ends.each_ref().map(|end| (end.buffer + (1 << 20), end.key));
        for (nth, end) in ends.iter_mut().enumerate() {
            end.fill(0, &data[nth]);
            let (addr, key) = peers[1 - nth];
            end.post_send(&Wr::new(Opcode::Write, &[end.sge(0, 60_000)]).to(addr, key));
        }
        std::thread::sleep(std::time::Duration::from_millis(700));
        assert!(ends.iter_mut().all(|end| end.send_cq.poll().is_none()));
        restore(&joined);
        for (nth, end) in ends.iter_mut().enumerate() {
            let cqe = wait::until("a WRITE", || end.send_cq.poll());
            assert_eq!(status(&cqe), Outcome::Success, "follow={follow}");
            let arrived = || (end.bytes(1 << 20, 60_000) == data[1 - nth]).then_some(());
            wait::until("the other's WRITE", arrived);
        }
    }
}

#[test]
fn connections_end_when_the_uplink_stays_away() {
    for follow in ["no", "yes"] {
        let joined = start(follow);
        let mut ends =
            joined.connected(Setup::default(), |attr| (attr.timeout, attr.retry_cnt) = (12, 2));
        lose(&joined);
        for end in 0..2 {
            let [a, b] = &mut ends;
            let (from, to) = if end == 0 { (a, b) } else { (b, a) };
            let write = Wr::new(Opcode::Write, &[from.sge(0, 8)]).to(to.buffer, to.key);
            from.run_expecting(&write, Outcome::RetryExcErr);
        }
    }
}
