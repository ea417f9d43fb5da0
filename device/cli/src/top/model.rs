//! The state of the screen, and the effects of keys.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::widgets::TableState;

use crate::top::picture::{Answer, number};

/// The contents of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Level {
    /// All functions.
    #[default]
    Functions,
    /// The QPs of a function.
    Qps,
    /// A single QP.
    Qp,
}

/// The work that a key leaves to the loop that reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// The screen must be drawn again.
    Draw,
    /// The daemon must be asked for the QPs of the function first.
    Fetch,
    /// The program must end.
    Quit,
}

/// The state of the screen.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) level: Level,
    /// The chosen function.
    pub(super) function: Option<String>,
    /// The chosen QP of it.
    pub(super) qpn: Option<u64>,
    /// True if nothing is refreshed.
    pub(super) paused: bool,
    /// The scroll position of the table of functions.
    pub(super) functions: TableState,
    /// The scroll position of the table of QPs.
    pub(super) qps: TableState,
}

impl Model {
    /// Returns the function whose QPs are shown.
    pub(super) fn watched(&self) -> Option<&str> {
        self.function.as_deref().filter(|_| self.level != Level::Functions)
    }

    /// Returns the row of the chosen function or QP, or the first row if it is gone.
    pub(super) fn row(&self, answer: &Answer) -> Option<usize> {
        let (rows, row) = match self.level {
            Level::Functions => {
                let chosen = |name: &String| Some(name) == self.function.as_ref();
                let row = answer.functions.iter().position(|function| chosen(&function.name));
                (answer.functions.len(), row)
            }
            _ => (answer.qps.len(), answer.qps.iter().position(|qp| number(qp) == self.qpn)),
        };
        (rows > 0).then(|| row.unwrap_or_default())
    }

    /// Chooses the function or QP of a row.
    fn choose(&mut self, answer: &Answer, row: usize) {
        match self.level {
            Level::Functions => {
                self.function = answer.functions.get(row).map(|function| function.name.clone());
            }
            _ => self.qpn = answer.qps.get(row).and_then(number),
        }
    }

    /// Does what a key stands for.
    pub(super) fn key(&mut self, key: KeyEvent, answer: &Answer, page: usize) -> Option<Wish> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        let row = self.row(answer).unwrap_or_default();
        let last = match self.level {
            Level::Functions => answer.functions.len(),
            _ => answer.qps.len(),
        }
        .saturating_sub(1);
        let row = match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Some(Wish::Quit);
            }
            KeyCode::Char('q') => return Some(Wish::Quit),
            KeyCode::Char('p' | ' ') => {
                self.paused = !self.paused;
                return Some(Wish::Draw);
            }
            KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') => {
                return self.deeper(answer, row);
            }
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace | KeyCode::Char('h') => {
                return self.back();
            }
            KeyCode::Up | KeyCode::Char('k') => row.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => row.saturating_add(1),
            KeyCode::PageUp => row.saturating_sub(page),
            KeyCode::PageDown => row.saturating_add(page),
            KeyCode::Home => 0,
            KeyCode::End => last,
            _ => return None,
        };
        self.choose(answer, row.min(last));
        Some(Wish::Draw)
    }

    /// Shows what is chosen in more detail.
    fn deeper(&mut self, answer: &Answer, row: usize) -> Option<Wish> {
        self.choose(answer, row);
        match self.level {
            Level::Functions if self.function.is_some() => {
                self.level = Level::Qps;
                self.qpn = None;
                self.qps = TableState::default();
                Some(Wish::Fetch)
            }
            Level::Qps if self.qpn.is_some() => {
                self.level = Level::Qp;
                Some(Wish::Draw)
            }
            _ => None,
        }
    }

    /// Goes back to what was shown before.
    fn back(&mut self) -> Option<Wish> {
        self.level = match self.level {
            Level::Functions => return None,
            Level::Qps => Level::Functions,
            Level::Qp => Level::Qps,
        };
        Some(Wish::Draw)
    }
}
