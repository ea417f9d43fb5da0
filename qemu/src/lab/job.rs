//! The commands of a run: starts them, follows their output, waits for servers.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use regex::Regex;

use crate::agent::{Running, Stream};
use crate::command::Command;
use crate::fleet::Fleet;
use crate::guest::Guest;
use crate::lab::lines::{Lines, Tail};
use crate::lab::results::{End, Ran, Results};
use crate::lab::script::{Place, script};
use crate::machine::progress::step;
use crate::machine::signals::noted;

/// Exit status of a command that was ended because of its time limit. `timeout` uses the same.
pub const TIMED_OUT: i32 = 124;
/// Exit status of a command that was ended because of a signal. The run has the signal's.
const INTERRUPTED: i32 = 128;
/// Time in which a peer's command must listen. After this time the command of guest a is started in
/// any case.
const LISTENING: Duration = Duration::from_secs(30);
/// Time in which a peer's command must end after the command of guest a has ended.
const ENDING: Duration = Duration::from_secs(5);
/// Time between two checks of a peer's command.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Prints the addresses on which programs listen, by TCP or with the RDMA connection manager.
const LISTENERS: &str = "sed -n 's/^ *[0-9]*: \\([0-9A-F:]*\\) [0-9A-F:]* 0A .*/\\1/p' \
                         /proc/net/tcp /proc/net/tcp6 2>/dev/null; \
                         rdma res show cm_id 2>/dev/null | grep 'state LISTEN'; true";

/// The commands of a run.
#[derive(Clone, Debug)]
pub struct Job {
    /// Command of guest a.
    pub command: Command,
    /// Command of all other guests, or of guest a if there is no other. It is started first.
    pub peer: Option<Command>,
    /// The pattern of the line that each peer prints when it is ready, if its ports do not show it.
    pub ready: Option<Regex>,
    /// Time limit of the command of guest a.
    pub limit: Duration,
    /// The place in which the commands run.
    pub place: Place,
}

/// What a peer's thread and the others tell each other.
#[derive(Debug, Default)]
struct Signs {
    /// The output has said that the server is ready.
    ready: AtomicBool,
    /// The command of guest a has ended.
    over: AtomicBool,
    /// The sockets that listened before the peer's command, such as those of a whole system.
    before: BTreeSet<String>,
}

/// Runs the commands of a job, and prints their output as it arrives. The output of the peers goes
/// to standard error, with the guest's name before each line. Adds how they have ended to
/// `results`.
///
/// Returns the exit status of guest a's command. If that is 0, returns the status of the first peer
/// whose command has ended by itself with another status. Commands of peers that do not end are
/// killed.
///
/// # Errors
/// If a guest has ended.
pub fn run(fleet: &Fleet, job: &Job, results: &mut Results) -> Result<i32> {
    with_peers(fleet, job, results, |results| {
        let (code, ran) = client(fleet, job)?;
        results.commands.push(ran);
        code
    })
}

/// Runs the commands of the peers, and calls `work` when they are ready. Its result is the status
/// of guest a's command.
///
/// # Errors
/// If a guest has ended, or `work` fails.
pub fn with_peers(
    fleet: &Fleet,
    job: &Job,
    results: &mut Results,
    work: impl FnOnce(&mut Results) -> Result<i32>,
) -> Result<i32> {
    let signs = signs_of_peers(fleet, job)?;
    thread::scope(|scope| {
        let mut threads = Vec::new();
        let mut failed = Ok(());
        for (guest, signs) in &signs {
            let Some(command) = &job.peer else { continue };
            match guest.agent().start(&script(fleet, guest, &job.place, command)) {
                Ok(running) => threads.push((
                    guest,
                    signs,
                    scope.spawn(move || serve(guest, &running, job, signs)),
                )),
                Err(error) => failed = Err(error),
            }
        }
        let waits = || -> Result<i32> {
            failed?;
            for (guest, signs, thread) in &threads {
                if !wait_for(guest, job, signs, || thread.is_finished())? {
                    results.commands.push(not_started(fleet.first()?, job));
                    return Ok(TIMED_OUT);
                }
            }
            if noted().is_some() {
                results.commands.push(not_started(fleet.first()?, job));
                return Ok(INTERRUPTED);
            }
            work(results)
        };
        let done = waits();
        signs.iter().for_each(|(_, signs)| signs.over.store(true, Ordering::Relaxed));
        let mut ended = Vec::new();
        for (.., thread) in threads {
            let Ok(ran) = thread.join() else { bail!("the thread of a peer panicked") };
            ended.push(ran);
        }
        let status = status_of(done, &ended);
        results.commands.extend(ended);
        status
    })
}

