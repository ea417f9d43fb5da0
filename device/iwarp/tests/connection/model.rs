//! The contents of a stream of FPDUs, which is decoded as a whole and in order.

#[path = "../wire/reference.rs"]
mod reference;

use std::collections::BTreeMap;

/// Messages of a stream.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// Octets of WRITEs, by their tagged offsets.
    pub(crate) written: BTreeMap<u64, u8>,
    pub(crate) sends: Vec<Vec<u8>>,
    /// Responses of READs, by the STags of their sinks.
    pub(crate) responses: BTreeMap<u32, Vec<u8>>,
}

fn number(octets: &[u8]) -> u64 {
    octets.iter().fold(0, |number, octet| number << 8 | u64::from(*octet))
}

/// Decodes a stream from its first FPDU on.
pub(crate) fn decode(stream: &[u8], markers: bool, crc: bool) -> Contents {
    let (ulpdus, wrong) = reference::decode(stream, markers, crc);
    assert!(!wrong, "the sender has built a wrong FPDU");
    let mut contents = Contents::default();
    let mut send = Vec::new();
    for ulpdu in ulpdus {
        let last = ulpdu[0] & 0x40 != 0;
        match ulpdu[1] & 0x0f {
            0 => {
                let to = number(&ulpdu[6..14]);
                contents.written.extend((to..).zip(ulpdu[14..].iter().copied()));
            }
            2 => {
                let stag = u32::try_from(number(&ulpdu[2..6])).expect("four octets");
                contents.responses.entry(stag).or_default().extend(&ulpdu[14..]);
            }
            3 => {
                send.extend(&ulpdu[18..]);
                if last {
                    contents.sends.push(std::mem::take(&mut send));
                }
            }
            _ => {}
        }
    }
    contents
}
