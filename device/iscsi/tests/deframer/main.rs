//! Bytes of a target, in pieces of any length: PDUs as they should be, and hostile ones.
//!
//! Shows: iscsi
//!
//! | module | contents |
//! | --- | --- |
//! | [`hostile`] | random PDUs and random bytes, with conditions that always hold |
#![forbid(unsafe_code)]

mod hostile;

use vrnic_iscsi::{Config, Deframer, Digest, Malformed, Part};

const CONFIG: Config = Config {
    header_digest: true,
    data_digest: true,
    max_receive: 2000,
    max_send: 4096,
    max_burst: 4096,
};

/// Returns the bytes of a PDU with this number of words of additional header segments.
fn pdu(config: &Config, words: u8, data: &[u8]) -> Vec<u8> {
    let mut head = vec![0; 48 + usize::from(words) * 4];
    (head[0], head[4]) = (0x20, words);
    head[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
    let mut bytes = head.clone();
    if config.header_digest {
        bytes.extend(Digest::of(&head));
    }
    let mut padded = data.to_vec();
    padded.resize(data.len().next_multiple_of(4), 0);
    bytes.extend(&padded);
    if config.data_digest && !data.is_empty() {
        bytes.extend(Digest::of(&padded));
    }
    bytes
}

/// The header and the data of a PDU.
type Found = (Vec<u8>, Vec<u8>);

/// Returns what a stream contains: headers and data of its complete PDUs, and its end.
fn parse(config: Config, stream: &[u8], piece: usize) -> (Vec<Found>, Option<Malformed>) {
    let (mut deframer, mut found) = (Deframer::new(config), Vec::new());
    let (mut head, mut data) = (Vec::new(), Vec::new());
    for mut bytes in stream.chunks(piece) {
        loop {
            match deframer.next(&mut bytes) {
                Ok(Part::More) => break,
                Ok(Part::Header) => head = deframer.header().to_vec(),
                Ok(Part::Data { at, bytes }) => {
                    assert_eq!(at as usize, data.len());
                    assert!(!bytes.is_empty());
                    data.extend(bytes);
                }
                Ok(Part::End) => found.push((std::mem::take(&mut head), std::mem::take(&mut data))),
                Err(malformed) => return (found, Some(malformed)),
            }
        }
        assert!(bytes.is_empty(), "all bytes are taken");
    }
    (found, None)
}

#[test]
fn pdus_in_pieces_of_any_length() {
    for (header_digest, data_digest) in [(false, false), (true, false), (false, true), (true, true)]
    {
        let config = Config { header_digest, data_digest, ..CONFIG };
        let wanted: Vec<(u8, Vec<u8>)> = [(0, 0), (0, 1), (3, 5), (16, 2000), (0, 4), (0, 0)]
            .map(|(words, len)| (words, (0..len).map(|at| at as u8).collect()))
            .into();
        let stream: Vec<u8> =
            wanted.iter().flat_map(|(words, data)| pdu(&config, *words, data)).collect();
        for piece in [1, 2, 3, 7, 48, 100, 1460, stream.len()] {
            let (found, end) = parse(config, &stream, piece);
            assert_eq!(end, None);
            assert_eq!(found.len(), wanted.len());
            for ((head, data), (words, expected)) in found.iter().zip(&wanted) {
                assert_eq!(head.len(), 48 + usize::from(*words) * 4);
                assert_eq!(data, expected);
            }
        }
    }
}

#[test]
fn what_ends_a_stream() {
    let good = pdu(&CONFIG, 1, &[9; 99]);
    type Spoil = fn(&mut Vec<u8>);
    let cases: [(Spoil, Malformed); 6] = [
        (|bytes| bytes[20] ^= 1, Malformed::HeaderDigest),
        (|bytes| bytes[53] ^= 1, Malformed::HeaderDigest),
        (|bytes| bytes[56 + 98] ^= 1, Malformed::DataDigest),
        // The padding is covered.
        (|bytes| bytes[56 + 99] ^= 1, Malformed::DataDigest),
        (|bytes| bytes[6] = 8, Malformed::TooLong),
        (|bytes| bytes[4] = 17, Malformed::Additional),
    ];
    for (spoil, malformed) in cases {
        let mut bytes = good.clone();
        spoil(&mut bytes);
        let (found, end) = parse(CONFIG, &[&good[..], &bytes].concat(), 11);
        assert_eq!((found.len(), end), (1, Some(malformed)));
    }
}

/// Passes hostile PDUs. `VRNIC_CASES` sets their number, `VRNIC_SEED` the first seed.
#[test]
fn any_pdus() {
    vrnic_cases::seeds(200_000, hostile::any_pdus);
}
