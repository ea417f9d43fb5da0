//! Many functions on four daemons, with a trunk between any two daemons. Each function has a
//! connection to every other function; one in a hundred of the connections is active.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;
use vrnic_abi::admin::Opcode as Admin;
use vrnic_abi::cq::Status;
use vrnic_abi::qp::Attr;
use vrnic_abi::sq::{Flags, Opcode};
use vrnic_abi::uar::SLOTS;
use vrnic_figures::Quantity::{self, Count, KiB};
use vrnic_figures::Subject;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::memory::Ram;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::vmm::daemon::Daemon;
use vrnic_testdriver::vmm::vfio::{Endpoint, Guest};
use vrnic_testdriver::wr::Wr;

use crate::idle::{Maker, TAKEN};
use crate::report::Report;

const DAEMONS: usize = 4;
/// Memory of a guest.
const RAM: u64 = 64 << 20;
/// One in this many connections is active.
const ACTIVE: usize = 100;
/// Bytes of a request of an active connection.
const LEN: u32 = 4096;
/// Time between two requests of an active connection.
const PERIOD: Duration = Duration::from_millis(50);
/// Duration of a measurement of processor time.
const SPAN: Duration = Duration::from_secs(10);
/// Clock ticks per second in /proc.
const TICKS: f64 = 100.0;

/// Measures processor time, memory and descriptors of the daemons.
///
/// # Errors
/// When the daemons do not come up, or an operation fails.
pub(crate) fn measure(report: &mut Report, program: &Path, functions: usize) -> anyhow::Result<()> {
    ensure!(
        functions >= DAEMONS && functions.is_multiple_of(DAEMONS),
        "functions: a multiple of 4"
    );
    raise_limit()?;
    let mesh = Mesh::start(program, functions)?;
    let each = functions as f64;
    report.figure(Subject::FunctionMemory, KiB, mesh.memory()? / each / 1024.0);
    report.figure(Subject::FunctionDescriptors, Count, mesh.descriptors()? / each);
    let before = mesh.memory()?;
    let start = Instant::now();
    let mut flows = mesh.connect()?;
    let connections = functions * (functions - 1) / 2;
    report.figure(Subject::Connections, Count, connections as f64);
    report.figure(Subject::ActiveConnections, Count, flows.len() as f64);
    report.figure(Subject::ConnectTime, Quantity::Seconds, start.elapsed().as_secs_f64());
    let grown = (mesh.memory()? - before).max(0.0);
    report.figure(Subject::EndMemory, Quantity::Bytes, grown / connections as f64 / 2.0);
    report.figure(Subject::ConnectedMemory, KiB, mesh.memory()? / each / 1024.0);
    let idle = mesh.processors(|| std::thread::sleep(SPAN))?;
    report.figure(Subject::IdleProcessors, Count, idle);
    let mut done = 0;
    let busy = mesh.processors(|| done = run(&mut flows))?;
    let rate = f64::from(done) / SPAN.as_secs_f64();
    report.figure(Subject::ActiveWrites, Quantity::Thousands, rate / 1e3);
    report.figure(Subject::ActiveProcessors, Count, busy);
    let failed = flows.iter().filter(|flow| flow.failed).count();
    report.figure(Subject::FailedConnections, Count, failed as f64);
    report.figure(Subject::ConnectedDescriptors, Count, mesh.descriptors()? / each);
    Ok(())
}

/// Raises this process's limit of open descriptors to the allowed maximum.
fn raise_limit() -> anyhow::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

/// An active connection.
struct Flow {
    from: Endpoint,
    to: Endpoint,
    /// Number of requests that have not completed.
    open: u32,
    /// True if a request has failed, and with it the connection.
    failed: bool,
}

/// A function's guest, and the objects that its idle QPs use.
struct Station {
    guest: Guest,
    base: Endpoint,
    maker: Maker,
    /// The UAR of the next idle QP, and its free slots.
    uar: (u32, u32),
}

/// The daemons and their guests.
struct Mesh {
    daemons: Vec<Daemon>,
    guests: Vec<Guest>,
    _folder: TempDir,
}

impl Mesh {
    fn start(program: &Path, functions: usize) -> anyhow::Result<Self> {
        let folder = TempDir::new()?;
        let share = functions / DAEMONS;
        let daemons = (0..DAEMONS).map(|own| {
            let uplinks = (0..DAEMONS).filter(|other| *other != own).map(|other| {
                let (end, pair) =
                    if own < other { ("listen", [own, other]) } else { ("connect", [other, own]) };
                let path = folder.path().join(format!("{}-{}", pair[0], pair[1]));
                format!("name=to{other},{end}={}", path.display())
            });
            let uplinks: Vec<String> = uplinks.collect();
            let mut args = vec!["--workers", "1"];
            args.extend(uplinks.iter().flat_map(|uplink| ["--uplink", uplink]));
            Daemon::start_range(program, own * share..(own + 1) * share, &args)
        });
        let daemons = daemons.collect::<anyhow::Result<Vec<_>>>()?;
        for (own, daemon) in daemons.iter().enumerate() {
            for other in (0..DAEMONS).filter(|other| *other != own) {
                daemon.wait_for_log(&format!("link up port=\"to{other}\""));
            }
        }
        let guest = |index: usize| {
            let daemon = daemons.get(index / share).context("a daemon")?;
            Ok(daemon.ready_guest_with(index, Arc::new(Ram::new(RAM))))
        };
        let guests = (0..functions).map(guest).collect::<anyhow::Result<_>>()?;
        Ok(Self { daemons, guests, _folder: folder })
    }

