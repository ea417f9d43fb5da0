//! vfio-user messages that no correct VMM sends: each is answered with an error and has no other
//! effect, even if it arrives in pieces.
//!
//! Shows: hostile

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use vrnic_testdriver::vmm::daemon::Daemon;
use vrnic_testdriver::vmm::raw::{
    Command, RawClient, Reply, dma_map, message, region_access, set_irqs,
};

use crate::common::{descriptors, limit_descriptors, start};

/// The number that vfio gives to configuration space.
const CONFIG: u32 = 7;
/// `VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER`.
const ASSIGN: u32 = 1 << 2 | 1 << 5;
/// Header flag: the sender wants no reply.
const NO_REPLY: u8 = 1 << 4;
/// Version 0.1 without capabilities.
const VERSION: [u8; 4] = [0, 0, 1, 0];
/// The identity that configuration space begins with.
const IDENTITY: [u8; 4] = [0x34, 0x12, 0x4e, 0x52];

/// Checks that the daemon answers: reads the identity.
fn answers(client: &mut RawClient) {
    let body = region_access(CONFIG, 0, 4, &[]);
    let reply = client.call(Command::RegionRead, &body, &[]).expect("reply");
    assert_eq!(reply.body.get(16..), Some(&IDENTITY[..]));
}

/// Checks that the daemon serves a new VMM.
fn serves(daemon: &Daemon) {
    let guest = daemon.guest(0);
    let mut id = [0; 4];
    guest.read_config(0, &mut id);
    assert_eq!(id, IDENTITY);
}

fn call(client: &mut RawClient, command: u16, body: &[u8]) -> Reply {
    client.send(command, body, &[]).expect("send");
    client.reply().expect("reply")
}

/// Returns whether a reply is a refusal with this error number.
fn refused(reply: &Reply, errno: Errno) -> bool {
    reply.error && reply.errno == errno.raw_os_error().unsigned_abs()
}

/// Returns a number of the daemon's /proc/PID/status.
fn status(daemon: &Daemon, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("status");
    let line = text.lines().find(|line| line.starts_with(field)).expect("field");
    line.split_whitespace().nth(1).expect("number").parse().expect("number")
}

#[test]
fn commands_that_there_are_not_are_refused_and_the_connection_goes_on() {
    let mut daemon = start(1);
    let mut client = RawClient::open(&daemon.socket(0)).expect("open");
    for command in [0, 6, 11, 12, 14, 15, 99, u16::MAX] {
        let reply = call(&mut client, command, &[0xab; 300]);
        assert!(refused(&reply, Errno::OPNOTSUPP), "{command}: {reply:?}");
        answers(&mut client);
    }
    for command in [2, 3, 4, 5, 7, 8, 9, 10] {
        let reply = call(&mut client, command, &[0; 7]);
        assert!(refused(&reply, Errno::INVAL), "{command}: {reply:?}");
        answers(&mut client);
    }
    assert!(refused(&call(&mut client, 1, &VERSION), Errno::INVAL), "VERSION once more");
    answers(&mut client);
    daemon.check();
}

#[test]
fn refused_maps_and_interrupts_say_why() {
    let mut daemon = start(1);
    let mut client = RawClient::open(&daemon.socket(0)).expect("open");
    let mut map = |flags, iova, size| call(&mut client, 2, &dma_map(flags, 0, iova, size));
    assert!(!map(3, 0, 8192).error);
    assert!(refused(&map(3, 4096, 4096), Errno::EXIST), "an overlap");
    assert!(refused(&map(3, u64::MAX, 2), Errno::INVAL), "a wrap");
    assert!(refused(&map(7, 1 << 30, 4096), Errno::INVAL), "a flag that does not exist");
    for (flags, start, count) in [(ASSIGN, 64, 2), (0, 0, 1), (0x2a, 0, 1), (ASSIGN | 1, 0, 1)] {
        let reply = call(&mut client, 8, &set_irqs(flags, start, count));
        assert!(refused(&reply, Errno::INVAL), "{flags:#x}: {reply:?}");
    }
    answers(&mut client);
    daemon.check();
}

