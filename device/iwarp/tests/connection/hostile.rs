//! Random octets in each state: the connection ends in an orderly way, and only memory that was
//! named is changed.
//!
//! Shows: hostile

use proptest::collection::vec;
use proptest::prelude::*;
use vrnic_iwarp::rdmap::work::Work;
use vrnic_iwarp::stream::close::{Happening, State};
use vrnic_iwarp::stream::{Config, Stream, Want};
use vrnic_iwarp::tcp::{Delivery, Sink, Source, StreamPos, Then};
use vrnic_iwarp::wire::ddp::{Stag, Tagged};
use vrnic_iwarp::wire::rdmap::SendKind;

use crate::host::{ALL, End};

/// A step of a hostile run.
#[derive(Clone, Debug)]
enum Step {
    /// Octets arrive.
    Octets(Vec<u8>),
    /// An FPDU with a right length arrives: these octets after a plausible header.
    Fpdu(u8, u8, Vec<u8>),
    /// Something happens to the connection.
    Happens(Happening),
    /// A work request is posted.
    Post(bool),
    /// The program closes.
    Disconnect(bool),
    /// Everything that can be sent is sent and acknowledged.
    Acknowledge,
    /// The program does not wait for a receive any longer.
    ReceiveTimeout,
}

fn steps() -> impl Strategy<Value = Step> {
    let happening = prop_oneof![
        Just(Happening::PeerFinished),
        Just(Happening::PeerReset),
        Just(Happening::Lost),
        Just(Happening::Closed),
        Just(Happening::TimeOut),
    ];
    prop_oneof![
        3 => vec(any::<u8>(), 0..100).prop_map(Step::Octets),
        12 => (any::<u8>(), 0..12_u8, vec(prop_oneof![Just(0), any::<u8>()], 12..80))
            .prop_map(|(flags, opcode, octets)| Step::Fpdu(flags, opcode, octets)),
        1 => happening.prop_map(Step::Happens),
        3 => any::<bool>().prop_map(Step::Post),
        1 => any::<bool>().prop_map(Step::Disconnect),
        4 => Just(Step::Acknowledge),
        1 => Just(Step::ReceiveTimeout),
    ]
}

fn act(end: &mut End, step: &Step, at: &mut u64) {
    let mut deliver = |end: &mut End, octets: &[u8]| {
        let delivery = Delivery { at: StreamPos(*at), bytes: octets, acknowledged: false };
        let delivered = end.stream.sink(&mut end.ram).deliver(&delivery);
        assert!(delivered.taken <= octets.len());
        assert!(
            delivered.taken == octets.len() || matches!(delivered.then, Then::Hold | Then::Refuse)
        );
        *at += delivered.taken as u64;
    };
    match step {
        Step::Octets(octets) => deliver(end, octets),
        Step::Fpdu(flags, opcode, octets) => {
            let ulpdu = [&[flags & 0xc0 | 1, 0x40 | opcode][..], octets].concat();
            let mut fpdu = (ulpdu.len() as u16).to_be_bytes().to_vec();
            fpdu.extend(ulpdu);
            fpdu.resize(fpdu.len().next_multiple_of(4) + 4, 0);
            deliver(end, &fpdu);
        }
        Step::Happens(happening) => end.stream.happened(*happening),
        Step::Post(read) if matches!(end.stream.state(), State::Rts | State::Starting) => {
            let place = Tagged { stag: ALL, to: 0 };
            let read_work = Work::Read { sink: Tagged { stag: Stag(0), to: 0 }, source: place };
            let work = if *read { read_work } else { Work::Send(SendKind::default()) };
            let request = vrnic_iwarp::rdmap::work::WorkRequest {
                id: 0,
                work,
                length: 70,
                signaled: true,
                fence: false,
            };
            let _ = end.stream.push(request);
        }
        Step::Post(_) => {}
        Step::Disconnect(graceful) => {
            end.stream.disconnect(if *graceful { Want::Graceful } else { Want::Abortive });
        }
        Step::Acknowledge => {
            end.stream.fill(&mut end.ram);
            let all = end.stream.source(&mut end.ram).end();
            end.stream.progress(&mut end.ram, all, all);
        }
        Step::ReceiveTimeout => end.stream.receive_timed_out(),
    }
    end.collect();
}

proptest! {
    #![proptest_config(vrnic_cases::config(2000))]

    #[test]
    fn any_octets_in_any_state(
        initiator in any::<bool>(),
        receives in 0..3_usize,
        steps in vec(steps(), 1..40),
    ) {
        let mut config = Config { capacity: 4, extensions: true, ..Config::default() };
        config.wishes.crc = false;
        config.wishes.peer_to_peer = false;
        let mut stream = Stream::initiate(config, &[]);
        let mut at = 0;
        if !initiator {
            let mut end = End::new(stream, 1);
            let mut request = vec![0; 24];
            let read = end.stream.source(&mut end.ram).read(StreamPos(0), &mut request);
            prop_assert_eq!(read, Ok(()));
            stream = Stream::respond(config, &request, &[]).expect("an agreement");
        }
        let mut end = End::new(stream, 1);
        end.ram.work.insert(0, 0x3_0000);
        for nth in 0..receives {
            end.receive(0x1_0000 + 100 * nth, 100);
        }
        if initiator {
            let reply = b"MPA ID Rep Frame\x10\x02\x00\x04\x00\x10\x00\x10";
            act(&mut end, &Step::Octets(reply.to_vec()), &mut at);
            prop_assert_eq!(end.stream.state(), State::Rts);
        }
        for step in &steps {
            act(&mut end, step, &mut at);
        }
        // The connection ends: all posted work is completed.
        end.stream.happened(Happening::Lost);
        end.collect();
        prop_assert!(matches!(end.stream.state(), State::Error | State::Idle));
        prop_assert_eq!(end.stream.next_completion(), None);
        prop_assert_eq!(end.stream.rest(false), vrnic_iwarp::stream::Rest::Reached);
    }

    #[test]
    fn any_start_frame(octets in vec(any::<u8>(), 0..60), key in any::<bool>()) {
        let mut frame = if key { b"MPA ID Rep Frame".to_vec() } else { Vec::new() };
        frame.extend(octets);
        let mut end = End::new(Stream::initiate(Config::default(), &[]), 1);
        for (nth, octet) in frame.iter().enumerate() {
            let mut sink = end.stream.sink(&mut end.ram);
            let at = StreamPos(nth as u64);
            sink.deliver(&Delivery { at, bytes: &[*octet], acknowledged: false });
        }
        let _ = Stream::respond(Config::default(), &frame, &[]);
    }
}
