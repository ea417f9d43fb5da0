//! The ring of a trunk: frames, sleep and wake-up of both sides.
//!
//! Shows: network: frames in the shared memory of a trunk, and both sides that fall asleep, in
//! every order of steps
//!
//! The code is the daemon's (`device/daemon/src/net/uplinks/trunk/ring.rs`), which finds a small
//! memory of loom's atomics in `memory`. A wake-up is a count. No thread waits with a time-out, so
//! a lost wake-up makes the model fail by a deadlock.
#![cfg(loom)]
#![allow(dead_code, unreachable_pub)]

mod memory;
#[path = "../../../../daemon/src/net/uplinks/trunk/ring.rs"]
mod ring;

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use memory::Memory;
use ring::{Next, Receiver, Sender};
use vrnic_models::model;

/// The wake-ups that wait at one end of the socket.
#[derive(Default)]
struct Socket {
    waiting: Mutex<u32>,
    arrived: Condvar,
}

impl Socket {
    fn wake(&self) {
        *self.waiting.lock().expect("count") += 1;
        self.arrived.notify_all();
    }

    /// Waits for a wake-up, for as long as it takes.
    fn wait(&self) {
        let mut waiting = self.waiting.lock().expect("count");
        while *waiting == 0 {
            waiting = self.arrived.wait(waiting).expect("count");
        }
        *waiting = 0;
    }
}

/// Sends frames of these lengths, each with its number in all bytes.
fn send(mut sender: Sender, here: &Socket, there: &Socket, lens: &[usize]) {
    for (nth, len) in (1..).zip(lens) {
        while !sender.put(&vec![nth; *len]).expect("no lie") {
            if sender.wait() {
                here.wait();
            }
        }
        if sender.publish() {
            there.wake();
        }
    }
}

/// Receives frames of these lengths.
fn receive(mut receiver: Receiver, here: &Socket, there: &Socket, lens: &[usize]) {
    for (nth, len) in (1..).zip(lens) {
        loop {
            match receiver.take().expect("no lie") {
                Next::Frame(bytes) => {
                    assert_eq!(bytes.bytes(), vec![nth; *len], "another frame came");
                    break;
                }
                Next::Malformed(len) => panic!("a frame of {len} bytes"),
                Next::Nothing if receiver.wait() => here.wait(),
                Next::Nothing => {}
            }
        }
        if receiver.publish() {
            there.wake();
        }
    }
}

fn pass(preemptions: usize, lens: &'static [usize]) {
    model(preemptions, move || {
        let memory = Memory::new();
        let sockets = Arc::new([Socket::default(), Socket::default()]);
        let (sender, ends) = (Sender::new(memory.clone()), Arc::clone(&sockets));
        let sends = thread::spawn(move || send(sender, &ends[0], &ends[1], lens));
        receive(Receiver::new(memory), &sockets[1], &sockets[0], lens);
        sends.join().expect("sender");
    });
}

/// The receiver falls asleep while frames come.
#[test]
fn a_receiver_is_woken_for_each_frame() {
    pass(4, &[8, 3]);
}

/// The ring has room for two of these frames, so the sender falls asleep, too.
#[test]
fn a_sender_is_woken_when_there_is_room() {
    pass(3, &[8, 8, 8]);
}

/// The frames go beyond the end of the ring and begin at its start again.
#[test]
fn frames_pass_across_the_end() {
    pass(2, &[8, 1, 8, 8]);
}
