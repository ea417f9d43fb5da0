//! The image of `scripts/image`: runs `scripts/lab` in it, as in a container. It has no network, no
//! compiler and no clone.
//!
//! Shows: tools

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use vrnic_tests::harness::{Case, Suite};
use vrnic_tests::repository::script::{run, said, static_program, succeed, top};

use super::readme;

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    // Not in /tmp, which may be in memory.
    let folder = TempDir::new_in("/var/tmp").context("there is no folder for the image")?;
    let root = folder.path().join("root");
    let case = |name, run: fn(&Path) -> Result<()>| {
        let root = root.clone();
        Case::alone(name, move || run(&root))
    };
    Ok(Suite::alone(vec![
        case("the_image_is_made", make),
        case("guests_start_from_the_snapshot_of_the_image", restored),
        case("perftest_in_guests_of_the_image", perftest),
        case("a_root_in_guests_of_the_image", rooted),
        case("what_is_not_in_the_image_is_refused", refused),
        case("a_user_without_rights_runs_it_without_a_container", prebuilt),
    ])
    .keeping(folder))
}

/// Makes the image as a folder.
fn make(root: &Path) -> Result<()> {
    succeed(Command::new(top()?.join("scripts/image")).arg("--into").arg(root))?;
    for program in ["gcc", "rustc", "cargo", "git"] {
        ensure!(!root.join("usr/bin").join(program).exists(), "the image has {program}");
    }
    Ok(())
}

/// Runs `scripts/lab` in the image. The folder `work` is in it.
fn lab(root: &Path, work: &Path, options: &[&str]) -> Result<Output> {
    // The mounts end with the namespace.
    let script = "mkdir -p $0/work; mount --bind $1 $0/work; mount -t proc proc $0/proc
                  mount --rbind /dev $0/dev; root=$0; shift
                  exec chroot $root sh -c 'cd /work; exec env -i PATH=/usr/bin VRNIC_ACCEL=tcg /opt/vrnic/scripts/lab \"$@\"' lab \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "bash", "-euc", script]);
    command.arg(root).arg(work).args(options);
    run(&mut command)
}

/// The snapshot is for guests under TCG.
///
/// Shows: tools: guests that start from the snapshot of an image
fn restored(root: &Path) -> Result<()> {
    let work = TempDir::new()?;
    let ran = lab(root, work.path(), &["--guests", "1", "--", "hostname"])?;
    let output = said(&ran);
    ensure!(ran.status.success() && ran.stdout == b"a\n", "{output}");
    ensure!(!output.contains("the guests boot"), "{output}");
    Ok(())
}

/// A copied script runs perftest with the server in the peer, and prints its table.
fn perftest(root: &Path) -> Result<()> {
    let work = TempDir::new()?;
    fs::create_dir(work.path().join("mine"))?;
    let text = "ib_write_bw -F -n 100 $VRNIC_PEER | tee $VRNIC_OUTPUT/table\n";
    fs::write(work.path().join("mine/test.sh"), text)?;
    let options = ["--copy", "mine", "--output", "kept", "--peer", "ib_write_bw -F -n 100"];
    let ran = lab(root, work.path(), &[&options[..], &["--", "sh", "test.sh"]].concat())?;
    ensure!(ran.status.success(), "{}", said(&ran));
    let table = fs::read_to_string(work.path().join("kept/a/table"))?;
    ensure!(table.contains("BW average"), "no table: {table}");
    builds_nothing(&said(&ran))
}

/// Checks that the lab has built nothing, and prints its steps with their times.
fn builds_nothing(output: &str) -> Result<()> {
    let built = output.contains("building") || output.contains("set up");
    ensure!(!built, "something is built: {output}");
    for step in output.lines().filter(|line| line.starts_with('[')) {
        eprintln!("{step}");
    }
    Ok(())
}

/// The image has the modules that mount a root.
fn rooted(root: &Path) -> Result<()> {
    let work = TempDir::new()?;
    fs::create_dir(work.path().join("mine"))?;
    let text = "fn main() { println!(\"{:?}\", std::env::var(\"VRNIC_DEVICE\")); }";
    static_program(&work.path().join("mine/program"), text)?;
    let options = ["--guests", "1", "--memory", "512M", "--root", "mine", "--", "/program", ""];
    let ran = lab(root, work.path(), &options)?;
    ensure!(ran.status.success() && ran.stdout == b"Ok(\"vrnic0\")\n", "{}", said(&ran));
    Ok(())
}

/// Guests with packages or modules that the image does not contain are refused.
fn refused(root: &Path) -> Result<()> {
    let work = TempDir::new()?;
    for options in [&["--image", "apps"][..], &["--package", "qperf"]] {
        let ran = lab(root, work.path(), &[options, &["--", "true"]].concat())?;
        let output = said(&ran);
        ensure!(ran.status.code() == Some(1) && output.contains("scripts/image"), "{output}");
    }
    let ran = lab(root, work.path(), &["--module", "bonding", "--", "true"])?;
    let output = said(&ran);
    ensure!(ran.status.code() == Some(125) && output.contains("scripts/image"), "{output}");
    Ok(())
}

/// The command of docs/ci.md that takes an image without a container needs the image and nothing
/// else: no root, no capability, no clone that can be written, and no compiler. The user's clone is
/// a copy, because this one may lie where that user cannot read.
fn prebuilt(root: &Path) -> Result<()> {
    let folder = root.parent().context("the image is in no folder")?;
    let script = "chmod 755 .; tar -C root -cf image.tar . && sha256sum image.tar >image.tar.sha256
                  mkdir -p clone/qemu; cp -r \"$0/scripts\" clone; cp \"$0/qemu/versions.env\" clone/qemu
                  mkdir cache; chown 65534:65534 cache";
    succeed(Command::new("bash").args(["-euc", script]).arg(top()?).current_dir(folder))?;
    let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"];
    let mut command = Command::new("setpriv");
    command.args(user).args(["--bounding-set=-all", "--no-new-privs", "env", "-i"]);
    command.arg(format!("VRNIC_CACHE={}", folder.join("cache").display()));
    command.args(["PATH=/usr/bin:/bin", "VRNIC_ACCEL=tcg", "bash", "-euc"]);
    let block = readme::beginning(readme::PREBUILT)?.concat();
    let block = block.replace("scripts/lab", "clone/scripts/lab").replace("build/image", "image");
    let block = block.replace("--peer ib_write_bw", "--peer 'ib_write_bw -F -n 100'");
    command.arg(block.replace("'ib_write_bw $", "'ib_write_bw -F -n 100 $"));
    let ran = run(command.current_dir(folder))?;
    let text = said(&ran);
    ensure!(ran.status.success() && text.contains("BW average"), "{text}");
    builds_nothing(&text)
}
