//! Checks whether this host can run programs with adapters.

use std::fmt::Write as _;
use std::fs;

use rustix::system::uname;

use crate::run::{Options, is_inside, run};
use crate::supervisor::plugin;

/// The oldest kernel, from which on a descriptor can be the answer to a system call
/// (`SECCOMP_ADDFD_FLAG_SEND`).
const KERNEL: (u32, u32) = (5, 14);
/// The largest setting of Yama with which an ancestor may access the memory of its descendants
/// (Documentation/admin-guide/LSM/Yama.rst in the kernel).
const YAMA: u32 = 1;

/// Returns a report on this host, and whether it can run programs with adapters.
#[must_use]
pub fn check() -> (String, bool) {
    let mut report = String::new();
    let mut fits = true;
    let checks = [kernel(), yama(), plugin::find().map(|path| path.display().to_string()), trial()];
    for (what, result) in ["kernel", "tracing", "plugin", "trial"].iter().zip(checks) {
        fits &= result.is_ok();
        let text = result.unwrap_or_else(|error| format!("NO: {error:#}"));
        // Writing to a string does not fail.
        let _written = writeln!(report, "{what}: {text}");
    }
    (report, fits)
}

fn kernel() -> anyhow::Result<String> {
    let system = uname();
    let release = system.release().to_string_lossy().into_owned();
    match version(&release) {
        Some(version) if version < KERNEL => {
            anyhow::bail!(
                "Linux {release} is too old. It must be {}.{} or later",
                KERNEL.0,
                KERNEL.1
            )
        }
        _ => Ok(format!("Linux {release}")),
    }
}

/// Returns the two first numbers of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn yama() -> anyhow::Result<String> {
    let Ok(text) = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope") else {
        return Ok("not restricted".to_owned());
    };
    let setting: u32 = text.trim().parse()?;
    if setting > YAMA {
        anyhow::bail!(
            "kernel.yama.ptrace_scope is {setting}: the memory of programs cannot be accessed. Set \
             it to {YAMA}, or use a guest"
        );
    }
    Ok(format!("kernel.yama.ptrace_scope is {setting}"))
}

/// Runs a program that looks for an adapter.
fn trial() -> anyhow::Result<String> {
    if is_inside() {
        return Ok("this is below another vrnic exec, which has the adapters".to_owned());
    }
    let script = "test -c /dev/infiniband/uverbs0 && test -d /sys/class/infiniband/vrnic0";
    let arguments = ["-c", script].map(Into::into).to_vec();
    let options = Options { adapters: 1, program: "sh".into(), arguments, ..Options::default() };
    match run(&options)?.status() {
        0 => Ok("a program has found an adapter".to_owned()),
        status => anyhow::bail!("a program has found no adapter (exit status {status})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        assert_eq!(version("6.1.0-13-amd64"), Some((6, 1)));
        assert!(version("5.4.0-rc1") < Some(KERNEL) && version("10.0") > Some(KERNEL));
        assert_eq!(version("Darwin"), None);
    }
}