    /// Connects each function to every other one. Returns the active connections.
    fn connect(&self) -> anyhow::Result<Vec<Flow>> {
        let stations = self.guests.iter().map(Station::new);
        let mut stations = stations.collect::<anyhow::Result<Vec<_>>>()?;
        let count = stations.len();
        let pairs = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b)));
        let mut flows = Vec::new();
        for (number, (a, b)) in pairs.enumerate() {
            let (first, second) = stations.split_at_mut(b);
            let (Some(a), Some(b)) = (first.get_mut(a), second.first_mut()) else { continue };
            if number.is_multiple_of(ACTIVE) {
                flows.push(Flow::new(&a.guest, &b.guest));
                continue;
            }
            let ends = [a.create()?, b.create()?];
            a.maker.connect(&a.base, ends[0], b.guest.mac(), ends[1])?;
            b.maker.connect(&b.base, ends[1], a.guest.mac(), ends[0])?;
        }
        Ok(flows)
    }

    fn sum(&self, of: impl Fn(PathBuf) -> anyhow::Result<f64>) -> anyhow::Result<f64> {
        let folders = self.daemons.iter().map(|daemon| format!("/proc/{}", daemon.pid()).into());
        folders.map(of).sum()
    }

    /// Returns the private memory of all daemons in bytes.
    fn memory(&self) -> anyhow::Result<f64> {
        self.sum(|folder| {
            let text = fs::read_to_string(folder.join("status"))?;
            let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
            let kib: f64 = line.context("RssAnon")?.trim().trim_end_matches(" kB").parse()?;
            Ok(kib * 1024.0)
        })
    }

    /// Returns the number of open descriptors of all daemons.
    fn descriptors(&self) -> anyhow::Result<f64> {
        self.sum(|folder| Ok(fs::read_dir(folder.join("fd"))?.count() as f64))
    }

    /// Returns how many processors all daemons use on average during `run`.
    fn processors(&self, run: impl FnOnce()) -> anyhow::Result<f64> {
        let used = || {
            self.sum(|folder| {
                let text = fs::read_to_string(folder.join("stat"))?;
                // The 12th and 13th fields after the name are the user time and the system time.
                let (_, fields) = text.rsplit_once(')').context("stat")?;
                let times = fields.split_whitespace().skip(11).take(2);
                let times = times.map(|time| Ok(time.parse::<f64>()?));
                Ok(times.sum::<anyhow::Result<f64>>()? / TICKS)
            })
        };
        let (before, start) = (used()?, Instant::now());
        run();
        Ok((used()? - before) / start.elapsed().as_secs_f64())
    }
}

impl Station {
    fn new(guest: &Guest) -> anyhow::Result<Self> {
        let setup = Setup { region: 4096, ..Setup::default() };
        let base = Endpoint::new(guest, setup);
        let maker = Maker::new(&base);
        let uar = (base.uar, SLOTS - TAKEN);
        Ok(Self { guest: guest.clone(), base, maker, uar })
    }

    /// Creates a QP that is going to be idle.
    fn create(&mut self) -> anyhow::Result<u32> {
        if self.uar.1 == 0 {
            let uar = self.base.guest.on_object(Admin::AllocUar, self.base.context)?;
            self.uar = (uar, SLOTS);
        }
        self.uar.1 -= 1;
        self.maker.create(&self.base, self.uar.0)
    }
}

impl Flow {
    fn new(from: &Guest, to: &Guest) -> Self {
        let setup = Setup { region: 1 << 16, log_wqes: 6, log_stride: 7, ..Setup::default() };
        let flow = Self {
            from: Endpoint::new(from, setup),
            to: Endpoint::new(to, setup),
            open: 0,
            failed: false,
        };
        // The retries last for seconds, because the processors may be busy.
        let tune = |attr: &mut Attr| (attr.timeout, attr.retry_cnt) = (17, 7);
        flow.from.connect(to.mac(), flow.to.qpn, tune);
        flow.to.connect(from.mac(), flow.from.qpn, tune);
        flow
    }
}

/// Posts a request to each connection once a period. Returns how many have completed.
fn run(flows: &mut [Flow]) -> u32 {
    let start = Instant::now();
    let (mut done, mut next) = (0, start);
    while start.elapsed() < SPAN {
        for flow in &mut *flows {
            // A connection that is late sends one request less.
            if flow.open < 16 && !flow.failed {
                let own = flow.from.sge(0, LEN);
                let write = Wr::new(Opcode::Write, &[own]).to(flow.to.buffer, flow.to.key);
                flow.from.post_send(&write.flags(Flags::SIGNALED));
                flow.open += 1;
            }
            while let Some(cqe) = flow.from.send_cq.poll() {
                flow.open -= 1;
                let status = status(&cqe);
                if status != Status::Success && !flow.failed {
                    eprintln!("a connection has failed after {:.1?}: {status:?}", start.elapsed());
                    flow.failed = true;
                }
                done += u32::from(!flow.failed);
            }
        }
        next += PERIOD;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    done
}
