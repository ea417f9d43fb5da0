//! Many completion events at once.

use std::collections::HashMap;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use vrnic_qemu::pair::Pair;

use crate::commands::{said, serve, settles, stop, works};
use crate::events::tree;

/// Number of queues that get an event each while the guest is paused.
const MANY: u16 = 40;
/// Maximum number of events that an interrupt takes, and that a turn of its thread takes.
const BUDGETS: [u64; 2] = [16, 64];

/// An interrupt leaves further events to its thread, and no event is lost.
pub fn taken_in_turns(pair: &mut Pair) -> Result<()> {
    let ports = 18300..18300 + MANY;
    let command = |port| format!("ibv_rc_pingpong -g 1 -e -c -r 10 -s 64 -n 100000000 -p {port}");
    let servers = ports.clone().map(|port| serve(&pair.b, &command(port), port));
    let servers = servers.collect::<Result<Vec<_>>>()?;
    let client = |port| pair.a.agent().start(&format!("exec {} {}", command(port), pair.b.ip()));
    let clients = ports.map(client).collect::<Result<Vec<_>>>()?;
    let ready = format!("[ $(rdma res show qp | grep -c 'state RTS.*pingpong') -ge {MANY} ]");
    settles(&pair.b, &ready, 60)?;
    let before = tree(&pair.b)?;
    pair.b.qmp(r#"{"execute":"stop"}"#)?;
    sleep(Duration::from_secs(1));
    pair.b.qmp(r#"{"execute":"cont"}"#)?;
    settles(&pair.b, "grep -q ' [1-9][0-9]* turns' /sys/kernel/debug/vrnic-*/events", 10)?;
    let after = tree(&pair.b)?;
    let turns: u64 =
        after.iter().zip(&before).map(|(after, before)| after.turns - before.turns).sum();
    ensure!(turns > 0, "an interrupt took all events: {before:?} {after:?}");
    for handler in after {
        let budget = BUDGETS[0] * handler.interrupts + BUDGETS[1] * handler.turns;
        ensure!(handler.events <= budget, "more than their budget: {handler:?}");
    }
    all_go_on(pair)?;
    for program in clients.into_iter().chain(servers) {
        let text = said(&stop(program)?);
        ensure!(!text.contains("invalid data"), "{text}");
    }
    works(pair)
}

/// Waits until each queue has had more events.
fn all_go_on(pair: &Pair) -> Result<()> {
    let events = || -> Result<HashMap<u32, u64>> {
        Ok(tree(&pair.b)?
            .iter()
            .flat_map(|handler| &handler.cqs)
            .map(|cq| (cq.cqn, cq.events))
            .collect())
    };
    let before = events()?;
    for _ in 0..30 {
        let now = events()?;
        let more = now.iter().filter(|(cqn, events)| before.get(cqn) < Some(events)).count();
        if more >= MANY.into() {
            return Ok(());
        }
        sleep(Duration::from_secs(1));
    }
    bail!("a queue had no more events: {before:?} {:?}", events()?)
}
