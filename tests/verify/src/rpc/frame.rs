//! Messages on a stream: a 32-bit little-endian length, then postcard's encoding.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::failure::Failure;

/// Maximum length of a message that is accepted.
const MAX_LEN: u32 = 16 << 20;

/// Sends one message.
pub(crate) fn send<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    let body = postcard::to_stdvec(message).map_err(io::Error::other)?;
    let len = u32::try_from(body.len()).ok().filter(|l| *l <= MAX_LEN);
    let len = len.ok_or_else(|| io::Error::other(format!("message of {} bytes", body.len())))?;
    let mut whole = len.to_le_bytes().to_vec();
    whole.extend(body);
    to.write_all(&whole)?;
    to.flush()
}

/// Sends the result of a call.
pub(crate) fn answer<T: Serialize>(to: &mut impl Write, result: io::Result<T>) -> io::Result<()> {
    send(to, &result.map_err(|error| Failure::from(&error)))
}

/// Receives one message. Returns `None` at the orderly end of the stream.
pub(crate) fn receive<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut len = [0; 4];
    match from.read_exact(&mut len) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let len = u32::from_le_bytes(len);
    if len > MAX_LEN {
        return Err(io::Error::other(format!("message of {len} bytes announced")));
    }
    let mut body = vec![0; len as usize];
    from.read_exact(&mut body)?;
    postcard::from_bytes(&body).map(Some).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::{receive, send};

    #[test]
    fn round_trip_and_end() {
        let mut stream = Vec::new();
        send(&mut stream, &vec![1u64, u64::MAX]).expect("send");
        let mut from = stream.as_slice();
        assert_eq!(receive::<Vec<u64>>(&mut from).expect("receive"), Some(vec![1, u64::MAX]));
        assert_eq!(receive::<Vec<u64>>(&mut from).expect("end"), None);
    }

    #[test]
    fn refuses_a_length_beyond_the_limit() {
        assert!(receive::<u64>(&mut [0xff, 0xff, 0xff, 0xff, 0].as_slice()).is_err());
    }

    #[test]
    fn reports_a_cut_message() {
        assert!(receive::<u64>(&mut [8, 0, 0, 0, 1].as_slice()).is_err());
    }
}
