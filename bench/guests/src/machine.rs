//! The machine and the guests that figures are from.

use std::fs;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use vrnic_qemu::pair::Pair;

/// The machine that the figures belong to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// Model of the processor.
    pub(crate) processor: String,
    /// Processors that this process may use.
    pub(crate) processors: usize,
    /// The host's kernel.
    pub(crate) kernel: String,
    /// Load average of the last minute before the run: others that compute disturb the figures.
    pub(crate) load: f64,
    /// The accelerator of the guests.
    pub(crate) accelerator: String,
    /// The release of the guests' kernel.
    pub(crate) guest_kernel: String,
    /// The commit that is measured, and its date, if `VRNIC_COMMIT` says it.
    #[serde(default)]
    pub(crate) commit: Option<String>,
}

impl Machine {
    /// Reads the properties of this machine. Must be called before the guests load it.
    pub(crate) fn detect() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model =
            cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
        Self {
            commit: std::env::var("VRNIC_COMMIT").ok(),
            processor: model.unwrap_or("unknown").to_owned(),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|load| load.parse().ok())
                .unwrap_or_default(),
            ..Self::default()
        }
    }

    /// Adds what is known of the guests.
    pub(crate) fn guests(&mut self, pair: &Pair) -> anyhow::Result<()> {
        self.accelerator = format!("{:?}", pair.accel()).to_uppercase();
        let release = pair.a.agent().check("uname -r", Duration::from_secs(20))?;
        release.trim().clone_into(&mut self.guest_kernel);
        Ok(())
    }
}
