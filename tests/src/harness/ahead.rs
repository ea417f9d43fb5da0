//! Snapshots of guests, made while cases run.
//!
//! Each kind of guests has a snapshot of its own. The machine of which one is made boots for about
//! 15 s under TCG, on one processor, while the cases leave the other one idle for much of the time.

use std::thread::JoinHandle;

use vrnic_qemu::pair::{Options, make_snapshot};

use super::{Run, Suite};

/// The thread that makes the snapshots. Waits for their end when it is dropped.
pub(super) struct Ahead(Option<JoinHandle<()>>);

impl Ahead {
    /// Begins to make the snapshots that these suites need, in their order. The first suite waits
    /// for its own.
    pub(super) fn start(suites: &[(&str, Suite)]) -> Self {
        let options = needed(suites);
        let make = move || {
            for options in options {
                // Guests whose snapshot cannot be made boot, and say why.
                let _boots = make_snapshot(&options);
            }
        };
        Self(Some(std::thread::spawn(make)))
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // The message of a panic was printed.
        let _ended = self.0.take().map(JoinHandle::join);
    }
}

/// Returns the options of the guests that these suites use, one for each kind, if there are guests
/// of several kinds.
fn needed(suites: &[(&str, Suite)]) -> Vec<Options> {
    let with_guests = |suite: &Suite| suite.cases.iter().any(|it| matches!(it.run, Run::Pair(_)));
    let mut suites: Vec<_> = suites.iter().map(|(_, suite)| suite).collect();
    suites.retain(|suite| !suite.alone && with_guests(suite));
    suites.dedup_by_key(|suite| suite.guests());
    if suites.len() < 2 {
        return Vec::new();
    }
    suites.into_iter().map(|suite| suite.options.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Case;
    use super::*;

    #[test]
    fn each_kind_of_guests_needs_one_snapshot() {
        let of = |cpus, case: Case| {
            ("suite", Suite::new(Options { cpus, ..Options::default() }, vec![case]))
        };
        let with = || Case::new("case", |_| Ok(()));
        let without = || Case::alone("case", || Ok(()));
        let alone = ("alone", Suite::alone(vec![without()]));
        let suites = [of(1, with()), of(1, with()), of(2, with()), of(4, without()), alone];
        let cpus: Vec<_> = needed(&suites).iter().map(|options| options.cpus).collect();
        assert_eq!(cpus, [1, 2]);
        assert!(needed(&suites[..2]).is_empty(), "the only guests wait for it in any case");
    }
}
