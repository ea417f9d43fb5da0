//! Pauses of a class (PFC) between two daemons, as frames on their uplinks.
//!
//! Shows: network: PFC frames on uplinks

use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;
use vrnic_lanes::{Class, PauseFrame, PerClass};
use vrnic_packet::MacAddr;
use vrnic_testdriver::vmm::daemon::Daemon;
use vrnic_testdriver::wait;

use crate::common::ethernet::{BROADCAST, frame, receive, send, with_length};
use crate::common::namespace::Namespace;
use crate::common::switch::{Folder, port};
use crate::common::trunk::Peer;

/// The stations behind the port `g` of each daemon.
const STATIONS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 0x71], [2, 0, 0, 0, 0, 0x72]];
/// Frames of 1000 bytes: more than the threshold of the pauses, and fewer than the daemon accepts
/// from a station that is paused too late.
const FRAMES: u32 = 120;

/// Returns a frame of IPv4 with this DSCP and number.
fn packet(to: [u8; 6], from: [u8; 6], dscp: u8, number: u32) -> Vec<u8> {
    let mut bytes = [&to[..], &from, &[8, 0, 0x45, dscp << 2], &number.to_be_bytes()].concat();
    bytes.resize(1000, 0);
    bytes
}

/// Returns a PFC frame that pauses class 3 as long as possible, or lets it go on.
fn pause(paused: bool) -> Vec<u8> {
    let mut times = PerClass::default();
    times[Class::ROCE] = Some(if paused { u16::MAX } else { 0 });
    PauseFrame { source: MacAddr([2; 6]), times }.bytes().to_vec()
}

/// Returns what class 3 of the port `up` has counted.
fn lane(monitor: &Path) -> impl Fn(&str) -> u64 + use<> {
    let port = port(monitor, "up");
    let lanes = port["lanes"].as_array().cloned().unwrap_or_default();
    let lane = lanes.into_iter().find(|lane| lane["class"] == 3).unwrap_or(Value::Null);
    move |counter| lane[counter].as_u64().unwrap_or(0)
}

/// Two daemons with a station each, whose uplinks are joined.
struct Ends {
    folder: Folder,
    daemons: [Daemon; 2],
    stations: [UnixStream; 2],
}

impl Ends {
    /// Starts both with `program`. The port of the station of the second one is slow, so that its
    /// uplink has to pause the other one.
    fn new(folder: Folder, program: &Path, uplinks: [&str; 2], between: impl Fn(&Daemon)) -> Self {
        let start = |nth: usize, lanes: &str| {
            let texts = [
                ("--uplink", format!("name=up,{}", uplinks[nth])),
                ("--port", format!("name=g,net=@g{nth}")),
                ("--monitor", format!("@m{nth}")),
                ("--lanes", "port=up,pfc=3:20k-10k,ecn=none".to_owned()),
                ("--lanes", lanes.to_owned()),
            ];
            let options = texts.each_ref().map(|(option, text)| (*option, text.as_str()));
            folder.start(program, 0, &options)
        };
        let first = start(0, "port=g,pfc=none");
        between(&first);
        let daemons = [first, start(1, "port=g,rate=8M")];
        let stations = [0, 1].map(|nth| folder.plug(&format!("g{nth}")));
        for daemon in &daemons {
            daemon.wait_for_log("link up port=\"up\"");
            daemon.wait_for_log("link up port=\"g\"");
        }
        let mut ends = Self { folder, daemons, stations };
        // Each switch learns where the other's station is.
        for (from, to) in [(0, 1), (1, 0)] {
            let hello = frame(BROADCAST, STATIONS[from], 60);
            send(&mut ends.stations[from], &hello);
            while receive(&mut ends.stations[to]) != hello {}
        }
        ends
    }

    /// Sends more of class 3 than the slow port takes at once. Nothing is lost, because the second
    /// daemon pauses the first one.
    fn check(mut self) {
        let packets: Vec<_> =
            (0..FRAMES).map(|nth| packet(STATIONS[1], STATIONS[0], 26, nth)).collect();
        for packet in &packets {
            send(&mut self.stations[0], packet);
        }
        for packet in &packets {
            // The host's kernel may send frames, too.
            while receive(&mut self.stations[1]) != *packet {}
        }
        let monitor = |nth| self.folder.path(&format!("m{nth}"));
        wait::until("the end of the pauses", || {
            (lane(&monitor(0))("pfc_received") >= 2).then_some(())
        });
        let [sender, receiver] = [0, 1].map(|nth| lane(&monitor(nth)));
        assert!(receiver("pfc_sent") >= sender("pfc_received"));
        assert!(sender("paused_us") > 0);
        assert_eq!((sender("drops"), receiver("drops")), (0, 0));
        self.daemons.iter_mut().for_each(Daemon::check);
    }
}

