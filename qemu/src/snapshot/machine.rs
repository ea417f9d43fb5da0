//! The name of a snapshot, made of all that its machine consists of.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use anyhow::{Context, Result};

use crate::machine::accel::Accel;
use crate::machine::paths::Paths;
use crate::modules::LOAD_RDMA;
use crate::roots::overlay::start_bytes;
use crate::setup::Setup;

/// Returns the name of the file of the snapshot that is made of this guest.
///
/// # Errors
/// If a part of the machine is missing.
pub(super) fn name(paths: &Paths, accel: Accel, template: &Setup) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    // The arguments of QEMU do not contain paths, except for that of the kernel.
    template.arguments().hash(&mut hasher);
    template.boot_line().parameters().hash(&mut hasher);
    accel.arguments().hash(&mut hasher);
    LOAD_RDMA.hash(&mut hasher);
    start_bytes(paths)?.hash(&mut hasher);
    let kernel = template.image.clone().unwrap_or_else(|| paths.kernel());
    for file in [&kernel, &paths.base_image(), &paths.qemu()] {
        file_state(file)?.hash(&mut hasher);
    }
    if accel == Accel::Kvm {
        processor().hash(&mut hasher);
        fs::read_to_string("/proc/sys/kernel/osrelease")?.hash(&mut hasher);
    }
    Ok(format!("{:016x}.ram", hasher.finish()))
}

/// Returns what changes with a file's contents: its path, length, and time.
fn file_state(file: &Path) -> Result<impl Hash + use<>> {
    let state = fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok((file.to_owned(), state.len(), state.modified()?))
}

/// Returns the lines of /proc/cpuinfo that say which instructions this machine has.
fn processor() -> Vec<String> {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let first = text.split("\n\n").next().unwrap_or_default();
    let telling =
        |line: &&str| ["model", "flags", "stepping"].iter().any(|it| line.starts_with(it));
    first.lines().filter(telling).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::super::template;
    use super::*;
    use crate::options::Options;
    use crate::roots::root::Root;

    #[test]
    fn the_name_is_that_of_the_machine_and_not_of_the_guest() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let at = |name: &str| folder.path().join(name);
        let paths =
            Paths { toolroot: at("root"), guest: at("guest"), bin: at("bin"), ..Paths::default() };
        for file in [paths.qemu(), paths.kernel(), paths.base_image(), at("bin/vrnic-agent")] {
            fs::create_dir_all(file.parent().context("a folder")?)?;
            fs::write(file, "first")?;
        }
        let of = |options: &Options, number| {
            let root = Root::Memory(at("initramfs"));
            name(&paths, Accel::Tcg, &template(&options.setup(&at("run"), number, root)))
        };
        let plain = of(&Options::default(), 0)?;
        assert_eq!(of(&Options::default(), 1)?, plain, "another guest");
        let share = Some(at("share"));
        assert_eq!(of(&Options { share, module: false, ..Options::default() }, 0)?, plain);
        let others = [
            Options { cpus: 2, ..Options::default() },
            Options { memory: 2048, ..Options::default() },
            Options { adapters: 2, ..Options::default() },
            Options { kernel: "quiet".into(), ..Options::default() },
        ];
        for other in &others {
            assert_ne!(of(other, 0)?, plain, "{other:?}");
        }
        for file in [paths.qemu(), paths.kernel(), paths.base_image(), at("bin/vrnic-agent")] {
            let before = of(&Options::default(), 0)?;
            fs::write(&file, "another")?;
            assert_ne!(of(&Options::default(), 0)?, before, "{}", file.display());
        }
        Ok(())
    }
}