/// Returns the guests in which the peer's command runs, with what listens there before.
fn signs_of_peers<'a>(fleet: &'a Fleet, job: &Job) -> Result<Vec<(&'a Guest, Signs)>> {
    if job.peer.is_none() {
        return Ok(Vec::new());
    }
    let signs = |guest| Ok((guest, Signs { before: listeners(guest)?, ..Signs::default() }));
    peers(fleet)?.into_iter().map(signs).collect()
}

/// Returns the status of a run: that of guest a's command, or else the first of the peers' that is
/// not 0.
///
/// # Errors
/// If guest a's command has failed to run, or a peer's guest has ended.
fn status_of(client: Result<i32>, peers: &[Ran]) -> Result<i32> {
    let mut first = None;
    for ran in peers {
        if let End::Status(status) = ran.end
            && status != 0
        {
            step(format!("guest {}: the command ended with {status}", ran.guest));
            first = first.or(Some(status));
        }
    }
    let code = client?;
    let lost = peers.iter().find(|ran| matches!(ran.end, End::Lost));
    if let Some(lost) = lost.and_then(Ran::failure) {
        bail!("{lost} while its command ran");
    }
    Ok(if code == 0 { first.unwrap_or(0) } else { code })
}

/// Returns the end of guest a's command if it did not start: not in time, or before a signal.
fn not_started(guest: &Guest, job: &Job) -> Ran {
    let (end, took, tail) = match noted() {
        None => (
            End::TimedOut,
            job.limit,
            "it did not start, because no line of a peer's output matched --ready",
        ),
        Some(signal) => (End::Interrupted(signal), Duration::ZERO, "it had not started"),
    };
    let (guest, command) = (guest.setup().name.clone(), job.command.shown());
    Ran { guest, command, end, took, tail: tail.to_owned() }
}

/// Returns the guests in which the peer's command runs.
fn peers(fleet: &Fleet) -> Result<Vec<&Guest>> {
    let others: Vec<&Guest> = fleet.guests().skip(1).collect();
    Ok(if others.is_empty() { vec![fleet.first()?] } else { others })
}

/// Runs the command of guest a. Returns its exit status, and what it has shown. The status is an
/// error if the guest has ended.
fn client(fleet: &Fleet, job: &Job) -> Result<(Result<i32>, Ran)> {
    let guest = fleet.first()?;
    let start = Instant::now();
    let mut tail = Tail::default();
    let mut run = || -> Result<Option<i32>> {
        let running = guest.agent().start(&script(fleet, guest, &job.place, &job.command))?;
        let code = follow(&running, start + job.limit, |stream, data| {
            tail.take(data);
            match stream {
                Stream::Stdout => show(io::stdout(), data),
                Stream::Stderr => show(io::stderr(), data),
            }
            .context("cannot write the output of the command")
        })?;
        if code.is_none() {
            if noted().is_none() {
                let limit = job.limit.as_secs();
                step(format!("the command did not end within {limit} s and was killed"));
            }
            running.kill()?;
        }
        Ok(code)
    };
    let code = match run() {
        Err(_) if !guest.answers() => {
            Err(anyhow!("guest {} has ended while its command ran", guest.setup().name))
        }
        code => code,
    };
    let end = match &code {
        Ok(Some(status)) => End::Status(*status),
        Ok(None) => noted().map_or(End::TimedOut, End::Interrupted),
        Err(_) => End::Lost,
    };
    let ran = Ran {
        guest: guest.setup().name.clone(),
        command: job.command.shown(),
        end,
        took: start.elapsed(),
        tail: tail.text(),
    };
    Ok((code.map(|code| code.unwrap_or(TIMED_OUT)), ran))
}

