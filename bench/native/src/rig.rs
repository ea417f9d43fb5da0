//! One daemon or two with two guests, and a connected pair of endpoints on them.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use vrnic_abi::qp::{Attr, Type};
use vrnic_adapter::limits::MAX_RD_ATOMIC;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::stream;
use vrnic_testdriver::vmm::daemon::Daemon;
use vrnic_testdriver::vmm::relay::{Answer, Relay};
use vrnic_testdriver::vmm::vfio::{Endpoint, Guest};

/// log2 of the entries of the queues.
pub(crate) const LOG_WQES: u8 = 8;

/// Two enabled functions, of one daemon or of two.
pub(crate) struct Rig {
    pub(crate) guests: [Guest; 2],
    daemons: Vec<Daemon>,
    /// Folders in /proc of the first worker thread of each daemon.
    workers: Vec<PathBuf>,
    /// The VMM of the first function, if it answers requests of the daemon.
    _relay: Option<Relay>,
}

impl Rig {
    /// Starts a daemon with this many workers.
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
        Self::one_daemon(program, &args)
    }

    /// Starts a daemon with these arguments.
    ///
    /// # Errors
    /// When it does not come up.
    pub(crate) fn one_daemon(program: &Path, args: &[&str]) -> anyhow::Result<Self> {
        Self::one_daemon_of(program, "roce", args)
    }

    /// Starts a daemon with functions of this personality.
    ///
    /// # Errors
    /// When it does not come up.
    pub(crate) fn one_daemon_of(
        program: &Path,
        personality: &str,
        args: &[&str],
    ) -> anyhow::Result<Self> {
        let daemon = start(program, 0..2, personality, args)?;
        let guests = [daemon.ready_guest(0), daemon.ready_guest(1)];
        Self::of(guests, vec![daemon])
    }

    /// Starts a daemon with these arguments, whose requests to the VMM of the first function are
    /// answered so.
    ///
    /// # Errors
    /// When it does not come up.
    pub(crate) fn with_answers(
        program: &Path,
        args: &[&str],
        answer: Arc<Answer>,
    ) -> anyhow::Result<Self> {
        let daemon = start(program, 0..2, "roce", args)?;
        let relay = Relay::start(&daemon.socket(0), answer)?;
        let guests = [daemon.ready_guest_behind(0, &relay), daemon.ready_guest(1)];
        Ok(Self { _relay: Some(relay), ..Self::of(guests, vec![daemon])? })
    }

    /// Starts two daemons, each with its arguments, which give it an uplink `up`.
    ///
    /// # Errors
    /// When one does not come up.
    pub(crate) fn two_daemons(program: &Path, args: [&[&str]; 2]) -> anyhow::Result<Self> {
        Self::two_daemons_of(program, "roce", args)
    }

    /// Starts two daemons as [`Self::two_daemons`] does, with functions of this personality.
    ///
    /// # Errors
    /// When one does not come up.
    pub(crate) fn two_daemons_of(
        program: &Path,
        personality: &str,
        args: [&[&str]; 2],
    ) -> anyhow::Result<Self> {
        let first = start(program, 0..1, personality, args[0])?;
        let second = start(program, 1..2, personality, args[1])?;
        let daemons = vec![first, second];
        daemons.iter().for_each(|daemon| daemon.wait_for_log("link up port=\"up\""));
        let guests = [daemons[0].ready_guest(0), daemons[1].ready_guest(1)];
        Self::of(guests, daemons)
    }

    fn of(guests: [Guest; 2], daemons: Vec<Daemon>) -> anyhow::Result<Self> {
        let workers = daemons.iter().map(first_worker).collect::<anyhow::Result<_>>()?;
        Ok(Self { guests, daemons, workers, _relay: None })
    }

    /// Returns the processor time of the first workers so far in ns (first field of
    /// /proc/.../schedstat).
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub(crate) fn worker_time(&self) -> anyhow::Result<u64> {
        let time = |worker: &PathBuf| -> anyhow::Result<u64> {
            let text = fs::read_to_string(worker.join("schedstat"))?;
            Ok(text.split(' ').next().context("schedstat")?.parse()?)
        };
        self.workers.iter().map(time).sum()
    }

    /// Returns the private memory of the first daemon in bytes.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub(crate) fn memory(&self) -> anyhow::Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.daemons[0].pid()))?;
        let line =
            text.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("RssAnon")?;
        let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kib << 10)
    }
}

/// Starts a daemon with the functions of these numbers.
fn start(
    program: &Path,
    functions: Range<usize>,
    personality: &str,
    args: &[&str],
) -> anyhow::Result<Daemon> {
    Daemon::start_of(program, functions, personality, args)
        .with_context(|| format!("daemon {} (see --daemon)", program.display()))
}

fn first_worker(daemon: &Daemon) -> anyhow::Result<PathBuf> {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid()))?;
    let is_worker = |task: &PathBuf| {
        fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "worker-0")
    };
    let worker = tasks.filter_map(Result::ok).map(|task| task.path()).find(is_worker);
    worker.context("worker thread of the daemon")
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
        let pair = Self::apart(rig, setup);
        let (a, b) = (&pair.a, &pair.b);
        // As many READs at a time as the adapter allows, as perftest asks for.
        // CAST: it is 128.
        let reads = MAX_RD_ATOMIC as u8;
        let tune = |attr: &mut Attr| {
            (attr.max_rd_atomic, attr.max_dest_rd_atomic) = (reads, reads);
            // For memory that the VMM reads and writes, without a limit.
            attr.rnr_retry = 7;
        };
        a.connect(b.guest.mac(), b.qpn, tune);
        b.connect(a.guest.mac(), a.qpn, tune);
        pair
    }

    /// Creates a pair whose messages travel in a TCP connection, in segments of at most `mss`
    /// bytes.
    pub(crate) fn in_stream(rig: &Rig, mss: u16) -> Self {
        let pair = Self::apart(rig, Setup::default());
        stream::connect_pair_with(&pair.a, &pair.b, mss);
        pair
    }

    /// Creates a pair with a TCP connection that carries bytes, in segments of at most `mss` bytes.
    pub(crate) fn of_bytes(rig: &Rig, mss: u16) -> Self {
        let pair = Self::apart(rig, Setup { kind: Type::Toe, ..Setup::default() });
        stream::connect_toes_with(&pair.a, &pair.b, mss);
        pair
    }

    /// Creates the endpoints.
    pub(crate) fn apart(rig: &Rig, setup: Setup) -> Self {
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
        pair
    }
}
