//! The screen of one queue pair: its fields, its queues, its connection if it has one, and the
//! counters of its function.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph};
use serde_json::Value as Json;

use crate::columns::text;
use crate::top::model::Model;
use crate::top::picture::Picture;
use crate::top::rates;

/// The queues of a queue pair: their keys.
const QUEUES: [&str; 2] = ["send", "recv"];
/// Characters of a queue's bar.
const BAR: u64 = 20;

/// Draws the queue pair.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, picture: &Picture) {
    let Some(qp) = model.qpn.and_then(|qpn| picture.now.qp(qpn)) else {
        frame.render_widget(Paragraph::new("This queue pair does not exist any more."), area);
        return;
    };
    let before = model.qpn.and_then(|qpn| picture.qp_before(qpn));
    let queues = QUEUES.map(|key| queue(key, before, qp, picture.seconds));
    let parts = [Constraint::Length(4), Constraint::Min(0)];
    let [above, below] = Layout::vertical(parts).areas(area);
    let parts = [Constraint::Length(34), Constraint::Min(0)];
    let [left, right] = Layout::horizontal(parts).areas(below);
    let block = |title: &'static str| Block::bordered().title(title);
    let lines =
        |lines: Vec<String>| Paragraph::new(lines.into_iter().map(Line::from).collect::<Vec<_>>());
    frame.render_widget(lines(queues.into()).block(block("Queues")), above);
    frame.render_widget(lines(fields(qp)).block(block("Fields")), left);
    let connection = model.qpn.and_then(|qpn| picture.now.connection(qpn));
    let right = connection.map_or(right, |connection| {
        let parts = [Constraint::Length(42), Constraint::Min(0)];
        let [middle, right] = Layout::horizontal(parts).areas(right);
        frame.render_widget(lines(fields(connection)).block(block("Connection")), middle);
        right
    });
    let title = "Counters of the function (all queue pairs)";
    frame.render_widget(lines(counters(model, picture)).block(block(title)), right);
}

/// Returns a line about a queue: how full it is, its indexes, and how fast requests are posted.
fn queue(key: &str, before: Option<&Json>, qp: &Json, seconds: f64) -> String {
    let queue = &qp[key];
    let index = |name: &str| queue[name].as_u64().and_then(|it| u32::try_from(it).ok());
    let (Some(size), Some(posted), Some(next)) = (index("size"), index("posted"), index("next"))
    else {
        return format!("{key}  none");
    };
    let rate = rates::posted(before, qp, key, seconds).unwrap_or_default();
    if queue["in_device"] == true {
        return format!("{key}  in device memory, {size} entries; {next} taken");
    }
    let used = posted.wrapping_sub(next);
    let filled = u64::from(used.min(size)) * BAR / u64::from(size.max(1));
    let bar: String = (0..BAR).map(|at| if at < filled { '#' } else { '.' }).collect();
    format!("{key}  [{bar}] {used}/{size}  posted {posted}  taken {next}  {rate:.0} posted/s")
}

/// Returns a line for each other field.
fn fields(qp: &Json) -> Vec<String> {
    let all = qp.as_object().into_iter().flatten();
    let fields = all.filter(|(key, _)| !QUEUES.contains(&key.as_str()));
    fields.map(|(key, value)| format!("{:15} {}", key.replace('_', " "), text(value))).collect()
}

/// Returns a line for each counter that is not 0.
fn counters(model: &Model, picture: &Picture) -> Vec<String> {
    let Some(now) = model.function.as_deref().and_then(|name| picture.now.function(name)) else {
        return Vec::new();
    };
    let before = picture.before.function(&now.name).unwrap_or(now);
    let counters = now.counters.iter().filter(|(_, value)| **value > 0);
    let line = |(name, value): (&String, &u64)| {
        let rate = rates::rate(&before.counters, &now.counters, &[name], picture.seconds);
        format!("{name:22} {value:>14} {rate:>12.0}/s")
    };
    counters.map(line).collect()
}
