//! The names of guests, as programs look them up in `/etc/hosts`.

use std::fmt::Write;

use crate::adapter::{address, name};

/// The path in the guests of the table.
pub(crate) const FILE: &str = "/etc/hosts";
/// The path in the guests of [`COMPLETING`].
pub(crate) const SCRIPT: &str = "/vrnic/hosts";
/// The script that adds the table to that of another root, whose path is its argument.
pub(crate) const COMPLETING: &str = include_str!("hosts.sh");

/// Returns the table for guests of this number, each with so many adapters: the names of the guest
/// itself, and those of all adapters, the first of which has the name of its guest.
#[must_use]
pub fn table(guests: u8, adapters: u8) -> String {
    let mut text = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n".to_owned();
    for guest in 0..guests {
        for rail in 0..adapters.max(1) {
            // A string takes all text.
            let _infallible = writeln!(text, "{} {}", address(guest, rail), name(guest, rail));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::{fs, io};

    use super::*;

    /// Completes the table of a root that has this one, and returns it.
    fn completed(theirs: Option<&str>) -> io::Result<String> {
        let folder = tempfile::tempdir()?;
        let at = |name: &str| folder.path().join(name);
        fs::write(at("ours"), table(2, 1))?;
        if let Some(theirs) = theirs {
            fs::write(at("theirs"), theirs)?;
        }
        let script = COMPLETING.replace(FILE, &at("ours").to_string_lossy());
        let status = Command::new("sh").args(["-c", &script, "sh"]).arg(at("theirs")).status()?;
        assert!(status.success());
        fs::read_to_string(at("theirs"))
    }

    #[test]
    fn each_adapter_has_a_name() {
        let text = table(2, 2);
        let lines: Vec<_> = text.lines().skip(2).collect();
        assert_eq!(lines, ["10.9.0.1 a", "10.9.1.1 a1", "10.9.0.2 b", "10.9.1.2 b1"]);
    }

    /// Shows: tools: a root of guests keeps its own names of hosts
    #[test]
    fn a_root_keeps_its_own_names() -> io::Result<()> {
        assert_eq!(completed(None)?, table(2, 1));
        assert_eq!(completed(Some(""))?, table(2, 1));
        // Comments, longer names, and a last line without an end.
        let own = "# names of b\n127.0.0.1\tlocalhost\n10.1.1.1 host-b a.org a # mine";
        assert_eq!(completed(Some(own))?, format!("{own}\n10.9.0.2 b\n"));
        Ok(())
    }

    #[test]
    fn a_link_is_not_followed() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let (link, file) = (folder.path().join("link"), folder.path().join("file"));
        fs::write(&file, "")?;
        std::os::unix::fs::symlink(&file, &link)?;
        let status = Command::new("sh").args(["-c", COMPLETING, "sh"]).arg(&link).status()?;
        assert!(status.success() && fs::read_to_string(&file)?.is_empty());
        Ok(())
    }
}
