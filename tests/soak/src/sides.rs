//! The two sides of a round, at the same time.

use std::iter;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use vrnic_qemu::daemon::Daemon;
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::Pair;

use crate::actions::Ends;
use crate::plan::{Action, Side};

/// An action that has ended.
pub(crate) struct Done {
    pub(crate) action: Action,
    pub(crate) time: Duration,
    pub(crate) result: Result<()>,
}

/// Carries out the actions of both sides at the same time. A side ends at its first failure.
/// Returns the actions of each side.
pub(crate) fn run(pair: &mut Pair, sides: &[Side; 2]) -> Result<Vec<Vec<Done>>> {
    let accel = pair.accel();
    let Pair { a, b, more, daemon, others, .. } = pair;
    let daemons: Vec<&Daemon> = iter::once(&*daemon).chain(&*others).collect();
    let mut guests: Vec<Option<&mut Guest>> = [a, b].into_iter().chain(more).map(Some).collect();
    let mut take = |guest: usize| {
        guests.get_mut(guest).and_then(Option::take).with_context(|| format!("no guest {guest}"))
    };
    let mut work = Vec::new();
    for side in sides {
        let (client, server) = (take(side.client)?, take(side.server)?);
        work.push((Ends { client, server, daemons: &daemons, accel }, &side.actions));
    }
    thread::scope(|scope| {
        let threads: Vec<_> = work
            .into_iter()
            .map(|(mut ends, actions)| scope.spawn(move || all(&mut ends, actions)))
            .collect();
        threads.into_iter().map(|side| side.join().map_err(|_| anyhow!("a panic"))).collect()
    })
}

fn all(ends: &mut Ends<'_>, actions: &[Action]) -> Vec<Done> {
    let mut done = Vec::new();
    for action in actions {
        let start = Instant::now();
        let result = ends.run(action);
        let failed = result.is_err();
        done.push(Done { action: action.clone(), time: start.elapsed(), result });
        if failed {
            break;
        }
    }
    done
}
