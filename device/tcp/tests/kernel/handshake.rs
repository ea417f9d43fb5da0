//! The handshake, frame by frame. The engine takes the connection over afterwards.

use std::time::{Duration, Instant};

use vrnic_tcp::context::{Tick, TimestampState};
use vrnic_tcp::wire::frame::{self, Frame, HEADROOM, Path};
use vrnic_tcp::wire::{Flags, Header, Options, Timestamps};
use vrnic_tcp::{Context, SeqNum};

use crate::network::{Network, Tap};

/// The engine's first number and first timestamp. Both wrap soon.
const FIRST: SeqNum = SeqNum(0xffff_f000);
const FIRST_TIMESTAMP: u32 = 0xffff_ff80;
/// Bytes of the first window. Any scale up to 7 may be used.
const WINDOW: u16 = 64_000;
const SCALE: u8 = 7;
/// Time limit for a frame of the kernel.
const LIMIT: Duration = Duration::from_secs(20);

/// Options of a segment that opens a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Offer {
    mss: u16,
    scale: Option<u8>,
    sack: bool,
    timestamps: Option<Timestamps>,
}

impl Offer {
    fn parse(mut bytes: &[u8]) -> Self {
        let mut offer = Self::default();
        while let [kind, rest @ ..] = bytes {
            bytes = match (kind, rest) {
                (0, _) => break,
                (1, rest) => rest,
                (_, [len, rest @ ..]) => {
                    let (body, rest) = rest.split_at(usize::from(*len) - 2);
                    offer.take(*kind, body);
                    rest
                }
                _ => panic!("an option without a length"),
            };
        }
        offer
    }

    fn take(&mut self, kind: u8, body: &[u8]) {
        match (kind, body) {
            (2, [high, low]) => self.mss = u16::from_be_bytes([*high, *low]),
            (3, [scale]) => self.scale = Some(*scale),
            (4, []) => self.sack = true,
            (8, _) => {
                let stamps = u64::from_be_bytes(body.try_into().expect("two timestamps"));
                let (value, echo) = ((stamps >> 32) as u32, stamps as u32);
                self.timestamps = Some(Timestamps { value, echo });
            }
            _ => panic!("an unknown option {kind} in {body:?}"),
        }
    }

    /// Writes the options, in words of four bytes.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![2, 4];
        bytes.extend(self.mss.to_be_bytes());
        bytes.extend(self.scale.into_iter().flat_map(|scale| [1, 3, 3, scale]));
        bytes.extend(self.sack.then_some([1, 1, 4, 2]).into_iter().flatten());
        if let Some(Timestamps { value, echo }) = self.timestamps {
            bytes.extend([1, 1, 8, 10]);
            bytes.extend(value.to_be_bytes().into_iter().chain(echo.to_be_bytes()));
        }
        bytes
    }

    /// Returns the options of an end that supports everything.
    fn all(mss: u16) -> Self {
        let timestamps = Some(Timestamps { value: FIRST_TIMESTAMP, echo: 0 });
        Self { mss, scale: Some(SCALE), sack: true, timestamps }
    }

    /// Returns the answer to an offer, which contains only what was offered.
    fn answer(&self, peer: &Self) -> Self {
        let timestamps = self.timestamps.zip(peer.timestamps);
        Self {
            mss: self.mss,
            scale: self.scale.filter(|_| peer.scale.is_some()),
            sack: self.sack && peer.sack,
            timestamps: timestamps.map(|(own, peer)| Timestamps { echo: peer.value, ..own }),
        }
    }
}

/// A segment of the kernel, and the path of frames to its sender.
struct Arrival {
    path: Path,
    header: Header,
    offer: Offer,
}

/// Returns the number of bytes of a frame before its TCP header.
const fn tcp_start(path: &Path) -> usize {
    14 + if path.source.is_ipv4() { 20 } else { 40 }
}

