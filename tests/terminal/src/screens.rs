//! What a terminal shows during a recording, and when.

use std::num::NonZero;

use anyhow::{Context, Result};
use vt100::{Cell, Parser, Screen};

use crate::colours::{self, Rgb};
use crate::recording::{Output, Recording};

/// Time in which only the command is on the screen, in milliseconds.
const PROMPT: u64 = 1000;
/// Outputs that follow within this time are shown together.
const TOGETHER: u64 = 100;

/// Colours and other features of characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Style {
    /// Colour of the characters, if it is not that of the terminal.
    pub foreground: Option<Rgb>,
    /// Colour of the area after them, if it is not that of the terminal.
    pub background: Option<Rgb>,
    /// Whether they are bold.
    pub bold: bool,
    /// Whether they are less visible.
    pub dim: bool,
    /// Whether they are underlined.
    pub underline: bool,
    /// Whether the two colours change places.
    pub inverse: bool,
}

impl Style {
    fn of(cell: &Cell) -> Self {
        Self {
            foreground: colours::of(cell.fgcolor()),
            background: colours::of(cell.bgcolor()),
            bold: cell.bold(),
            dim: cell.dim(),
            underline: cell.underline(),
            inverse: cell.inverse(),
        }
    }

    /// Returns whether a blank of this style can be seen.
    fn is_visible(&self) -> bool {
        self.inverse || self.underline || self.background.is_some()
    }
}

/// Characters of one style that stand next to each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// Column of the first one.
    pub column: u16,
    /// Number of columns.
    pub width: u16,
    /// The characters.
    pub text: String,
    /// Colours and weight of the characters.
    pub style: Style,
}

impl Run {
    /// Returns the column after the last one.
    fn end(&self) -> u16 {
        self.column + self.width
    }
}

/// A row of a screen, without blanks at its end.
pub type Row = Vec<Run>;

/// A screen.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Milliseconds after the start of the picture.
    pub time: u64,
    /// The rows, from the top.
    pub rows: Vec<Row>,
}

/// Returns what the terminal shows: first the command, then each screen that differs from the one
/// before. Long pauses are shortened.
pub fn frames(recording: &Recording) -> Result<Vec<Frame>> {
    let header = &recording.header;
    let size = |number| NonZero::new(number).context("the terminal has no size");
    let mut terminal = Parser::new(size(header.height)?, size(header.width)?, 0);
    terminal.process(format!("$ {}\r\n", header.command.replace('\n', "\r\n")).as_bytes());
    let mut frames = vec![Frame { time: 0, rows: rows(terminal.screen()) }];
    let longest = (header.idle_time_limit * 1000.0) as u64;
    let (mut time, mut last) = (PROMPT, 0);
    let mut outputs = recording.outputs.iter().peekable();
    while let Some(first) = outputs.next() {
        time += (first.time - last).min(longest);
        terminal.process(first.text.as_bytes());
        let soon = |output: &&Output| output.time < first.time + TOGETHER;
        while let Some(output) = outputs.next_if(soon) {
            terminal.process(output.text.as_bytes());
        }
        last = first.time;
        let rows = rows(terminal.screen());
        if frames.last().is_none_or(|frame| frame.rows != rows) {
            frames.push(Frame { time, rows });
        }
    }
    Ok(frames)
}

fn rows(screen: &Screen) -> Vec<Row> {
    let (rows, columns) = screen.size();
    (0..rows.get()).map(|row| runs(screen, row, columns.get())).collect()
}

/// Returns the runs of a row. What stands after two or more blanks is a run of its own, so that it
/// keeps its column in any font.
fn runs(screen: &Screen, row: u16, columns: u16) -> Row {
    let mut runs: Row = Vec::new();
    for column in 0..columns {
        let Some(cell) = screen.cell(row, column).filter(|cell| !cell.is_wide_continuation())
        else {
            continue;
        };
        let (style, width) = (Style::of(cell), 1 + u16::from(cell.is_wide()));
        let text = if cell.has_contents() { cell.contents() } else { " " };
        if text == " " && !style.is_visible() {
            continue;
        }
        let blanks = u16::from(!style.is_visible());
        let last = runs.last_mut().filter(|run| run.style == style);
        match last.filter(|run| run.end() + blanks >= column) {
            Some(run) => {
                if run.end() < column {
                    run.text.push(' ');
                }
                run.text.push_str(text);
                run.width = column + width - run.column;
            }
            None => runs.push(Run { column, width, text: text.to_owned(), style }),
        }
    }
    runs
}
