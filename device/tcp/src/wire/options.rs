//! TCP options of segments after the handshake.

use arrayvec::ArrayVec;
use vrnic_packet::{Reader, Short};

use super::segment::{Options, SackBlock, Timestamps};
use crate::discard::Discard;
use crate::seq::SeqNum;

/// Maximum length of the options (RFC 9293, 3.1).
const MAX: usize = 40;

const END: u8 = 0;
const NOP: u8 = 1;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

/// Parses options. Unknown ones are skipped.
pub(super) fn parse(mut bytes: &[u8]) -> Result<Options, Discard> {
    let mut options = Options::default();
    while let Some((kind, rest)) = bytes.split_first() {
        bytes = rest;
        match *kind {
            END => break,
            NOP => continue,
            _ => {}
        }
        let (len, rest) = rest.split_first().ok_or(Discard::Header)?;
        let len = usize::from(*len).checked_sub(2).ok_or(Discard::Header)?;
        let (body, rest) = rest.split_at_checked(len).ok_or(Discard::Header)?;
        bytes = rest;
        match *kind {
            TIMESTAMPS => options.timestamps = Some(timestamps(body)?),
            SACK => options.sack = blocks(body)?,
            _ => {}
        }
    }
    Ok(options)
}

fn number(body: &mut Reader<'_>) -> Result<u32, Discard> {
    body.u32().map_err(|Short| Discard::Header)
}

fn timestamps(body: &[u8]) -> Result<Timestamps, Discard> {
    let mut body = Reader::new(body);
    let timestamps = Timestamps { value: number(&mut body)?, echo: number(&mut body)? };
    if body.rest().is_empty() { Ok(timestamps) } else { Err(Discard::Header) }
}

fn blocks(body: &[u8]) -> Result<ArrayVec<SackBlock, 4>, Discard> {
    let mut body = Reader::new(body);
    let mut blocks = ArrayVec::new();
    while !body.rest().is_empty() {
        let (start, end) = (SeqNum(number(&mut body)?), SeqNum(number(&mut body)?));
        blocks.try_push(SackBlock { start, end }).map_err(|_| Discard::Header)?;
    }
    Ok(blocks)
}

/// Writes options, padded to words of four bytes. Blocks that do not fit are omitted.
pub(super) fn build(options: &Options) -> ArrayVec<u8, MAX> {
    let mut bytes = ArrayVec::new();
    if let Some(Timestamps { value, echo }) = options.timestamps {
        bytes.extend([NOP, NOP, TIMESTAMPS, 10]);
        bytes.extend(value.to_be_bytes().into_iter().chain(echo.to_be_bytes()));
    }
    let room = (MAX - bytes.len() - 4) / 8;
    let count = options.sack.len().min(room);
    if count > 0 {
        // CAST: at most four blocks.
        bytes.extend([NOP, NOP, SACK, 2 + 8 * count as u8]);
    }
    for block in options.sack.iter().take(count) {
        bytes.extend(block.start.0.to_be_bytes().into_iter().chain(block.end.0.to_be_bytes()));
    }
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn wrong_lengths_are_told() {
        for bad in
            [&[8][..], &[8, 1], &[8, 9, 0, 0, 0, 0, 0, 0, 0], &[5, 6, 0, 0, 0, 0], &[3, 4, 0]]
        {
            assert_eq!(parse(bad), Err(Discard::Header), "{bad:?}");
        }
        assert_eq!(parse(&[0, 9, 9]), Ok(Options::default()));
        assert_eq!(parse(&[253, 4, 1, 2, 1, 1]), Ok(Options::default()));
    }

    proptest! {
        #[test]
        fn built_options_read_the_same(
            timestamps: Option<(u32, u32)>,
            blocks in proptest::collection::vec((any::<u32>(), any::<u32>()), 0..=3),
        ) {
            let timestamps = timestamps.map(|(value, echo)| Timestamps { value, echo });
            let block = |(start, end)| SackBlock { start: SeqNum(start), end: SeqNum(end) };
            let sack = blocks.into_iter().map(block).collect();
            let options = Options { timestamps, sack };
            let bytes = build(&options);
            prop_assert!(bytes.len() % 4 == 0);
            prop_assert_eq!(parse(&bytes), Ok(options));
        }

        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..=40)) {
            let _ = parse(&bytes);
        }
    }
}