/// Waits for a segment with these values of the flags SYN and ACK. Calls `send` from time to time,
/// to repeat the segment that it answers: a kernel whose interface has just come up drops some
/// frames.
fn expect(tap: &Tap, flags: Flags, mut send: impl FnMut()) -> Arrival {
    let since = Instant::now();
    send();
    while since.elapsed() < LIMIT {
        tap.wait(Duration::from_millis(200));
        let Some(bytes) = tap.receive() else {
            send();
            continue;
        };
        let Ok(Some(Frame { path, segment })) = Frame::parse(&bytes) else { continue };
        let header = segment.header;
        if header.flags & (Flags::SYN | Flags::ACK) != flags {
            continue;
        }
        let end = bytes.len() - segment.payload.len();
        let offer = Offer::parse(&bytes[tcp_start(&path) + 20..end]);
        let path = Path {
            to: path.from,
            from: path.to,
            source: path.destination,
            destination: path.source,
            ..path
        };
        return Arrival { path, header, offer };
    }
    panic!("no segment {flags:?} of the kernel");
}

/// Sends a segment with options that the engine does not write: they are first written as data, and
/// then the header is made longer.
fn send(tap: &Tap, path: &Path, header: &Header, offer: &Offer) {
    let options = offer.bytes();
    let mut frame = [vec![0; HEADROOM], options.clone()].concat();
    let range = frame::build(path, 0, header, &mut frame, options.len()).expect("room");
    let frame = &mut frame[range];
    let tcp = tcp_start(path);
    let more = (options.len() / 4) as u8;
    frame[tcp + 12] += more << 4;
    // RFC 1624: updates the checksum.
    let sum = u16::from_be_bytes([frame[tcp + 16], frame[tcp + 17]]);
    let sum = u32::from(!sum) + (u32::from(more) << 12);
    let sum = !((sum & 0xffff) as u16 + (sum >> 16) as u16);
    frame[tcp + 16..tcp + 18].copy_from_slice(&sum.to_be_bytes());
    tap.send(frame);
}

/// Returns the state after a handshake.
fn context(own: &Offer, synchronized: &Arrival, window: u32) -> Context {
    let Arrival { header, offer: peer, .. } = synchronized;
    let agreed = own.answer(peer);
    let scales = agreed.scale.zip(peer.scale).unwrap_or_default();
    Context {
        send_next: FIRST.plus(1),
        receive_next: header.seq.plus(1),
        send_window: window,
        max_send_window: window,
        receive_window: WINDOW.into(),
        send_scale: scales.1,
        receive_scale: scales.0,
        peer_closed: false,
        mss: own.mss.min(peer.mss),
        sack: agreed.sack,
        timestamps: agreed.timestamps.map(|Timestamps { value, echo }| TimestampState {
            value,
            tick: Tick::Millis,
            recent: echo,
        }),
        round_trip: None,
    }
}

/// Answers a kernel socket that connects.
pub(crate) fn accept(network: &Network) -> (Path, Context) {
    let tap = &network.tap;
    let syn = expect(tap, Flags::SYN, || ());
    assert_eq!(syn.path.source, network.own());
    let offer = Offer::all(network.mss());
    let (ack, flags) = (syn.header.seq.plus(1), Flags::SYN | Flags::ACK);
    let header = Header { seq: FIRST, ack, flags, window: WINDOW, options: Options::default() };
    let answer = offer.answer(&syn.offer);
    let last = expect(tap, Flags::ACK, || send(tap, &syn.path, &header, &answer)).header;
    let mut context = context(&offer, &syn, 0);
    context.send_window = u32::from(last.window) << context.send_scale;
    context.max_send_window = context.send_window;
    (syn.path, context)
}

/// Connects to a kernel socket that listens.
pub(crate) fn connect(network: &Network) -> (Path, Context) {
    let (tap, path) = (&network.tap, network.path());
    let offer = Offer::all(network.mss());
    let header = Header { seq: FIRST, flags: Flags::SYN, window: WINDOW, ..Header::default() };
    let both = Flags::SYN | Flags::ACK;
    let answer = expect(tap, both, || send(tap, &path, &header, &offer));
    assert_eq!(answer.header.ack, FIRST.plus(1));
    let context = context(&offer, &answer, answer.header.window.into());
    let own = offer.answer(&answer.offer);
    let header = Header {
        seq: context.send_next,
        ack: context.receive_next,
        flags: Flags::ACK,
        window: WINDOW >> context.receive_scale,
        options: Options { timestamps: own.timestamps, ..Options::default() },
    };
    let mut frame = vec![0; HEADROOM];
    let range = frame::build(&path, 0, &header, &mut frame, 0).expect("room");
    tap.send(&frame[range]);
    (path, context)
}
