//! The native harness, `vrnic-bench`: the daemon measured without a guest, as a program of its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use vrnic_figures::Figure;
use vrnic_qemu::machine::process::Killed;

/// Results of the harness.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Native {
    pub(crate) figures: BTreeMap<Figure, f64>,
    /// Latencies: lists of counts.
    #[serde(default)]
    pub(crate) histograms: Map<String, Value>,
    /// The harness's own table.
    #[serde(skip)]
    pub(crate) table: String,
}

/// Runs the harness `program` with `options`. It is ended after `timeout`.
pub(crate) fn measure(
    program: &Path,
    options: &[&str],
    timeout: Duration,
) -> anyhow::Result<Native> {
    let folder = tempfile::tempdir()?;
    let (json, table) = (folder.path().join("json"), folder.path().join("table"));
    let mut command = Command::new(program);
    command.args(options).arg("--json").arg(&json);
    command.stdin(Stdio::null()).stdout(fs::File::create(&table)?);
    let mut harness = Killed::start(command)
        .with_context(|| format!("cannot start the harness {}", program.display()))?;
    let end = Instant::now() + timeout;
    let status = loop {
        match harness.child().try_wait()? {
            Some(status) => break status,
            None if Instant::now() < end => std::thread::sleep(Duration::from_millis(50)),
            None => {
                harness.kill_group();
                bail!("{} did not end within {timeout:?}", program.display());
            }
        }
    };
    ensure!(status.success(), "{} ended with {status}", program.display());
    let text = fs::read_to_string(&json)?;
    let native: Native =
        serde_json::from_str(&text).context("the harness's JSON is not as expected")?;
    Ok(Native { table: fs::read_to_string(&table)?, ..native })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use vrnic_figures::{Operation, Quantity, Subject};

    use super::*;

    fn program(folder: &Path, script: &str) -> std::io::Result<PathBuf> {
        let path = folder.join("harness");
        fs::write(&path, format!("#!/bin/sh\n{script}\n"))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(path)
    }

    #[test]
    fn json_and_table_are_taken() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let script =
            r#"echo table; echo '{"figures": {"64 KiB Read, GB/s": 2.5}, "ratios": {}}' > "$3""#;
        let native = measure(&program(folder.path(), script)?, &["-x"], Duration::from_secs(20))?;
        let figure = Figure(Subject::Large(64, Operation::Read), Quantity::Gigabytes);
        assert_eq!((native.figures[&figure], &*native.table), (2.5, "table\n"));
        Ok(())
    }

    #[test]
    fn a_failing_or_hanging_harness_is_an_error() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let failing = program(folder.path(), "exit 3")?;
        assert!(measure(&failing, &[], Duration::from_secs(20)).is_err());
        let hanging = program(folder.path(), "sleep 60 & wait")?;
        let start = Instant::now();
        assert!(measure(&hanging, &[], Duration::from_millis(100)).is_err());
        assert!(start.elapsed() < Duration::from_secs(20));
        Ok(())
    }
}
