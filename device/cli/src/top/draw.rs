//! The screen of a terminal.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row, Table, TableState};
use vrnic_abi::admin::QpRecord;

use crate::columns::Columns;
use crate::top::model::{Level, Model};
use crate::top::picture::{Picture, number};
use crate::top::{queue_pair, rates};

/// Spaces between two columns.
const SPACING: u16 = 1;

/// Draws all of it.
pub(super) fn draw(frame: &mut Frame<'_>, model: &mut Model, picture: &Picture) {
    let parts = [Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)];
    let [top, body, bottom] = Layout::vertical(parts).areas(frame.area());
    let title = Line::styled(title(model, picture), Style::new().add_modifier(Modifier::BOLD));
    frame.render_widget(title, top);
    match model.level {
        Level::Functions => functions(frame, body, model, picture),
        Level::Qps if picture.now.qps.is_empty() => {
            frame.render_widget(Paragraph::new("There are no queue pairs."), body);
        }
        Level::Qps => qps(frame, body, model, picture),
        Level::Qp => queue_pair::draw(frame, body, model, picture),
    }
    frame.render_widget(Line::styled(help(model), Modifier::REVERSED), bottom);
}

fn title(model: &Model, picture: &Picture) -> String {
    let paused = if model.paused { " (paused)" } else { "" };
    let function = model.function.as_deref().unwrap_or("-");
    let what = match model.level {
        Level::Functions => format!("vrnicd: functions: {}", picture.now.functions.len()),
        Level::Qps => format!("function {function}: queue pairs: {}", picture.now.qps.len()),
        Level::Qp => format!("function {function}, queue pair {}", model.qpn.unwrap_or_default()),
    };
    what + paused
}

fn help(model: &Model) -> &'static str {
    match model.level {
        Level::Functions => " Up/Down choose  Enter queue pairs  p pause  q quit ",
        Level::Qps => " Up/Down choose  Enter details  Esc back  p pause  q quit ",
        Level::Qp => " Esc back  p pause  q quit ",
    }
}

fn functions(frame: &mut Frame<'_>, area: Rect, model: &mut Model, picture: &Picture) {
    let rows = picture.now.functions.iter().map(|function| {
        // One that is new has no rates yet.
        let before = picture.before.function(&function.name).unwrap_or(function);
        rates::cells(before, function, picture.seconds)
    });
    let row = model.row(&picture.now);
    table(frame, area, rates::heads(), rows.collect(), row, &mut model.functions);
}

fn qps(frame: &mut Frame<'_>, area: Rect, model: &mut Model, picture: &Picture) {
    let columns = Columns::of(&QpRecord::default());
    let mut heads = columns.heads();
    heads.push("posted/s".to_owned());
    let rows = picture.now.qps.iter().map(|qp| {
        let before = number(qp).and_then(|qpn| picture.qp_before(qpn));
        let posted = rates::posted(before, qp, "send", picture.seconds);
        let mut cells = columns.cells(qp);
        cells.push(posted.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}")));
        cells
    });
    let row = model.row(&picture.now);
    table(frame, area, heads, rows.collect(), row, &mut model.qps);
}

/// Draws a table whose columns are as wide as their cells. Those on the right that do not fit are
/// left out.
fn table(
    frame: &mut Frame<'_>,
    area: Rect,
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
    row: Option<usize>,
    state: &mut TableState,
) {
    let width = |column: usize| {
        let cells = rows.iter().chain([&heads]).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let mut left = usize::from(area.width);
    let fits = |width: &usize| {
        let fits = *width <= left;
        left = left.saturating_sub(*width + usize::from(SPACING));
        fits
    };
    let widths: Vec<_> = (0..heads.len()).map(width).take_while(fits).collect();
    let shown = widths.len();
    let line = |cells: Vec<String>| Row::new(cells.into_iter().take(shown));
    let constraints =
        widths.into_iter().map(|it| Constraint::Length(it.try_into().unwrap_or(u16::MAX)));
    let table = Table::new(rows.into_iter().map(line), constraints)
        .header(line(heads).style(Modifier::UNDERLINED))
        .row_highlight_style(Modifier::REVERSED)
        .column_spacing(SPACING);
    state.select(row);
    frame.render_stateful_widget(table, area, state);
}

#[cfg(test)]
mod tests;
