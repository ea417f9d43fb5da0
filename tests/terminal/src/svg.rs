//! Draws screens as SVG. A picture that moves has all screens one below the other, and a style that
//! moves them past a window. Programs that do not know such styles show the fullest screen, and so
//! do those whose users want no motion.

use std::collections::HashMap;
use std::fmt::Write;

use anyhow::{Context, Result};

use crate::colours;
use crate::recording::Recording;
use crate::screens::{Frame, Row, Run, Style, frames};

/// Size of a character.
const CELL_WIDTH: f64 = 8.4;
const CELL_HEIGHT: f64 = 18.0;
/// Distance of a character's baseline from the top of its cell.
const BASELINE: f64 = 13.5;
const MARGIN: f64 = 12.0;
/// Time for which the last screen stays, in milliseconds.
const END: u64 = 5000;
const FOREGROUND: &str = "#d8dee9";
const BACKGROUND: &str = "#1b2129";
/// Draws a recording.
pub fn draw(recording: &Recording) -> Result<String> {
    let all = frames(recording)?;
    let header = &recording.header;
    let (shown, height) = if header.still {
        let last = all.last().context("the recording has no screen")?;
        let used = last.rows.iter().rposition(|row| !row.is_empty()).map_or(1, |row| row + 1);
        let rows = last.rows.iter().take(used).cloned().collect();
        (vec![Frame { time: 0, rows }], used)
    } else {
        (all, usize::from(header.height))
    };
    let mut svg = String::new();
    head(&mut svg, recording, height)?;
    styles(&mut svg, &shown, height)?;
    screens(&mut svg, &shown, height)?;
    svg.push_str("</svg>\n");
    Ok(svg)
}

fn head(svg: &mut String, recording: &Recording, rows: usize) -> Result<()> {
    let width = f64::from(recording.header.width) * CELL_WIDTH + 2.0 * MARGIN;
    let height = tall(rows) + 2.0 * MARGIN;
    let command = escaped(&recording.header.command);
    writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\" xml:space=\"preserve\" font-size=\"14\" \
         font-family=\"ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace\">\n\
         <title>A terminal with the output of {command}</title>"
    )?;
    Ok(())
}

/// Writes the styles, and the motion if there are several screens.
fn styles(svg: &mut String, frames: &[Frame], rows: usize) -> Result<()> {
    writeln!(svg, "<style>\ntext{{white-space:pre;fill:{FOREGROUND}}}")?;
    if let [_, .., last] = frames {
        let end = last.time + END;
        writeln!(svg, ".play{{animation:play {}s step-end infinite}}", end as f64 / 1000.0)?;
        svg.push_str("@keyframes play{\n");
        for (number, frame) in frames.iter().enumerate() {
            let percent = frame.time as f64 * 100.0 / end as f64;
            writeln!(
                svg,
                "{percent:.3}%{{transform:translateY({}px)}}",
                0.0 - tall(number * rows)
            )?;
        }
        svg.push_str("}\n@media(prefers-reduced-motion:reduce){.play{animation:none}}\n");
    }
    svg.push_str("</style>\n<rect width=\"100%\" height=\"100%\" rx=\"8\" ");
    writeln!(svg, "fill=\"{BACKGROUND}\"/>")?;
    Ok(())
}

/// Writes each row that occurs once, and each screen as a list of rows.
fn screens(svg: &mut String, frames: &[Frame], height: usize) -> Result<()> {
    let mut numbers: HashMap<&Row, usize> = HashMap::new();
    svg.push_str("<defs>\n");
    for row in frames.iter().flat_map(|frame| &frame.rows).filter(|row| !row.is_empty()) {
        let next = numbers.len();
        if !numbers.contains_key(row) {
            numbers.insert(row, next);
            write!(svg, "<g id=\"r{next}\">")?;
            row.iter().try_for_each(|run| draw_run(svg, run))?;
            svg.push_str("</g>\n");
        }
    }
    let fullest = frames.iter().enumerate().max_by_key(|(_, frame)| characters(frame));
    let shown = fullest.map_or(0, |(number, _)| number);
    writeln!(
        svg,
        "</defs>\n<svg x=\"{MARGIN}\" y=\"{MARGIN}\" height=\"{}\">\n\
         <g class=\"play\" transform=\"translate(0,{})\">",
        tall(height),
        0.0 - tall(shown * height)
    )?;
    for (number, frame) in frames.iter().enumerate() {
        svg.push_str("<g>");
        for (row, at) in frame.rows.iter().zip(number * height..) {
            if let Some(number) = numbers.get(row) {
                write!(svg, "<use href=\"#r{number}\" y=\"{}\"/>", tall(at))?;
            }
        }
        svg.push_str("</g>\n");
    }
    svg.push_str("</g>\n</svg>\n");
    Ok(())
}

/// Writes the characters of a run, which fill their columns in whatever font there is.
fn draw_run(svg: &mut String, run: &Run) -> Result<()> {
    let Style { bold, dim, underline, inverse, .. } = run.style;
    let (x, width) = (f64::from(run.column) * CELL_WIDTH, f64::from(run.width) * CELL_WIDTH);
    let mut foreground = run.style.foreground.map_or_else(|| FOREGROUND.into(), colours::name);
    let mut background = run.style.background.map(colours::name);
    if inverse {
        let behind = background.unwrap_or_else(|| BACKGROUND.into());
        background = Some(std::mem::replace(&mut foreground, behind));
    }
    if let Some(fill) = background {
        write!(
            svg,
            "<rect x=\"{x:.1}\" width=\"{width:.1}\" height=\"{CELL_HEIGHT}\" fill=\"{fill}\"/>"
        )?;
    }
    write!(
        svg,
        "<text x=\"{x:.1}\" y=\"{BASELINE}\" textLength=\"{width:.1}\" lengthAdjust=\"spacingAndGlyphs\""
    )?;
    let styles = [
        (foreground != FOREGROUND, format!("fill:{foreground}")),
        (bold, "font-weight:bold".to_owned()),
        (dim, "opacity:.6".to_owned()),
        (underline, "text-decoration:underline".to_owned()),
    ];
    let styles: Vec<_> =
        styles.into_iter().filter_map(|(has, style)| has.then_some(style)).collect();
    if !styles.is_empty() {
        write!(svg, " style=\"{}\"", styles.join(";"))?;
    }
    write!(svg, ">{}</text>", escaped(&run.text))?;
    Ok(())
}

/// Returns the height of so many rows.
fn tall(rows: usize) -> f64 {
    rows as f64 * CELL_HEIGHT
}

fn characters(frame: &Frame) -> usize {
    frame.rows.iter().flatten().map(|run| run.text.trim().chars().count()).sum()
}

/// Returns a text as XML has it. Characters that XML cannot have become blanks.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other if other.is_control() => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}
