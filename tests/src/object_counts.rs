//! Leak check: objects in use, counted at three levels. Equal counts before and after a case show
//! that nothing is left.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::Pair;

use crate::commands::SHORT_TIMEOUT;

/// Number of times that objects are counted.
const TRIES: u32 = 15;
/// Time in which the kernel and the daemon end what programs have left.
const SETTLING: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Counts of one guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectCounts {
    /// Counts of the kernel's RDMA core: `rdma resource show` without the number of the device.
    pub core: String,
    /// Lines of the driver's tree of events: processors, CQs, QPs.
    pub driver: u64,
    /// Pages that the kernel has pinned for devices, without those that it has unpinned.
    pub pinned: i64,
    /// Counts of its adapters: objects, doorbell pages, device memory, page addresses, groups.
    pub adapters: BTreeMap<String, u64>,
}

impl ObjectCounts {
    /// Counts until two results are the same: a worker of the daemon is the last user of a queue
    /// and its memory, and may have to wait for a processor.
    pub fn take(pair: &Pair, guest: &Guest) -> Result<Self> {
        let mut last = Self::count_once(pair, guest)?;
        for _ in 0..TRIES {
            sleep(POLL_INTERVAL);
            let now = Self::count_once(pair, guest)?;
            if now == last {
                break;
            }
            last = now;
        }
        Ok(last)
    }

    /// Counts the objects once.
    fn count_once(pair: &Pair, guest: &Guest) -> Result<Self> {
        let core = guest.check("rdma resource show | sed 's/^[0-9]*: //' | sort", SHORT_TIMEOUT)?;
        let driver = guest.check("cat /sys/kernel/debug/vrnic-*/events | wc -l", SHORT_TIMEOUT)?;
        // Each processor has separate counts. Reading stat_refresh adds them up.
        let pinned = "cat /proc/sys/vm/stat_refresh; \
                      awk '/^nr_foll_pin_acquired/ { n += $2 } \
                      /^nr_foll_pin_released/ { n -= $2 } END { print n }' /proc/vmstat";
        let pinned = guest.check(pinned, SHORT_TIMEOUT)?;
        let mut adapters = BTreeMap::new();
        for adapter in guest.setup().adapters() {
            let functions: Value = serde_json::from_str(&pair.function(&adapter.name)?)?;
            let objects: BTreeMap<String, u64> =
                serde_json::from_value(functions[0]["objects"].clone())
                    .with_context(|| format!("objects of adapter {}", adapter.name))?;
            for (kind, count) in objects {
                *adapters.entry(kind).or_default() += count;
            }
        }
        Ok(Self { core, driver: driver.trim().parse()?, pinned: pinned.trim().parse()?, adapters })
    }

    /// Counts until the result is the same as before, for half a minute.
    pub fn unchanged(&self, pair: &Pair, guest: &Guest) -> Result<()> {
        self.unchanged_within(pair, guest, SETTLING)
    }

    /// Counts until the result is the same as before, for `timeout`.
    pub fn unchanged_within(&self, pair: &Pair, guest: &Guest, timeout: Duration) -> Result<()> {
        let end = Instant::now() + timeout;
        loop {
            let late = Instant::now() > end;
            let now = Self::count_once(pair, guest)?;
            if now == *self {
                return Ok(());
            }
            ensure!(!late, "before {self:#?}\nafter {now:#?}");
            sleep(POLL_INTERVAL);
        }
    }

    /// Returns one of the adapters' counts.
    #[must_use]
    pub fn of(&self, kind: &str) -> u64 {
        self.adapters.get(kind).copied().unwrap_or_default()
    }
}