/// Passes a command's output to `sink` until it ends. Returns its exit code, or nothing if it has
/// not ended by the time `end`, or a signal ends the run.
fn follow(
    running: &Running,
    end: Instant,
    mut sink: impl FnMut(Stream, &[u8]) -> Result<()>,
) -> Result<Option<i32>> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let code = running.follow(left.min(POLL_INTERVAL), &mut sink)?;
        if code.is_some() || left.is_zero() || noted().is_some() {
            return Ok(code);
        }
    }
}

fn show(mut to: impl Write, data: &[u8]) -> io::Result<()> {
    to.write_all(data)?;
    to.flush()
}

/// Prints the output of a peer's command until it ends, or until it is killed some time after the
/// command of guest a has ended.
fn serve(guest: &Guest, running: &Running, job: &Job, signs: &Signs) -> Ran {
    let name = guest.setup().name.as_str();
    let start = Instant::now();
    let (mut out, mut err, mut tail) = (Lines::default(), Lines::default(), Tail::default());
    let says = |line: &str| {
        if job.ready.as_ref().is_some_and(|ready| ready.is_match(line)) {
            signs.ready.store(true, Ordering::Release);
        }
    };
    let show = |line: &str| {
        eprintln!("{name}: {line}");
        says(line);
    };
    let mut last = None;
    let end = loop {
        let code = running.follow(POLL_INTERVAL, |stream, data| {
            tail.take(data);
            let lines = match stream {
                Stream::Stdout => &mut out,
                Stream::Stderr => &mut err,
            };
            lines.take(data, show);
            // A prompt has no end of a line.
            says(&lines.rest());
            Ok(())
        });
        match code {
            Ok(Some(status)) => break End::Status(status),
            Ok(None) => {}
            Err(_) => break End::Lost,
        }
        if signs.over.load(Ordering::Relaxed) {
            let end = *last.get_or_insert_with(|| Instant::now() + ENDING);
            if Instant::now() >= end || noted().is_some() {
                // If that fails, the guest has ended.
                let _gone = running.kill();
                break End::Stopped;
            }
        }
    };
    out.finish(show);
    err.finish(show);
    let command = job.peer.as_ref().map(Command::shown).unwrap_or_default();
    Ran { guest: name.to_owned(), command, end, took: start.elapsed(), tail: tail.text() }
}

/// Waits until a peer's server is ready, or has ended. Returns false if that took too long and the
/// command of guest a must not start.
fn wait_for(guest: &Guest, job: &Job, signs: &Signs, ended: impl Fn() -> bool) -> Result<bool> {
    let name = &guest.setup().name;
    let Some(ready) = &job.ready else {
        wait_for_listener(guest, &signs.before, ended)?;
        return Ok(true);
    };
    let end = Instant::now() + job.limit;
    while !ended() && !signs.ready.load(Ordering::Acquire) && noted().is_none() {
        if Instant::now() >= end {
            let limit = job.limit.as_secs();
            step(format!(
                "guest {name}: no line of the output matches '{ready}' within {limit} s, so the \
                 command of guest a does not start"
            ));
            return Ok(false);
        }
        thread::sleep(POLL_INTERVAL / 10);
    }
    if ended() && !signs.ready.load(Ordering::Acquire) {
        step(format!("guest {name}: the command ended before a line matched '{ready}'"));
    }
    Ok(true)
}

/// Returns the addresses on which programs of the guest listen.
fn listeners(guest: &Guest) -> Result<BTreeSet<String>> {
    let output = guest.agent().run(LISTENERS, LISTENING)?;
    Ok(output.stdout.lines().map(str::to_owned).collect())
}

/// Waits until another program of the guest listens, until its command has ended, or for
/// [`LISTENING`].
fn wait_for_listener(
    guest: &Guest,
    before: &BTreeSet<String>,
    ended: impl Fn() -> bool,
) -> Result<()> {
    let end = Instant::now() + LISTENING;
    while !ended() && noted().is_none() && Instant::now() < end {
        if !listeners(guest)?.is_subset(before) {
            return Ok(());
        }
        thread::sleep(POLL_INTERVAL);
    }
    if !ended() && noted().is_none() {
        step(format!(
            "guest {}: the command does not listen on a port yet; the command of guest a starts \
             anyway. --ready names what its output says when it is ready",
            guest.setup().name
        ));
    }
    Ok(())
}