#[test]
fn a_daemon_pauses_another_one_by_a_trunk() {
    let program = Path::new(env!("CARGO_BIN_EXE_vrnicd"));
    Ends::new(Folder::new(), program, ["listen=@t", "connect=@t"], |_| ()).check();
}

#[test]
fn a_daemon_pauses_another_one_by_a_tap_device_and_a_packet_socket() {
    for packet_first in [false, true] {
        let Some(namespace) = Namespace::new() else { return };
        let program = namespace.program();
        if packet_first {
            let veth = "ip link add va type veth peer name vb && ip link set va up";
            namespace.run(&format!("{veth} && ip link set vb up"));
            let uplinks = ["packet=va", "packet=vb"];
            Ends::new(Folder::new(), &program, uplinks, |_| ()).check();
        } else {
            let up = |first: &Daemon| {
                // The interface exists when this line is in the log.
                first.wait_for_log("cannot pass this uplink");
                namespace.run("ip link set vt0 up");
            };
            Ends::new(Folder::new(), &program, ["tap=vt0", "packet=vt0"], up).check();
        }
    }
}

/// Returns a daemon with these lanes, between another daemon, which is the test, at a trunk, and a
/// station at a port.
fn between(lanes: &[&str]) -> (Folder, Daemon, Peer, UnixStream) {
    let folder = Folder::new();
    let ports =
        [("--uplink", "name=up,listen=@t"), ("--port", "name=g,net=@g"), ("--monitor", "@m")];
    let lanes = lanes.iter().map(|lanes| ("--lanes", *lanes));
    let daemon = folder.daemon(0, &ports.into_iter().chain(lanes).collect::<Vec<_>>());
    let (peer, station) = (Peer::greeted(&folder.path("t")), folder.plug("g"));
    daemon.wait_for_log("link up port=\"up\"");
    daemon.wait_for_log("link up port=\"g\"");
    (folder, daemon, peer, station)
}

#[test]
fn pauses_of_a_peer_stop_their_class_and_no_other() {
    // A pause has 3.4 s at this rate.
    let (folder, mut daemon, mut peer, mut station) = between(&["port=up,rate=10M"]);
    peer.send(&pause(true));
    wait::until("the pause", || (lane(&folder.path("m"))("pfc_received") == 1).then_some(()));
    let [held, other] = [26, 0].map(|dscp| packet(BROADCAST, STATIONS[0], dscp, 7));
    let both = [&held, &other].map(|frame| with_length(frame)).concat();
    std::io::Write::write_all(&mut station, &both).expect("frames");
    assert_eq!(peer.receive(), other, "the class that is paused waits");
    peer.send(&pause(false));
    assert_eq!(peer.receive(), held);
    daemon.check();
}

/// The peer sends more than the daemon has room for, and does not obey.
#[test]
fn a_peer_that_sends_too_much_is_paused_and_told_again() {
    let lanes = ["port=up,pfc=3:20k-10k", "port=g,rate=1M"];
    let (folder, mut daemon, mut peer, mut station) = between(&lanes);
    let hello = frame(BROADCAST, STATIONS[0], 60);
    send(&mut station, &hello);
    assert_eq!(peer.receive(), hello);
    for nth in 0..500 {
        peer.send(&packet(STATIONS[0], STATIONS[1], 26, nth));
    }
    let mut pauses = 0;
    while pauses < 3 {
        let pause = PauseFrame::parse(&peer.receive()).expect("a PFC frame");
        // A pause ends if this test is so slow that frames leave faster than they come.
        pauses += u32::from(pause.times[Class::ROCE] == Some(u16::MAX));
    }
    wait::until("a drop", || (lane(&folder.path("m"))("drops") > 0).then_some(()));
    assert!(lane(&folder.path("m"))("pfc_sent") >= 3);
    daemon.check();
}
