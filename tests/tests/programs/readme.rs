//! Runs the commands of the README and of the pages for users as they are printed there, and
//! compares what the README says that they print with what they do print. The test fails if a
//! document has a block that it does not know.
//!
//! Shows: tools

mod vms;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use vrnic_qemu::machine::paths::Paths;
use vrnic_qemu::traffic::perftest::with_sound_clocks;
use vrnic_tests::harness::{Case, Suite};
use vrnic_tests::repository::script::{self, archive, base_root, run, said, succeed, top};

/// The documents whose blocks are commands.
const DOCUMENTS: [&str; 6] = [
    "README.md",
    "docs/ci.md",
    "docs/first-job.md",
    "docs/guests.md",
    "docs/packages.md",
    "docs/projects.md",
];

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    Ok(Suite::alone(vec![
        Case::alone("every_block_is_run", every_block),
        Case::alone("packages", packages),
        Case::alone("scripts_run", scripts_run),
        Case::alone("demonstration", demonstration),
        Case::alone("your_own_vms", vms::small),
        Case::alone("your_own_systems", vms::systems),
        Case::alone("scripts_lab", labs),
        Case::alone("first_job", first_job),
        Case::alone("ports", ports),
    ]))
}

/// Returns the blocks of code of a document that are commands.
fn blocks(document: &str) -> Result<Vec<String>> {
    let text = fs::read_to_string(top()?.join(document))?;
    // Text and blocks alternate.
    let inside = text.split("```").skip(1).step_by(2).map(|block| block.trim().to_owned());
    // A drawing is not a command.
    Ok(inside.filter(|block| !block.contains('┌')).collect())
}

/// Returns the blocks of all documents that begin with this text.
pub(super) fn beginning(with: &str) -> Result<Vec<String>> {
    let all: Vec<_> = DOCUMENTS.iter().map(|document| blocks(document)).collect::<Result<_>>()?;
    let found: Vec<_> = all.concat().into_iter().filter(|it| it.starts_with(with)).collect();
    ensure!(!found.is_empty(), "no block begins with '{with}'");
    Ok(found)
}

/// The beginning of the block that the suite `image` runs.
pub(super) const PREBUILT: &str = "scripts/lab --prebuilt";

/// The beginnings of the blocks that the cases run.
const RUN: [&str; 13] = [
    "scripts/package",
    "scripts/run",
    "console\n$ scripts/lab",
    "mkdir -p /run/vrnic",
    "vm() {",
    "nic=$(",
    "ib_write_bw",
    "mount -t 9p",
    "apt install ./vrnic",
    "[Service]",
    "scripts/lab",
    "ci/ports",
    "mkdir mine",
];

/// The beginnings of blocks that no case runs: jobs need a forge; the suite `image` runs the image
/// without podman, and the command that takes an image without a container; the suite `layouts`
/// loads plugins; and these tests cannot expect libvirt and virtme-ng on a machine.
const NOT_RUN: [&str; 10] = [
    "jobs:",
    "yaml\njobs:",
    "yaml\nname: rdma",
    "scripts/image",
    PREBUILT,
    "vng --run",
    "net='-netdev",
    "virsh define",
    "tar -xJf",
    "LD_PRELOAD=",
];

fn every_block() -> Result<()> {
    for document in DOCUMENTS {
        let blocks = blocks(document)?;
        ensure!(!blocks.is_empty(), "{document} has no blocks");
        for block in blocks {
            let known = RUN.iter().chain(&NOT_RUN).any(|known| block.starts_with(known));
            ensure!(known, "{document} has a block that this test does not run:\n{block}");
        }
    }
    Ok(())
}

/// Runs shell text in the clone. Returns its output.
fn shell(text: &str, folder: &Path) -> Result<String> {
    succeed(Command::new("bash").args(["-euc", text]).current_dir(folder))
}

/// Calls `run` with a perftest, and again if perftest prints no figures because of the guest's
/// clocks.
fn with_figures(run: impl Fn() -> Result<String>) -> Result<String> {
    with_sound_clocks(|| Ok(run()), |ran| ran.as_ref().err().map(|error| format!("{error:#}")))?
}

/// The packages are built. apt lists what it would install, and installs nothing.
fn packages() -> Result<()> {
    for block in beginning("scripts/package")? {
        let block = block.replace("apt install", "apt-get --simulate install");
        let said = shell(&block, &top()?)?;
        ensure!(said.contains("Inst vrnicd"), "apt would not install it:\n{said}");
    }
    Ok(())
}

/// Perftest prints its table. Only the help of `scripts/test` is printed, because this test is a
/// part of it.
fn scripts_run() -> Result<()> {
    for block in beginning("scripts/run")? {
        let block = block.replace("scripts/test ", "scripts/test --help ");
        let said = with_figures(|| shell(&block, &top()?))?;
        for text in ["ib_write_bw", "ib_send_lat", "Formats, lints, the tests of all crates"] {
            ensure!(said.contains(text), "no {text}:\n{said}");
        }
    }
    Ok(())
}

/// A command and the lines of its output, as a document prints them.
struct Shown {
    command: String,
    lines: Vec<String>,
}

impl Shown {
    /// Reads a block that begins with `$` and a command, which goes on after a backslash.
    fn read(block: &str) -> Result<Self> {
        let text = block.split_once("$ ").context("no command")?.1;
        let mut lines = text.lines();
        let mut command = Vec::new();
        for line in lines.by_ref() {
            command.push(line);
            if !line.ends_with('\\') {
                break;
            }
        }
        let lines: Vec<_> = lines.map(form).collect();
        ensure!(!lines.is_empty(), "the block shows no output:\n{block}");
        Ok(Self { command: command.join("\n"), lines })
    }
}

