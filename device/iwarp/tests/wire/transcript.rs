//! A run of rping between two guests with Linux siw (kernel 7.3.4): both directions of the TCP
//! stream from the start frame on. The CRC was not requested.
//!
//! Shows: iwarp
//!
//! The server READs from the client and WRITEs to it, and both send short messages. A stream of
//! this crate takes the place of the server: it receives the client's octets, and must send the
//! same octets as siw, except in the CRC field.

use vrnic_iwarp::mpa::start::Wishes;
use vrnic_iwarp::rdmap::memory::{Ended, Inbound, Memory, Operation, ReadSource, Refused};
use vrnic_iwarp::rdmap::work::{Outcome, Work, WorkRequest};
use vrnic_iwarp::stream::{Config, Stream};
use vrnic_iwarp::tcp::{Delivery, Sink, Source, StreamPos, Undone};
use vrnic_iwarp::wire::ddp::{Stag, Tagged};
use vrnic_iwarp::wire::rdmap::SendKind;
use vrnic_iwarp::wire::start::{HEADER, length};

const CLIENT: &str = include_str!("rping-request.hex");
const SERVER: &str = include_str!("rping-reply.hex");

fn octets(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .bytes()
        .filter_map(|digit| char::from(digit).to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Returns the FPDUs of a direction: the octets of each without the CRC.
fn fpdus(stream: &[u8]) -> Vec<&[u8]> {
    let (mut found, mut at) = (Vec::new(), length(stream).expect("a start frame").expect("whole"));
    while at < stream.len() {
        let len = usize::from(u16::from_be_bytes([stream[at], stream[at + 1]]));
        found.push(&stream[at..at + (2 + len).next_multiple_of(4)]);
        at += (2 + len).next_multiple_of(4) + 4;
    }
    found
}

/// The server's memory: the octets that it reads from the client are the octets that it writes.
#[derive(Default)]
struct Server {
    message: Vec<u8>,
    received: Vec<usize>,
    len: usize,
}

impl Memory for Server {
    fn read(&mut self, work: u64, at: u32, into: &mut [u8]) -> Result<(), Undone> {
        into.fill(0);
        if work % 4 == 2 {
            let at = at as usize;
            into.copy_from_slice(&self.message[at..at + into.len()]);
        }
        Ok(())
    }

    fn store(&mut self, _work: u64, at: u32, octets: &[u8]) -> Result<(), Undone> {
        self.message.truncate(at as usize);
        self.message.extend_from_slice(octets);
        Ok(())
    }

    fn read_source(&mut self, _: &ReadSource, _: u32, _: &mut [u8]) -> Result<(), Undone> {
        Err(Undone::Gone)
    }

    fn place(&mut self, inbound: &Inbound, octets: &[u8]) -> Result<(), Refused> {
        assert!(matches!(inbound.operation, Operation::Send(None)));
        self.len = octets.len();
        Ok(())
    }

    fn end(&mut self, _: &Inbound) -> Result<Ended, Refused> {
        self.received.push(self.len);
        Ok(Ended::Now)
    }

    fn atomic(&mut self, _: &Inbound) -> Result<u64, Refused> {
        Err(Refused::Disabled)
    }
}

/// Returns the work requests of the server for one round.
fn round(nth: u64) -> [WorkRequest; 4] {
    let place = |stag, to| Tagged { stag: Stag(stag), to };
    let request = |step, work, length| WorkRequest {
        id: 4 * nth + step,
        work,
        length,
        signaled: true,
        fence: false,
    };
    let sink = place(0x5cb0_3400, 0x0000_5557_e43c_f510);
    let source = place(0x10ab_9000, 0x0000_564d_81f0_80f0);
    let target = place(0xed8f_5b00, 0x0000_564d_81f0_7fe0);
    [
        request(0, Work::Read { sink, source }, 200),
        request(1, Work::Send(SendKind::default()), 16),
        request(2, Work::Write(target), 200),
        request(3, Work::Send(SendKind::default()), 16),
    ]
}

/// Shows: iwarp: real streams of Linux' siw are decoded and encoded alike
#[test]
fn a_stream_speaks_as_siw_does() {
    let (client, server) = (octets(CLIENT), octets(SERVER));
    let wishes = Wishes { crc: false, ird: 1, ord: 1, ..Wishes::default() };
    let config = Config { wishes, ..Config::default() };
    let request = length(&client).expect("a request").expect("whole");
    let mut stream = Stream::respond(config, &client[..request], &[]).expect("an agreement");
    let mut memory = Server::default();
    let mut sent = Vec::new();
    let (mut posted, mut outcomes) = (0, Vec::new());
    // The client's octets arrive in pieces of 33. The server's octets are sent and acknowledged at
    // once.
    for (nth, piece) in client[request..].chunks(33).enumerate() {
        let at = StreamPos(33 * nth as u64);
        let delivery = Delivery { at, bytes: piece, acknowledged: false };
        assert_eq!(stream.sink(&mut memory).deliver(&delivery).taken, piece.len());
        outcomes.extend(std::iter::from_fn(|| stream.next_completion()));
        // The READ follows the client's first message of a round, and the WRITE follows the second
        // one.
        let ready = |step| match step % 4 {
            0 => memory.received.len() as u64 > step / 2,
            1 => outcomes.len() as u64 == step,
            2 => memory.received.len() as u64 > step / 2,
            _ => true,
        };
        while posted < 12 && ready(posted) {
            let request = round(posted / 4)[(posted % 4) as usize];
            stream.push(request).expect("room");
            posted += 1;
        }
        stream.fill(&mut memory);
        let mut source = stream.source(&mut memory);
        let mut new = vec![0; (source.end().0 as usize) - sent.len()];
        source.read(StreamPos(sent.len() as u64), &mut new).expect("it is in the log");
        sent.extend(new);
        stream.progress(&mut memory, StreamPos(sent.len() as u64), StreamPos(sent.len() as u64));
    }
    assert_eq!(sent[..HEADER + 4], server[..HEADER + 4], "the reply");
    assert_eq!(fpdus(&sent), fpdus(&server));
    assert_eq!(memory.received, [16; 6]);
    outcomes.extend(std::iter::from_fn(|| stream.next_completion()));
    assert_eq!(outcomes.len(), 12);
    assert!(outcomes.iter().all(|done| done.outcome == Outcome::Success));
}