#[test]
fn a_version_has_capabilities_or_none_and_a_bad_one_is_refused() {
    let mut daemon = start(1);
    let greet = |minor: u8, capabilities: &[u8]| {
        let mut client = RawClient::connect(&daemon.socket(0)).expect("connect");
        let body = [&[0, 0, minor, 0], capabilities].concat();
        let reply = call(&mut client, 1, &body);
        (client, reply)
    };
    for (minor, capabilities) in [(0, &b""[..]), (1, b"{}\0"), (255, b"{\"capabilities\":{}}\0")] {
        let (mut client, reply) = greet(minor, capabilities);
        assert!(!reply.error && reply.body.starts_with(&[0; 4]), "{reply:?}");
        answers(&mut client);
    }
    let bad = [&b"{}"[..], b"{", b"\0", b"{\0", b"\xff\xff\0", b"[[[[\0", b"{\0}\0"];
    for capabilities in bad {
        let (mut client, reply) = greet(0, capabilities);
        assert!(refused(&reply, Errno::INVAL), "{capabilities:?}: {reply:?}");
        client.wait_closed().expect("closed");
    }
    // A message before VERSION is refused, too.
    let mut client = RawClient::connect(&daemon.socket(0)).expect("connect");
    assert!(refused(&call(&mut client, 13, &[]), Errno::INVAL));
    client.wait_closed().expect("closed");
    serves(&daemon);
    daemon.check();
}

#[test]
fn bytes_that_come_one_by_one_are_whole_messages() {
    let daemon = start(1);
    let mut client = RawClient::connect(&daemon.socket(0)).expect("connect");
    let read = message(8, 9, &region_access(CONFIG, 0, 4, &[]));
    for message in [message(7, 1, &VERSION), read] {
        for byte in message.chunks(1) {
            client.send_bytes(byte).expect("send");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!client.reply().expect("reply").error);
    }
    answers(&mut client);
}

/// The header announces four gigabytes, and the client sends a quarter of one: the daemon allocates
/// no memory for it.
#[test]
fn a_message_without_end_takes_no_memory() {
    let mut daemon = start(1);
    serves(&daemon);
    let before = status(&daemon, "VmHWM");
    for (greeted, command) in [(false, 1), (false, 10), (true, 10), (true, 2)] {
        let path = daemon.socket(0);
        let client = if greeted { RawClient::open(&path) } else { RawClient::connect(&path) };
        let mut client = client.expect("connect");
        let mut endless = message(1, command, &region_access(CONFIG, 0, u32::MAX, &[]));
        endless[4..8].fill(0xff);
        client.send_bytes(&endless).expect("send");
        let flood = vec![0xff; 1 << 20];
        // The daemon ends the connection before all is sent.
        let _sent = (0..256).try_for_each(|_| client.send_bytes(&flood));
    }
    let grown = status(&daemon, "VmHWM") - before;
    assert!(grown < 64 << 10, "{grown} KiB more");
    serves(&daemon);
    daemon.check();
}

#[test]
fn a_message_of_no_length_is_refused_and_the_last() {
    let daemon = start(1);
    for size in [0, 15, (1 << 20) + 33] {
        let mut client = RawClient::open(&daemon.socket(0)).expect("open");
        let mut bad = message(9, 13, &[]);
        bad[4..8].copy_from_slice(&u32::to_le_bytes(size));
        client.send_bytes(&bad).expect("send");
        assert!(refused(&client.reply().expect("reply"), Errno::MSGSIZE), "{size}");
        client.wait_closed().expect("closed");
    }
    // The longest message that is allowed.
    let mut client = RawClient::open(&daemon.socket(0)).expect("open");
    let data = vec![0xff; 1 << 20];
    let body = region_access(4, 0, 1 << 20, &data);
    assert!(!call(&mut client, Command::RegionWrite as u16, &body).error);
    answers(&mut client);
}

#[test]
fn too_many_descriptors_are_refused_and_closed() {
    let mut daemon = start(1);
    let mut client = RawClient::open(&daemon.socket(0)).expect("open");
    let event = File::from(eventfd(0, EventfdFlags::NONBLOCK).expect("eventfd"));
    let before = descriptors(&daemon);
    for count in [9, 16] {
        let fds: Vec<BorrowedFd<'_>> = (0..count).map(|_| event.as_fd()).collect();
        let body = set_irqs(ASSIGN, 0, count);
        let reply = client.call(Command::SetIrqs, &body, &fds).expect("reply");
        assert!(refused(&reply, Errno::INVAL), "{count}: {reply:?}");
    }
    let two = [event.as_fd(), event.as_fd()];
    let reply = client.call(Command::DmaMap, &dma_map(3, 0, 0, 4096), &two).expect("reply");
    assert!(refused(&reply, Errno::INVAL), "{reply:?}");
    assert_eq!(descriptors(&daemon), before);
    let fds = [event.as_fd(); 8];
    let reply = client.call(Command::SetIrqs, &set_irqs(ASSIGN, 0, 8), &fds).expect("reply");
    assert!(!reply.error);
    answers(&mut client);
    daemon.check();
}

