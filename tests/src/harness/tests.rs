//! Cases that do not end.
//!
//! Shows: tools

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use super::*;
use crate::harness::worker::ALONE;

const SHORT: Duration = Duration::from_millis(300);

/// Waits for ever.
fn hang() -> Result<()> {
    let (_kept, never) = channel::<()>();
    Ok(never.recv()?)
}

#[test]
fn later_suites_run_after_a_case_that_hangs() -> Result<()> {
    static RAN: AtomicUsize = AtomicUsize::new(0);
    fn ran(weight: usize) -> Result<()> {
        RAN.fetch_add(weight, Ordering::Relaxed);
        Ok(())
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let hanging = || {
        let second = Case::alone("second", || ran(100));
        Ok(Suite::alone(vec![Case::alone("first", hang), second]).within(SHORT))
    };
    let later = || Ok(Suite::alone(vec![Case::alone("case", || ran(1))]));
    let entries: &[Entry] = &[("hanging", hanging), ("later", later)];
    let mut selection = Selection::of(std::iter::empty(), &["hanging", "later"])?;
    // Not among the results of the tests that really run.
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("log").to_string_lossy().into_owned();
    selection.arguments.logfile = Some(log);
    assert!(!run_with(entries, &selection, SHORT)?);
    // The suite that hangs has no time for its second case.
    assert_eq!(RAN.load(Ordering::Relaxed), 1);
    Ok(())
}

#[test]
fn a_case_that_hangs_fails_with_a_sentence() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut harness = Harness::new(SHORT);
    let limits = Limits { suite: Duration::from_secs(600), case: SHORT };
    harness.begin(&Suite::alone(Vec::new()), Vec::new(), limits);
    let why = |harness: &mut Harness, case| harness.run(Arc::new(case)).err().unwrap_or_default();
    let sentence = "the case did not end within 0 s, so its guests and all programs";
    let hangs = why(&mut harness, Case::alone("hangs", hang));
    assert!(hangs.starts_with(sentence), "{hangs}");
    let mut harness = Harness::new(Duration::from_secs(30));
    harness.begin(&Suite::alone(Vec::new()), Vec::new(), limits);
    let waits = Case::alone("waits", || {
        let status = Command::new("sleep").arg("1000").status()?;
        bail!("the program has ended: {status}")
    });
    let waits = why(&mut harness, waits);
    assert!(waits.starts_with(sentence) && waits.contains("the program has ended"), "{waits}");
    harness.limits.case = Duration::from_secs(60);
    assert_eq!(why(&mut harness, Case::alone("ends", || Ok(()))), "");
    harness.end = Instant::now();
    let late = why(&mut harness, Case::alone("late", || Ok(())));
    assert!(late.starts_with("did not run: the suite has had 600 s"), "{late}");
}