/// Returns a line with `#` in place of each number, and a blank in place of each row of blanks.
/// Numbers of a fault's rule stay.
fn form(line: &str) -> String {
    let mut parts: Vec<String> = line.split('\'').map(str::to_owned).collect();
    for outside in parts.iter_mut().step_by(2) {
        let digits = |letter: char| letter.is_ascii_digit() || letter == '.';
        let mut form = String::new();
        for letter in outside.replace("Kvm", "Tcg").chars() {
            let letter = if digits(letter) { '#' } else { letter };
            if !(letter == '#' && form.ends_with('#')) {
                form.push(letter);
            }
        }
        *outside = form.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    parts.join("'")
}

/// The commands of the README print the lines that it shows, in this order, with any figures: the
/// lab those that begin with a bracket, the guest the others.
fn demonstration() -> Result<()> {
    for block in beginning("console\n$ ")? {
        let shown = Shown::read(&block)?;
        let ran = script::with_figures(|| {
            run(Command::new("bash").args(["-euc", &shown.command]).current_dir(top()?))
        })?;
        ensure!(ran.status.success(), "{}", said(&ran));
        let (of_lab, of_guest): (Vec<_>, Vec<_>) =
            shown.lines.iter().partition(|line| line.starts_with('['));
        ensure!(!of_lab.is_empty() && !of_guest.is_empty(), "the block has no figures:\n{block}");
        for (lines, printed) in [(of_lab, &ran.stderr), (of_guest, &ran.stdout)] {
            let printed = String::from_utf8_lossy(printed);
            let mut printed = printed.lines().map(form);
            for line in lines {
                let found = printed.any(|it| it == *line);
                ensure!(found, "the run has no line '{line}' there: {}", said(&ran));
            }
        }
    }
    Ok(())
}

/// The test writes the programs of the examples. The commands come from the documents.
fn labs() -> Result<()> {
    let folder = tempfile::tempdir()?;
    fs::create_dir(folder.path().join("my-tests"))?;
    // The folder of docs/first-job.md, of which its second command uses nothing.
    fs::create_dir(folder.path().join("mine"))?;
    for (name, text) in [
        ("server", "#!/bin/sh\nexec ib_write_bw -n 100\n"),
        ("client", "#!/bin/sh\necho kept >$VRNIC_OUTPUT/kept\nexec ib_write_bw -n 100 $1\n"),
    ] {
        let file = folder.path().join("my-tests").join(name);
        fs::write(&file, text)?;
        fs::set_permissions(file, fs::Permissions::from_mode(0o755))?;
    }
    // Not in /tmp, which may be in memory.
    let image = tempfile::TempDir::new_in("/var/tmp")?;
    base_root(&image.path().join("root"))?;
    archive(&image.path().join("root"), &image.path().join("mine.tar"), &[])?;
    succeed(Command::new(top()?.join("scripts/setup")).arg("--system"))?;
    let system = Paths::from_env()?.system.join("disk");
    let script = top()?.join("scripts/lab");
    let all = beginning("scripts/lab")?;
    for block in all.iter().filter(|block| !block.starts_with(PREBUILT)) {
        let mine = image.path().join("mine.tar");
        let block = block.replace("mine.tar", &mine.to_string_lossy());
        let block = block.replace("mine.qcow2", &system.to_string_lossy());
        let command = block.replace("scripts/lab", &script.to_string_lossy());
        let said = with_figures(|| shell(&command, folder.path()))?;
        ensure!(said.contains("BW average") || said.contains("rc_bi_bw"), "{block}:\n{said}");
        if block.contains("--output results") {
            let kept = fs::read_to_string(folder.path().join("results/a/kept"))?;
            ensure!(kept == "kept\n", "{kept}");
        }
    }
    Ok(())
}

/// The first command of a new user leaves all results that the page names, and fails if the user's
/// script does.
fn first_job() -> Result<()> {
    let script = top()?.join("scripts/lab").to_string_lossy().into_owned();
    let block = beginning("mkdir mine")?.concat().replace("scripts/lab", &script);
    let run = |block: &str| -> Result<(TempDir, String)> {
        let folder = tempfile::tempdir()?;
        let said = shell(block, folder.path())?;
        Ok((folder, said))
    };
    let said = with_figures(|| {
        let (folder, said) = run(&block)?;
        for name in ["a/table", "summary.md", "junit.xml", "traffic.pcapng", "report.txt"] {
            let len = fs::metadata(folder.path().join("results").join(name)).context(name)?.len();
            ensure!(len > 0, "{name} is empty:\n{said}");
        }
        Ok(said)
    })?;
    ensure!(said.contains("BW average"), "{said}");
    let failing = block.replace("ib_write_bw -n 100 $VRNIC_PEER", "ib_write_bw --no-such-option");
    ensure!(failing != block, "the block has another program:\n{block}");
    let error = run(&failing).err().context("a test that fails has passed")?;
    ensure!(format!("{error:#}").contains("the command ended with"), "{error:#}");
    Ok(())
}

/// Programs of others move data by RDMA, which is unchanged.
fn ports() -> Result<()> {
    let lines: Vec<_> = beginning("ci/ports")?.iter().flat_map(|block| lines(block)).collect();
    ensure!(lines.len() == 2, "other commands: {lines:?}");
    for line in lines {
        let said = shell(&line, &top()?)?;
        ensure!(said.contains("hashes equal"), "{line}:\n{said}");
    }
    Ok(())
}

/// Returns the lines of a block.
fn lines(block: &str) -> Vec<String> {
    block.lines().map(str::to_owned).collect()
}
