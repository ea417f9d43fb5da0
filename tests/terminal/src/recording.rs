//! The file of a recording, in the format asciicast 2: a header, then one line of JSON for each
//! output of the program.

use std::fmt::Write;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// The largest size of a terminal, in rows and in columns.
const SIZE_MAX: u16 = 500;

/// The first line of a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Number of the format.
    pub version: u8,
    /// Columns of the terminal.
    pub width: u16,
    /// Rows of the terminal.
    pub height: u16,
    /// Command that the picture shows after a prompt.
    pub command: String,
    /// Pauses in the picture are at most this long, in seconds.
    pub idle_time_limit: f64,
    /// Whether the picture only shows the last screen. Other programs ignore this field.
    #[serde(default)]
    pub still: bool,
}

/// A text that the program wrote.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Milliseconds since the start of the program.
    pub time: u64,
    /// Characters and escape sequences.
    pub text: String,
}

/// A recording of one program.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// What the picture needs to know.
    pub header: Header,
    /// All that the program wrote, in the order of time.
    pub outputs: Vec<Output>,
}

impl Recording {
    /// Reads the text of a file.
    pub fn read(text: &str) -> Result<Self> {
        let mut lines = text.lines();
        let first = lines.next().context("the recording is empty")?;
        let header: Header = serde_json::from_str(first).context("the first line is no header")?;
        ensure!(header.version == 2, "the recording has the version {}, not 2", header.version);
        for size in [header.width, header.height] {
            ensure!((1..=SIZE_MAX).contains(&size), "the size {size} is not from 1 to {SIZE_MAX}");
        }
        let limit = header.idle_time_limit;
        ensure!((0.1..=60.0).contains(&limit), "the pause of {limit} s is not from 0.1 to 60");
        let mut outputs: Vec<Output> = Vec::new();
        for (number, line) in lines.enumerate() {
            let at = || format!("line {} is no output", number + 2);
            let (seconds, kind, text): (f64, String, String) =
                serde_json::from_str(line).with_context(at)?;
            ensure!(kind == "o", "line {} is of the kind '{kind}', not 'o'", number + 2);
            ensure!((0.0..1e6).contains(&seconds), "line {} has the time {seconds}", number + 2);
            let time = (seconds * 1000.0).round() as u64;
            let last = outputs.last().map_or(0, |output| output.time);
            ensure!(time >= last, "line {} is earlier than the line before", number + 2);
            outputs.push(Output { time, text });
        }
        Ok(Self { header, outputs })
    }

    /// Returns the text of the file.
    pub fn write(&self) -> Result<String> {
        let mut text = serde_json::to_string(&self.header)? + "\n";
        for output in &self.outputs {
            let seconds = format!("{}.{:03}", output.time / 1000, output.time % 1000);
            writeln!(text, "[{seconds}, \"o\", {}]", serde_json::to_string(&output.text)?)?;
        }
        Ok(text)
    }
}
