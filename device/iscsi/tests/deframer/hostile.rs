//! Random PDUs and random bytes, with conditions that always hold.

use fastrand::Rng;
use vrnic_iscsi::{Config, Deframer, Malformed, Part, Solicited};

use crate::pdu;

/// Passes PDUs to a deframer until one of them ends the stream. Returns their number.
pub(crate) fn any_pdus(seed: u64) -> u64 {
    let mut rng = Rng::with_seed(seed);
    let config = Config {
        header_digest: rng.bool(),
        data_digest: rng.bool(),
        max_receive: 512 + rng.u32(0..600),
        max_send: 512,
        max_burst: 1024,
    };
    let mut deframer = Deframer::new(config);
    for count in 1..=64 {
        let words = if rng.u8(..) == 0 { rng.u8(..) } else { rng.u8(0..3) };
        let longest = config.max_receive + u32::from(rng.u8(..) == 0);
        let data: Vec<u8> = (0..rng.u32(0..=longest)).map(|_| rng.u8(..)).collect();
        let mut bytes = pdu(&config, words, &data);
        let spoilt = rng.u8(..) < 4;
        if spoilt {
            let at = rng.usize(0..bytes.len());
            bytes[at] ^= rng.u8(1..);
        }
        match pass(&mut deframer, &config, &bytes, &mut rng) {
            Ok(found) if !spoilt => assert!(found == data, "the data of a good PDU"),
            // A wrong length that no digest has shown.
            Ok(_) => return count,
            Err(malformed) => {
                let long = words > 16 && malformed == Malformed::Additional
                    || data.len() > config.max_receive as usize && malformed == Malformed::TooLong;
                assert!(spoilt || long, "{malformed:?} of a good PDU");
                return count;
            }
        }
    }
    64
}

/// Passes bytes in random pieces. Returns the data of the last PDU that was complete.
fn pass(
    deframer: &mut Deframer,
    config: &Config,
    mut bytes: &[u8],
    rng: &mut Rng,
) -> Result<Vec<u8>, Malformed> {
    let (mut data, mut last) = (Vec::new(), Vec::new());
    while !bytes.is_empty() {
        let (mut piece, rest) = bytes.split_at(rng.usize(1..=bytes.len()));
        bytes = rest;
        loop {
            match deframer.next(&mut piece)? {
                Part::More => break,
                Part::Header => {
                    let bhs = deframer.bhs();
                    assert!(bhs.data_len() <= config.max_receive);
                    assert_eq!(deframer.header().len(), 48 + bhs.additional_len());
                    // An answer has the bytes that were asked for, and no more.
                    let mut solicited = Solicited::of(bhs);
                    let mut all = 0;
                    for _ in 0..8 {
                        let Some(next) = solicited.next(config.max_send) else { break };
                        assert!(next.length <= config.max_send);
                        assert_eq!(next.header.task_tag(), bhs.task_tag());
                        all += u64::from(next.length);
                    }
                    assert!(all <= u64::from(bhs.desired_len()));
                    data.clear();
                }
                Part::Data { at, bytes } => {
                    assert!(at as usize == data.len() || data.is_empty());
                    data.extend(bytes);
                    assert!(data.len() <= config.max_receive as usize);
                }
                Part::End => last = std::mem::take(&mut data),
            }
        }
    }
    Ok(last)
}
