//! The kernel's side of a stream.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::thread;
use std::time::Duration;

use crate::host::pattern;

/// Seeds of the bytes of both directions, which are the numbers of the hosts.
const ENGINE: u64 = 1;
const KERNEL: u64 = 2;

/// The pace of a reader.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// The wait before the first read.
    pub(crate) before: Duration,
    /// The wait after each read.
    pub(crate) between: Duration,
}

/// Writes these bytes of the kernel's stream.
pub(crate) fn write(mut stream: &TcpStream, range: Range<u64>) -> io::Result<()> {
    let mut rng = fastrand::Rng::with_seed(range.end);
    let mut at = range.start;
    while at < range.end {
        let end = range.end.min(at + rng.u64(1..100_000));
        let bytes: Vec<u8> = (at..end).map(|at| pattern(KERNEL, at)).collect();
        stream.write_all(&bytes)?;
        at = end;
    }
    Ok(())
}

/// Reads and checks these bytes of the engine's stream.
pub(crate) fn read(mut stream: &TcpStream, range: Range<u64>, pace: Pace) {
    let mut rng = fastrand::Rng::with_seed(range.end);
    let mut buffer = vec![0; 30_000];
    thread::sleep(pace.before);
    let mut at = range.start;
    while at < range.end {
        let max_len = rng.usize(1..buffer.len()).min((range.end - at) as usize);
        let len = stream.read(&mut buffer[..max_len]).expect("bytes");
        assert!(len > 0, "the stream ends at {at}");
        for (byte, at) in buffer[..len].iter().zip(at..) {
            assert_eq!(*byte, pattern(ENGINE, at), "a wrong byte at {at}");
        }
        at += len as u64;
        thread::sleep(pace.between);
    }
}

/// Writes and reads at the same time.
pub(crate) fn exchange(stream: &TcpStream, len: u64, pace: Pace) {
    thread::scope(|scope| {
        scope.spawn(|| write(stream, 0..len).expect("room"));
        read(stream, 0..len, pace);
    });
}

/// Waits for the end of the engine's stream.
pub(crate) fn end(mut stream: &TcpStream) -> io::Result<()> {
    let len = stream.read(&mut [0])?;
    assert_eq!(len, 0, "bytes behind the end");
    Ok(())
}
