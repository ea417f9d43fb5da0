//! Random segments in each state of a connection.

use std::time::Duration;

use vrnic_packet::Nanos;
use vrnic_tcp::wire::{Flags, Frame, Header, Options, SackBlock, Segment, Timestamps};
use vrnic_tcp::{Context, Params, SeqNum, StreamPos};

use crate::host::{Host, pattern};

/// Decisions that are made from bytes.
pub(crate) struct Choices<'a>(pub(crate) &'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    fn number(&mut self) -> u32 {
        u32::from_be_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// Returns a number that is near `base`, or random.
    fn near(&mut self, base: u32) -> u32 {
        match self.byte() {
            0..100 => base,
            100..160 => base.wrapping_add(u32::from(self.byte())),
            160..190 => base.wrapping_sub(u32::from(self.byte())),
            190..240 => base.wrapping_add(self.number() % 200_000).wrapping_sub(60_000),
            _ => self.number(),
        }
    }
}

/// Passes segments that are derived from `bytes` to a connection. Returns the number of segments.
pub(crate) fn any_segments(bytes: &[u8]) -> u64 {
    let mut choices = Choices(bytes);
    let context = context(&mut choices);
    let keepalive = Some(Duration::from_secs(choices.byte().into()));
    let params = Params { buffer: 30_000, segments: 40, keepalive, ..Params::default() };
    let mut host = Host::new(1, context, &params);
    host.sink.place = choices.byte();
    (host.sink.hold, host.sink.refuse) = (choices.byte() / 16, choices.byte() / 16);
    let (mut now, mut count) = (1, 0);
    while !choices.0.is_empty() {
        match choices.byte() {
            0..180 => {
                segment(&mut choices, &context, &mut host, now);
                count += 1;
            }
            180..210 => host.source.end += u64::from(choices.number() % 20_000),
            210..240 => {
                let max_step = 1 << (choices.byte() % 35);
                now += u64::from(choices.number()) % max_step + 1;
            }
            240..248 => {
                let deadline = host.deadline().map_or(now, |deadline| deadline.0);
                now = now.max(deadline);
            }
            248..251 => host.connection.close(),
            251..253 => host.connection.limit_mss(Nanos(now), u16::from(choices.byte()) * 8),
            253 => host.source.gone = u64::from(choices.number() % 100_000),
            _ if choices.byte() < 20 => host.connection.abort(),
            _ => {}
        }
        host.poll(now, |frame| {
            assert!(matches!(Frame::parse(frame), Ok(Some(_))), "a frame that cannot be parsed");
        });
        assert!(host.connection.acknowledged() <= host.connection.sent());
        assert!(host.connection.sent() <= StreamPos(host.source.end));
    }
    count
}

fn context(choices: &mut Choices<'_>) -> Context {
    let flags = choices.byte();
    let mut context = crate::pair::context(
        0,
        &crate::pair::Options {
            sack: flags & 1 == 0,
            timestamps: flags & 2 == 0,
            scale: choices.byte(),
            ..crate::pair::Options::default()
        },
    );
    context.mss = choices.near(1460) as u16;
    context
}

/// Makes a segment from the connection's state, and passes it to the connection.
fn segment(choices: &mut Choices<'_>, context: &Context, host: &mut Host, now: u64) {
    let sent = context.send_next.plus(host.connection.acknowledged().0 as u32).0;
    let seq = SeqNum(choices.near(context.receive_next.plus(host.sink.next as u32).0));
    let len = match choices.byte() {
        0..100 => 0,
        100..180 => choices.number() % 10,
        180..220 => 1448,
        _ => choices.number() % 3000,
    };
    // Bytes before the first position, and bytes far ahead, are ignored.
    let start = seq.ahead_of(context.receive_next);
    let position = |at: i64| u64::try_from(at).unwrap_or(0);
    let payload: Vec<u8> =
        (start..start + i64::from(len)).map(|at| pattern(host.sink.seed, position(at))).collect();
    let flags = match choices.byte() {
        0..200 => Flags::ACK,
        200..215 => Flags::ACK | Flags::FIN,
        _ => Flags::from_bits_retain(choices.byte()),
    };
    let sack = (0..choices.byte() % 8 % 5)
        .map(|_| SackBlock {
            start: SeqNum(choices.near(sent)),
            end: SeqNum(choices.near(sent.wrapping_add(3000))),
        })
        .collect();
    let recent = context.timestamps.map_or(0, |state| state.recent);
    let timestamps = (choices.byte() < 240)
        .then(|| Timestamps { value: choices.near(recent), echo: choices.number() });
    let header = Header {
        seq,
        ack: SeqNum(choices.near(sent)),
        flags,
        window: choices.number() as u16 >> (choices.byte() % 16),
        options: Options { timestamps, sack },
    };
    host.segment(now, &Segment { header, payload: &payload });
}
