//! The daemon with two guests, and a connected pair of endpoints on them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use vrnic_testdriver::daemon::Daemon;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::vfio::{Endpoint, Guest};

/// log2 of the entries of the queues.
pub(crate) const LOG_WQES: u8 = 8;

/// A daemon with two enabled functions.
pub(crate) struct Rig {
    pub(crate) guests: [Guest; 2],
    daemon: Daemon,
    /// Folder of the worker thread in /proc.
    worker: PathBuf,
}

impl Rig {
    /// Starts the daemon with this many workers.
    ///
    /// # Errors
    /// When it does not come up.
    pub(crate) fn start(
        program: &Path,
        workers: usize,
        pin: Option<usize>,
    ) -> anyhow::Result<Self> {
        let (workers, pin) = (workers.to_string(), pin.map(|cpu| cpu.to_string()));
        let mut args = vec!["--workers", workers.as_str()];
        args.extend(pin.iter().flat_map(|cpu| ["--pin", cpu.as_str()]));
        let daemon = Daemon::start(program, 2, &args)
            .with_context(|| format!("daemon {} (see --daemon)", program.display()))?;
        let guests = [daemon.ready_guest(0), daemon.ready_guest(1)];
        let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid()))?;
        let is_worker = |task: &PathBuf| {
            fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "worker-0")
        };
        let worker = tasks.filter_map(Result::ok).map(|task| task.path()).find(is_worker);
        Ok(Self { guests, daemon, worker: worker.context("worker thread of the daemon")? })
    }

    /// Processor time of the worker so far in ns (first field of /proc/.../schedstat).
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub(crate) fn worker_time(&self) -> anyhow::Result<u64> {
        let text = fs::read_to_string(self.worker.join("schedstat"))?;
        Ok(text.split(' ').next().context("schedstat")?.parse()?)
    }

    /// Private memory of the daemon in bytes.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub(crate) fn memory(&self) -> anyhow::Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.daemon.pid()))?;
        let line =
            text.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("RssAnon")?;
        let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kib << 10)
    }
}

/// Two connected endpoints; `a` posts.
pub(crate) struct Pair {
    pub(crate) a: Endpoint,
    pub(crate) b: Endpoint,
}

impl Pair {
    /// Makes and connects them.
    pub(crate) fn new(rig: &Rig, in_device: bool) -> Self {
        Self::with(rig, Setup { in_device, ..Setup::default() })
    }

    /// Creates the pair as `setup` says.
    pub(crate) fn with(rig: &Rig, setup: Setup) -> Self {
        let setup = Setup {
            region: 1 << 20,
            log_cqes: LOG_WQES,
            log_wqes: LOG_WQES,
            log_stride: 7,
            ..setup
        };
        let [first, second] = &rig.guests;
        let pair = Self { a: Endpoint::new(first, setup), b: Endpoint::new(second, setup) };
        // Pages exist before anything is timed.
        let bytes = vec![1; 1 << 20];
        pair.a.fill(0, &bytes);
        pair.b.fill(0, &bytes);
        Endpoint::connect_pair(&pair.a, &pair.b);
        pair
    }
}
