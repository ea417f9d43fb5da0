//! The log of a guest's console.

use std::fs;
use std::path::Path;

/// Number of lines from a fault on that describe it.
const TELLING: usize = 12;

/// Returns the last lines of a file, or an empty text if it cannot be read.
#[must_use]
pub fn tail(file: &Path, lines: usize) -> String {
    let text = read(file);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Returns the first lines of the first fault, if the kernel has panicked.
#[must_use]
pub fn panic(file: &Path) -> Option<String> {
    first_fault(&read(file))
}

fn read(file: &Path) -> String {
    String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned()
}

fn first_fault(log: &str) -> Option<String> {
    const PANIC: &str = "Kernel panic";
    const FAULTS: [&str; 4] = ["Oops", "BUG:", "general protection", PANIC];
    log.contains(PANIC).then(|| {
        let fault = |line: &&str| FAULTS.iter().any(|fault| line.contains(fault));
        let lines = log.lines().skip_while(|line| !fault(line)).take(TELLING);
        lines.collect::<Vec<_>>().join("\n")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_begins_with_its_first_fault() {
        let fault = "[    2.6] Oops: int3: 0000 [#1] SMP NOPTI\n[    2.6] CPU: 1";
        let panic = "[    2.7] Kernel panic - not syncing: Fatal exception in interrupt";
        let log = format!("[    1.0] booting\n{fault}\n{panic}");
        assert_eq!(first_fault(&log), Some(format!("{fault}\n{panic}")));
        assert_eq!(first_fault(&format!("[    1.0] booting\n{panic}")), Some(panic.to_owned()));
        assert_eq!(first_fault(fault), None);
        assert_eq!(first_fault(""), None);
    }
}
