//! Runs cases and reports them: a line for each case, and a line at the end.

use std::time::Instant;

use anyhow::{Context, Result};

use super::fixture::env::{Env, Setup};
use super::{Case, cases, iwarp};

/// A choice of cases.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    /// Parts of names: a case runs if its name contains one of them. If the list is empty, all
    /// cases run.
    pub(crate) only: Vec<String>,
    /// Parts of names of cases that do not run.
    pub(crate) skip: Vec<String>,
    /// True if cases run that need much memory.
    pub(crate) huge: bool,
    /// True if the connection manager connects QPs.
    pub(crate) managed: bool,
}

impl Filter {
    fn cases(&self) -> impl Iterator<Item = Case> {
        let can = |c: &Case| (self.huge || !c.huge) && (self.managed || !c.managed);
        cases().into_iter().filter(move |c| can(c) && self.takes(&c.name))
    }

    fn takes(&self, name: &str) -> bool {
        let has = |parts: &[String]| parts.iter().any(|part| name.contains(part.as_str()));
        (self.only.is_empty() || has(&self.only)) && !has(&self.skip)
    }
}

/// Prints the names of the cases.
pub(crate) fn list(filter: &Filter) {
    for case in filter.cases() {
        println!("{}", case.name);
    }
}

/// Runs the cases. Returns true if all have passed.
pub(crate) fn run(setup: &Setup, filter: &Filter, times: bool) -> Result<bool> {
    let (mut passed, mut failed) = (0, 0);
    let mut env = None;
    for case in filter.cases() {
        if let Some(reason) = iwarp::lacks(&case.name).filter(|_| filter.managed) {
            println!("skip {}: {reason}", case.name);
            continue;
        }
        let start = Instant::now();
        match run_one(setup, &mut env, &case) {
            Ok(()) => {
                passed += 1;
                println!("ok {}", case.name);
            }
            Err(e) => {
                failed += 1;
                println!("FAIL {}: {e:#}", case.name);
            }
        }
        if times {
            eprintln!("# {:.3} s", start.elapsed().as_secs_f64());
        }
    }
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0 && passed > 0)
}

/// Runs a case with the existing agents, or with new ones. After a failure the agents are
/// discarded, because the state of their objects is not known.
fn run_one(setup: &Setup, agents: &mut Option<Env>, case: &Case) -> Result<()> {
    let env = match agents.take() {
        Some(env) => env,
        None => Env::new(setup)?,
    };
    (case.run)(&env)?;
    env.finish().context("tidying up")?;
    *agents = Some(env);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Filter, cases};

    #[test]
    fn names_are_unique() {
        let all = cases();
        let names: BTreeSet<_> = all.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
    }

    #[test]
    fn filters_take_and_skip() {
        let filter =
            Filter { only: vec!["data/".into()], skip: vec!["64MiB".into()], ..Filter::default() };
        assert!(filter.takes("data/send/1") && !filter.takes("data/send/64MiB"));
        assert!(!filter.takes("order/fence"));
        assert!(Filter::default().takes("anything"));
    }
}
