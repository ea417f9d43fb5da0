//! `vrnic-terminal`: records programs on a terminal, and draws the recordings.

#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use vrnic_terminal::recorder::{Keys, record};
use vrnic_terminal::recording::{Header, Recording};
use vrnic_terminal::svg::draw;

/// Records programs on a terminal, and draws the recordings as SVG.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run a program, and write a recording of what it prints
    Record(Record),
    /// Draw recordings, each into a file next to it whose name ends in .svg
    Draw {
        #[arg(required = true)]
        recordings: Vec<PathBuf>,
    },
}

#[derive(Args)]
struct Record {
    /// The file of the recording
    #[arg(long)]
    into: PathBuf,
    /// The command that the picture shows
    #[arg(long, value_name = "TEXT")]
    shown: String,
    #[arg(long, default_value_t = 100)]
    columns: u16,
    #[arg(long, default_value_t = 24)]
    rows: u16,
    /// The longest pause in the picture
    #[arg(long, value_name = "SECONDS", default_value_t = 1.5)]
    pause: f64,
    /// Let the picture show only the last screen
    #[arg(long)]
    still: bool,
    /// Press keys so many seconds after the start, as in '1.5:q'. \r is Enter, \e is Esc
    #[arg(long = "key", value_name = "SECONDS:KEYS", value_parser = keys)]
    keys: Vec<Keys>,
    #[arg(last = true, required = true)]
    program: Vec<String>,
}

fn keys(text: &str) -> Result<Keys, String> {
    let (seconds, keys) = text.split_once(':').ok_or("there is no colon")?;
    let seconds = seconds.parse().ok().and_then(|it| Duration::try_from_secs_f64(it).ok());
    let after = seconds.ok_or("the time is not a number of seconds")?;
    Ok(Keys { after, text: keys.replace("\\r", "\r").replace("\\e", "\x1b") })
}

fn main() -> Result<()> {
    match Cli::parse().task {
        Task::Record(Record { into, shown, columns, rows, pause, still, keys, program }) => {
            let outputs = record(&program, columns, rows, keys)?;
            let header = Header {
                version: 2,
                width: columns,
                height: rows,
                command: shown,
                idle_time_limit: pause,
                still,
            };
            let text = Recording { header, outputs }.write()?;
            fs::write(&into, text).with_context(|| format!("cannot write {}", into.display()))
        }
        Task::Draw { recordings } => recordings.iter().try_for_each(|file| {
            let named = || format!("cannot draw {}", file.display());
            let recording = Recording::read(&fs::read_to_string(file).with_context(named)?);
            let svg = recording.and_then(|it| draw(&it)).with_context(named)?;
            fs::write(file.with_extension("svg"), svg).with_context(named)
        }),
    }
}
