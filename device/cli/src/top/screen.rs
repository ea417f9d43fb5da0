//! Keys, refreshes, the terminal's mode.

use std::time::{Duration, Instant};

use anyhow::Context;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};

use crate::client::Client;
use crate::top::draw::draw;
use crate::top::model::{Model, Wish};
use crate::top::picture::{Answer, Picture};

/// Shows the screen, refreshed every `interval` seconds, until a key ends it or after `looks`
/// refreshes (0: for ever).
pub(super) fn run(client: &Client, interval: f64, looks: u64) -> anyhow::Result<()> {
    // Before the terminal's mode changes, so that an error is read as usual.
    let picture = Picture::new(Answer::fetch(client, None)?);
    let terminal = ratatui::try_init().context("cannot use the terminal")?;
    let ended = follow(terminal, client, picture, Duration::from_secs_f64(interval), looks);
    ratatui::try_restore().context("cannot reset the terminal")?;
    ended
}

fn follow(
    mut terminal: DefaultTerminal,
    client: &Client,
    mut picture: Picture,
    interval: Duration,
    looks: u64,
) -> anyhow::Result<()> {
    let mut model = Model::default();
    let mut done = 0;
    let mut due = Instant::now() + interval;
    loop {
        terminal.draw(|frame| draw(frame, &mut model, &picture))?;
        let left = due.saturating_duration_since(Instant::now());
        if !event::poll(left)? {
            due = Instant::now() + interval;
            if model.paused {
                continue;
            }
            picture.next(Answer::fetch(client, model.watched())?);
            done += 1;
            if looks != 0 && done >= looks {
                return Ok(());
            }
            continue;
        }
        // A resize is drawn like all else. One row each is the title, the heads and the help.
        let Event::Key(key) = event::read()? else { continue };
        let page = usize::from(terminal.size()?.height.saturating_sub(3));
        match model.key(key, &picture.now, page) {
            Some(Wish::Quit) => return Ok(()),
            Some(Wish::Fetch) => picture.turn_to(Answer::fetch(client, model.watched())?),
            Some(Wish::Draw) | None => {}
        }
    }
}
