//! The configuration of the kernel with KASAN and lockdep.
//!
//! Shows: tools

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, ensure};
use vrnic_tests::repository::script::top;

/// What suites need that is not Debian's default for every kernel. A kernel without it would fail
/// their cases after a build of many minutes.
const NEEDS: [(&str, &[&str]); 6] = [
    ("module", &["SLUB_DEBUG", "SUSPEND", "PM_DEBUG"]),
    (
        "paging",
        &[
            "BLK_DEV_RAM",
            "CGROUPS",
            "FUSE_FS",
            "MEMCG",
            "STACKTRACE",
            "SWAP",
            "TRANSPARENT_HUGEPAGE",
            "USERFAULTFD",
            "VM_EVENT_COUNTERS",
        ],
    ),
    ("iwarp", &["BRIDGE", "DUMMY", "MACVLAN", "NET_NS", "VLAN_8021Q"]),
    ("toe", &["INET_TCP_DIAG", "NET_SCH_NETEM"]),
    (
        "iscsi",
        &[
            "BLK_DEV_INTEGRITY",
            "BLK_DEV_SD",
            "CONFIGFS_FS",
            "EXT4_FS",
            "ISCSI_TARGET",
            "NET_SCH_NETEM",
            "SCSI_DEBUG",
            "TCM_FILEIO",
            "TCM_IBLOCK",
        ],
    ),
    ("storage", &["CRYPTO_MD5", "EXT4_FS", "ISCSI_TARGET", "ISCSI_TCP", "TCM_FILEIO"]),
];

/// Shows: tools: the kernel with KASAN has what the suites need that run in it
#[test]
fn the_debug_kernel_has_what_its_suites_need() -> Result<()> {
    let top = top()?;
    let config = fs::read_to_string(top.join("qemu/debug.config"))?;
    let set: BTreeSet<&str> = config
        .lines()
        .filter_map(|line| line.strip_prefix("CONFIG_")?.split_once('='))
        .filter(|(_, value)| matches!(*value, "y" | "m"))
        .map(|(name, _)| name)
        .collect();
    let script = fs::read_to_string(top.join("scripts/test"))?;
    let list = script.lines().find_map(|line| line.split_once("[ $# -gt 0 ] || set -- module "));
    let (_, others) = list.context("scripts/test has no list of suites for the debug kernel")?;
    for (suite, needs) in NEEDS {
        ensure!(
            suite == "module" || others.split(' ').any(|name| name == suite),
            "scripts/test --debug does not run {suite} by default"
        );
        let missing: Vec<_> = needs.iter().filter(|name| !set.contains(*name)).collect();
        ensure!(missing.is_empty(), "qemu/debug.config lacks {missing:?}, which {suite} needs");
    }
    Ok(())
}
