//! Unreliable connections: messages arrive whole and in order, or not at all.
//!
//! Shows: roce

use vrnic_roce::Discard;
use vrnic_roce::requester::Work;
use vrnic_roce::wire::opcode::Transport;
use vrnic_roce::wire::{Part, Request, SendEnd};
use vrnic_simlink::{Fate, Faults};

use crate::host::{BASE, Receiving, remote, request, work};
use crate::model::{Mix, Model};
use crate::pair::{Options, Pair};
use crate::reliable::seeds;

fn pair(seed: u64) -> Pair {
    let mut pair = Pair::new(seed, Options { transport: Transport::Uc, ..Options::default() });
    for host in &mut pair.hosts {
        for _ in 0..64 {
            host.post_receive();
        }
    }
    pair
}

/// Posts random work at one end. Returns the numbers of messages sent and received.
fn run(seed: u64, faults: Faults) -> (usize, usize) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut pair = pair(seed);
    pair.faults(faults);
    let mut model = Model::new(&pair.hosts[1]);
    for _ in 0..60 {
        model.post(&mut pair.hosts[0], &mut rng, Mix::Unreliable);
    }
    // The hosts do not wait for answers, so the run ends when all packets have arrived.
    pair.hosts[0].refill_after = None;
    pair.hosts[1].refill_after = None;
    while pair.step() {}
    assert_eq!(pair.hosts[0].completions.len(), 60);
    if faults == Faults::default() {
        model.check(&pair.hosts[0], &pair.hosts[1]);
    }
    (model.messages(), model.check_some(&pair.hosts[0], &pair.hosts[1]))
}

#[test]
fn a_perfect_link_loses_nothing() {
    for seed in seeds(10) {
        let (sent, received) = run(seed, Faults::default());
        assert_eq!(sent, received);
    }
}

#[test]
fn what_arrives_over_a_link_with_losses_is_whole_and_in_order() {
    let faults = Faults { drop: 30_000, corrupt: 10_000, truncate: 10_000, ..Faults::default() };
    let (mut sent, mut received) = (0, 0);
    for seed in seeds(30) {
        let (of, came) = run(seed, faults);
        (sent, received) = (sent + of, received + came);
    }
    assert!(received < sent && received > sent / 4, "{received} of {sent}");
}

/// Loses the packet with this number. Returns the lengths of the messages that arrived.
fn without(packet: usize) -> Vec<usize> {
    let mut pair = pair(1);
    let mut at = 0;
    pair.links[0].rule(move |_| {
        at += 1;
        if at == packet + 1 { Fate::Drop } else { Fate::Pass }
    });
    for (id, length) in [(1, 3000), (2, 2000), (3, 10)] {
        pair.hosts[0].post(work(id, Work::Send(SendEnd::Plain), length), BASE);
    }
    pair.run([3, 0]);
    pair.run_for(100_000);
    pair.hosts[1].received.iter().map(|message| message.bytes.len()).collect()
}

#[test]
fn a_lost_packet_costs_its_message_alone() {
    for packet in 0..3 {
        assert_eq!(without(packet), [2000, 10], "packet {packet} of the first message");
    }
    for packet in 3..5 {
        assert_eq!(without(packet), [3000, 10], "packet {packet} of the second message");
    }
    assert_eq!(without(5), [3000, 2000]);
}

/// The next message takes the receive that a lost message had begun to fill.
#[test]
fn a_broken_message_leaves_its_receive() {
    let mut pair = pair(1);
    pair.links[0].rule(|frame| {
        let last = matches!(request(frame), Some(Request::Send(Part::Last(_))));
        if last { Fate::Drop } else { Fate::Pass }
    });
    pair.hosts[0].post(work(1, Work::Send(SendEnd::Plain), 3000), BASE);
    pair.hosts[0].post(work(2, Work::Send(SendEnd::Plain), 10), BASE);
    pair.run([2, 0]);
    pair.run_for(100_000);
    assert_eq!(pair.hosts[1].received.len(), 1);
    assert_eq!(pair.hosts[1].receives.len(), 63);
}

#[test]
fn what_is_not_allowed_is_dropped_and_the_connection_lives() {
    let mut pair = pair(1);
    pair.hosts[0].post(work(1, Work::Write(remote(1 << 20), None), 3000), BASE);
    pair.hosts[0].post(work(2, Work::Send(SendEnd::Plain), 10), BASE);
    pair.run([2, 0]);
    pair.run_for(100_000);
    assert_eq!(pair.hosts[1].received.len(), 1);
    let Receiving::Unreliable(responder) = &pair.hosts[1].receiving else { panic!() };
    let discards = responder.discards();
    // If the beginning of a message was refused, the rest of it is incomplete.
    assert_eq!((discards.of(Discard::Refused), discards.of(Discard::BrokenMessage)), (1, 2));
}