/// A daemon without free descriptors refuses requests that need one. The VMM stays connected.
///
/// Shows: hostile
#[test]
fn a_lack_of_descriptors_is_told_and_ends_no_connection() {
    let mut daemon = start(1);
    let mut client = RawClient::open(&daemon.socket(0)).expect("open");
    let event = File::from(eventfd(0, EventfdFlags::NONBLOCK).expect("eventfd"));
    let mut assign = |fds: &[BorrowedFd<'_>]| {
        let body = set_irqs(ASSIGN, 0, u32::try_from(fds.len()).expect("few"));
        client.call(Command::SetIrqs, &body, fds).expect("reply")
    };
    let fds = [event.as_fd(); 8];
    let before = limit_descriptors(&daemon, Some(3));
    for _ in 0..3 {
        let reply = assign(&fds);
        assert!(refused(&reply, Errno::MFILE), "{reply:?}");
    }
    limit_descriptors(&daemon, before);
    assert!(!assign(&fds).error);
    answers(&mut client);
    daemon.check();
}

#[test]
fn a_command_that_wants_no_reply_gets_none() {
    let daemon = start(1);
    let mut client = RawClient::open(&daemon.socket(0)).expect("open");
    for command in [13, 99, 10] {
        let mut quiet = message(1, command, &[]);
        quiet[8] = NO_REPLY;
        client.send_bytes(&quiet).expect("send");
    }
    answers(&mut client);
}

/// A client that connects and sends nothing, or too little, delays the next VMM for a short time
/// only.
#[test]
fn a_silent_client_does_not_hold_a_function() {
    let mut daemon = start(1);
    let silent: Vec<RawClient> = [0, 3, 16, 19]
        .into_iter()
        .map(|len| {
            let mut client = RawClient::connect(&daemon.socket(0)).expect("connect");
            client.send_bytes(&message(1, 1, &VERSION)[..len]).expect("send");
            client
        })
        .collect();
    serves(&daemon);
    drop(silent);
    daemon.check();
}

/// Commands and bodies.
type Messages = Vec<(u16, Vec<u8>)>;

/// Messages with proper headers and any content.
fn any_messages() -> impl Strategy<Value = Messages> {
    let access = (0u32..10, 0u64..0x2100, 0u32..64, 9u16..11).prop_map(
        |(region, offset, count, command)| {
            let data = vec![0x5a; if command == 10 { count as usize } else { 0 }];
            (command, region_access(region, offset, count, &data))
        },
    );
    let noise = (0u16..20, proptest::collection::vec(any::<u8>(), 0..60));
    proptest::collection::vec(prop_oneof![access, noise], 1..20)
}

/// Each message is answered, whatever it contains and in whatever pieces it arrives, and the
/// connection goes on.
#[test]
fn any_messages_in_any_pieces_are_answered() {
    let mut daemon = start(1);
    let pieces = proptest::collection::vec(1usize..50, 1..20);
    let run = |(messages, pieces): (Messages, Vec<usize>)| {
        let mut client = RawClient::open(&daemon.socket(0)).expect("open");
        let stream: Vec<u8> = (100..)
            .zip(&messages)
            .flat_map(|(id, (command, body))| message(id, *command, body))
            .collect();
        let mut rest = &stream[..];
        for len in pieces.iter().cycle() {
            let (piece, more) = rest.split_at(rest.len().min(*len));
            client.send_bytes(piece).expect("send");
            rest = more;
            if rest.is_empty() {
                break;
            }
        }
        for (command, body) in &messages {
            let reply = client.reply().expect("reply");
            prop_assert_eq!(reply.error, reply.errno != 0, "{} {:?}", command, body);
        }
        answers(&mut client);
        Ok(())
    };
    let mut runner = TestRunner::new(vrnic_cases::config(100));
    runner.run(&(any_messages(), pieces), run).expect("all messages are answered");
    daemon.check();
}

/// Random bytes, and valid messages that end too early, can only end their own connection.
#[test]
fn any_bytes_are_survived() {
    let mut daemon = start(1);
    let bytes = proptest::collection::vec(any::<u8>(), 0..200);
    let run = |(greeted, (messages, cut), noise): (bool, (Messages, usize), Vec<u8>)| {
        let path = daemon.socket(0);
        let client = if greeted { RawClient::open(&path) } else { RawClient::connect(&path) };
        let mut client = client.expect("connect");
        let mut stream: Vec<u8> =
            messages.iter().flat_map(|(command, body)| message(1, *command, body)).collect();
        stream.truncate(cut);
        stream.extend(noise);
        // The server may close before all is sent.
        let _sent = client.send_bytes(&stream).and_then(|()| client.finish());
        client.wait_closed().expect("closed");
        Ok(())
    };
    let mut runner = TestRunner::new(vrnic_cases::config(100));
    let cases = (any::<bool>(), (any_messages(), 0usize..1000), bytes);
    runner.run(&cases, run).expect("the daemon serves after each of them");
    serves(&daemon);
    daemon.check();
}
