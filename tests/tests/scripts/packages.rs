//! What `scripts/package` makes, refuses and removes.
//!
//! Shows: tools

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use vrnic_layouts::LAYOUTS;

use crate::{NO_CACHE, functions, refuses};

#[test]
fn packages_replace_no_files_of_others() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (kept, into) = (folder.path().join("kept.txt"), folder.path().to_string_lossy());
    fs::write(&kept, "mine")?;
    fs::write(folder.path().join("vrnicd_0.1.0_amd64.deb"), "ours")?;
    refuses("package", &["--into", &into], "other files in it than packages of vrnic")?;
    refuses("package", &["--into", &kept.to_string_lossy()], "is not a folder")?;
    ensure!(fs::read(&kept)? == b"mine", "the file has changed");
    Ok(())
}

#[test]
fn only_packages_of_vrnic_are_removed() -> Result<()> {
    let folder = tempfile::tempdir()?;
    for name in [
        "vrnicd_1_amd64.deb",
        "vrnic-check_1_amd64.deb",
        "vrnic-modules-7.3.4+deb13-amd64_1_amd64.deb",
        "vrnic-plugin_1_amd64.tar.xz",
        "other_1_all.deb",
    ] {
        fs::write(folder.path().join(name), "")?;
    }
    let text = format!("clear_packages '{0}'; ls '{0}'", folder.path().display());
    ensure!(functions(&["into"], &text, folder.path())? == "other_1_all.deb\n");
    Ok(())
}

#[test]
fn packages_of_a_later_commit_are_an_upgrade() -> Result<()> {
    let text = "SOURCE_DATE_EPOCH=1000000000 package_version; SOURCE_DATE_EPOCH=1000000001 package_version";
    let said = functions(&["package"], text, Path::new(NO_CACHE))?;
    let versions: Vec<_> = said.lines().collect();
    let [first, second] = versions[..] else { panic!("not two versions: {said}") };
    ensure!(first.contains("+git20010909014640."), "{first}");
    let newer = Command::new("dpkg").args(["--compare-versions", first, "lt", second]).status();
    match newer {
        Ok(status) => ensure!(status.success(), "{second} is not later than {first}"),
        Err(_) => eprintln!("skipped: there is no dpkg"),
    }
    Ok(())
}

/// Lintian is installed if it must run, and its complaint ends the script.
#[test]
fn lintian_checks_packages_if_it_is_there_or_needed() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let check = |programs: &str, needed: &str| {
        let text =
            format!("step() {{ :; }}; {programs}\ncheck_packages /packages {needed}; echo done");
        functions(&["package"], &text, folder.path())
    };
    let there = "command() { true; }; lintian() { echo \"lintian $*\"; }";
    let checked = "lintian --fail-on error,warning /packages/*.deb\n";
    ensure!(check(there, "")? == format!("{checked}done\n"));
    let absent = "command() { false; }; lintian() { echo \"lintian $*\"; }
                  quietly() { shift; echo \"$@\" | grep -o 'install lintian' || true; }";
    ensure!(check(absent, "")? == "done\n");
    ensure!(check(absent, "needed")? == format!("install lintian\n{checked}done\n"));
    let faults = check("command() { true; }; lintian() { false; }", "")?;
    ensure!(faults.starts_with("error: lintian has found faults"), "{faults}");
    Ok(())
}

#[test]
fn the_size_of_a_package_is_that_of_its_files() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let text = "mkdir -p \"$VRNIC_CACHE\"/package/{DEBIAN,usr} && cd \"$VRNIC_CACHE/package\"\n\
                echo >DEBIAN/control; head -c 1025 /dev/zero >usr/file; ln -s file usr/link\n\
                installed_size \"$PWD\"";
    // A folder, a file of two KiB, and a link.
    ensure!(functions(&["package"], text, folder.path())? == "4\n");
    Ok(())
}

#[test]
fn a_module_for_another_kernel_says_so_when_it_is_installed() -> Result<()> {
    let text = "depmod() { :; }; set -- configure; eval \"$(modules_postinst 7.3.0-other)\"";
    let said = functions(&["package"], text, Path::new(NO_CACHE))?;
    ensure!(said.contains("Start this machine with the kernel 7.3.0-other"), "{said}");
    let text = text.replace("7.3.0-other", "$(uname -r)");
    ensure!(functions(&["package"], &text, Path::new(NO_CACHE))?.is_empty());
    Ok(())
}

/// The plugin is installed in both folders, under the name of each private interface, and packed
/// without folders.
#[test]
fn the_plugin_has_a_name_for_each_private_interface() -> Result<()> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("plugin"), "text")?;
    let text = format!(
        "cd '{}'; plugin_install plugin root; SOURCE_DATE_EPOCH=1 plugin_archive root a.tar.xz
         tar -tf a.tar.xz",
        folder.path().display()
    );
    let mut names = vec!["etc/libibverbs.d/vrnic.driver".to_owned()];
    for folder in ["usr/lib/x86_64-linux-gnu", "usr/lib64"] {
        names.extend(
            vrnic_layouts::numbers()
                .map(|number| format!("{folder}/libibverbs/libvrnic-rdmav{number}.so")),
        );
    }
    let said = functions(&["plugin"], &text, Path::new(NO_CACHE))?;
    ensure!(said.lines().eq(&names), "{said}, not {names:?}");
    Ok(())
}

/// The plugin refuses releases of rdma-core that it does not know, so its package must not be
/// installed together with them.
#[test]
fn the_plugin_depends_on_the_releases_that_it_knows() -> Result<()> {
    let depends = functions(&["package"], "library_depends", Path::new(NO_CACHE))?;
    let bounds: Vec<_> = depends.split(['(', ')']).skip(1).step_by(2).collect();
    ensure!(bounds.len() == 2, "{depends}");
    let takes = |version: &str| {
        bounds.iter().try_fold(true, |all, bound| {
            let (operator, limit) = bound.split_once(' ').context("an operator")?;
            let compare = ["--compare-versions", version, operator, limit];
            let status = Command::new("dpkg").args(compare).status()?;
            anyhow::Ok(all && status.success())
        })
    };
    for layout in &LAYOUTS {
        for release in [layout.releases.start(), layout.releases.end()] {
            for version in [format!("{release}.0-1"), format!("{release}.3-1+deb13u2")] {
                ensure!(takes(&version)?, "{version} is not taken");
            }
        }
    }
    let (first, last) = (LAYOUTS[0].releases.start(), LAYOUTS[LAYOUTS.len() - 1].releases.end());
    for version in [format!("{}.9-1", first - 1), format!("{}.0~rc1-1", last + 1)] {
        ensure!(!takes(&version)?, "{version} is taken");
    }
    Ok(())
}

#[test]
fn a_service_that_does_not_stop_keeps_no_package() -> Result<()> {
    // As dpkg runs the script, on a machine with systemd.
    let text = "daemon_prerm | sed 's|-d /run/systemd/system|-d /|' >\"$VRNIC_CACHE/prerm\"\n\
                systemctl() { echo \"systemctl $1\"; false; }\n\
                set -- remove; . \"$VRNIC_CACHE/prerm\"; echo removed";
    let folder = tempfile::tempdir()?;
    let said = functions(&["package"], text, folder.path())?;
    ensure!(said == "systemctl stop\nsystemctl disable\nremoved\n", "{said}");
    Ok(())
}
