//! What scripts say before they install or build something. They run with a cache that cannot be
//! made, so one that goes on to its set-up fails, and changes nothing on this machine.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use vrnic_tests::script::{run, top};

/// A folder in which nobody can make files, root included.
const NO_CACHE: &str = "/proc/vrnic";

/// Runs a script of the clone. Returns its exit status and what it prints.
fn script(name: &str, arguments: &[&str]) -> Result<(Option<i32>, String)> {
    let mut command = Command::new(top()?.join("scripts").join(name));
    let output = run(command.args(arguments).env("VRNIC_CACHE", NO_CACHE))?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.code(), String::from_utf8_lossy(&text).into_owned()))
}

/// Checks that a script fails with a sentence that contains this text, and does nothing before.
fn refuses(name: &str, arguments: &[&str], part: &str) -> Result<()> {
    let (status, text) = script(name, arguments)?;
    let told = format!("{name} {arguments:?} ended with {status:?} and said:\n{text}");
    ensure!(matches!(status, Some(1 | 2)) && text.contains(part), "{told}");
    ensure!(text.lines().count() == 1 && text.starts_with("error: "), "{told}");
    Ok(())
}

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
fn images_replace_no_files_of_others() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (kept, into) = (folder.path().join("kept.txt"), folder.path().to_string_lossy());
    fs::write(&kept, "mine")?;
    refuses("image", &["--into", &into], "is not empty, and is not an image")?;
    refuses("image", &["--into", &kept.to_string_lossy()], "ends in .tar")?;
    refuses("image", &["--into", "/"], "this machine's files")?;
    ensure!(fs::read(&kept)? == b"mine", "the file has changed");
    Ok(())
}

/// Runs shell text with the scripts' functions of these files. Returns what it prints.
fn functions(files: &[&str], text: &str, cache: &Path) -> Result<String> {
    let sources: String = ["common", "build"]
        .iter()
        .chain(files)
        .map(|file| format!(". scripts/lib/{file}.sh\n"))
        .collect();
    let mut command = Command::new("bash");
    let command = command.args(["-euc", &(sources + text)]).current_dir(top()?);
    let output = run(command.env("VRNIC_CACHE", cache))?;
    let text = [output.stdout, output.stderr].concat();
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn only_packages_of_vrnic_are_removed() -> Result<()> {
    let folder = tempfile::tempdir()?;
    for name in
        ["vrnicd_1_amd64.deb", "vrnic-modules-7.3.4+deb13-amd64_1_amd64.deb", "other_1_all.deb"]
    {
        fs::write(folder.path().join(name), "")?;
    }
    let text = format!("clear_packages '{0}'; ls '{0}'", folder.path().display());
    ensure!(functions(&["into"], &text, folder.path())? == "other_1_all.deb\n");
    Ok(())
}
