//! Log lines for the journal of systemd, which has times of its own and takes priorities from
//! prefixes (sd-daemon(3)).

use std::fmt;
use std::io::{self, Stderr, Write};
use std::os::fd::AsFd;

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// Standard error as the destination of the log.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// True if it is the journal.
    journal: bool,
}

impl Output {
    /// Finds out what standard error is.
    #[must_use]
    pub fn new() -> Self {
        let named = std::env::var("JOURNAL_STREAM").ok();
        let is = |named: String| {
            let stat = rustix::fs::fstat(io::stderr().as_fd());
            stat.is_ok_and(|stat| named == format!("{}:{}", stat.st_dev, stat.st_ino))
        };
        Self { journal: named.is_some_and(is) }
    }
}

impl Default for Output {
    fn default() -> Self {
        Self::new()
    }
}

impl FormatTime for Output {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        if self.journal { Ok(()) } else { SystemTime.format_time(writer) }
    }
}

impl<'a> MakeWriter<'a> for Output {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { prefix: None, output: io::stderr() }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Line {
        let prefix = match *metadata.level() {
            Level::ERROR => b"<3>",
            Level::WARN => b"<4>",
            Level::INFO => b"<6>",
            _ => b"<7>",
        };
        Line { prefix: self.journal.then_some(prefix), output: io::stderr() }
    }
}

/// Writes a line of the log, which comes as a whole.
#[derive(Debug)]
pub struct Line {
    prefix: Option<&'static [u8; 3]>,
    output: Stderr,
}

impl Write for Line {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if let Some(prefix) = self.prefix.take() {
            // The time that is left out leaves a space.
            self.output.write_all(&[prefix, text.trim_ascii_start()].concat())?;
            return Ok(text.len());
        }
        self.output.write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}
