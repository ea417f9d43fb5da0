//! Runs the commands of README.md, docs/ci.md and docs/first-job.md as they are printed there. The
//! test fails if a document has a block that it does not know.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use vrnic_qemu::accel::Accel;
use vrnic_qemu::agent::Agent;
use vrnic_qemu::hosts;
use vrnic_qemu::overlay::{Contents, write_initramfs};
use vrnic_qemu::paths::Paths;
use vrnic_qemu::perftest::with_sound_clocks;
use vrnic_qemu::process::Killed;
use vrnic_tests::harness::{Case, Suite};
use vrnic_tests::script::{archive, base_root, succeed, top};

/// Time limit of a guest that boots.
const BOOT: Duration = Duration::from_secs(180);
/// Time limit of a command in it.
const SHORT_TIMEOUT: Duration = Duration::from_secs(60);

/// The documents whose blocks are commands.
const DOCUMENTS: [&str; 3] = ["README.md", "docs/ci.md", "docs/first-job.md"];

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    Ok(Suite::alone(vec![
        Case::alone("every_block_is_run", every_block),
        Case::alone("packages", packages),
        Case::alone("scripts_run", scripts_run),
        Case::alone("your_own_vm", own_vm),
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
fn beginning(with: &str) -> Result<Vec<String>> {
    let all: Vec<_> = DOCUMENTS.iter().map(|document| blocks(document)).collect::<Result<_>>()?;
    let found: Vec<_> = all.concat().into_iter().filter(|it| it.starts_with(with)).collect();
    ensure!(!found.is_empty(), "no block begins with '{with}'");
    Ok(found)
}

/// The beginnings of the blocks that the cases run, and of four blocks that they do not run: jobs
/// need a forge, the test `image` runs the image without podman, and virtme-ng is not a program
/// that the tests may expect here.
const KNOWN: [&str; 11] = [
    "scripts/package",
    "scripts/run",
    "mkdir -p /run/vrnic",
    "qemu-system-x86_64",
    "scripts/lab",
    "ci/ports",
    "jobs:",
    "mkdir mine",
    "yaml\nname: rdma",
    "scripts/image",
    "vng --run",
];

fn every_block() -> Result<()> {
    for document in DOCUMENTS {
        let blocks = blocks(document)?;
        ensure!(!blocks.is_empty(), "{document} has no blocks");
        for block in blocks {
            let known = KNOWN.iter().any(|known| block.starts_with(known));
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

/// The test writes the programs of the examples. The commands come from the documents.
fn labs() -> Result<()> {
    let folder = tempfile::tempdir()?;
    fs::create_dir(folder.path().join("my-tests"))?;
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
    for block in beginning("scripts/lab")? {
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

/// Runs the daemon and QEMU with the arguments of the README: the guest gets an active RDMA device.
fn own_vm() -> Result<()> {
    let paths = Paths::from_env()?;
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    let contents = Contents { files: &[], tree: None, names: &hosts::table(1, 1) };
    write_initramfs(&paths, contents, &path("initramfs"))?;
    let (daemon, qemu) =
        (&beginning("mkdir -p /run/vrnic")?[0], &beginning("qemu-system-x86_64 …")?[0]);
    // The README leaves these arguments to the user: the kernel, a console, a port for commands.
    let accel = Accel::choose(&paths)?.arguments().join(" ");
    let more = format!(
        "{accel} -smp 1,maxcpus=2 -nodefaults -display none -no-reboot -kernel {kernel} \
         -initrd {folder}/initramfs -append 'console=ttyS0 quiet no_timer_check tsc=reliable \
         rdinit=/init panic=-1 hostname=a' -serial file:{folder}/console \
         -device virtio-serial-pci -chardev socket,id=agent,path={folder}/agent,server=on,wait=off \
         -device virtserialport,chardev=agent,name=vrnic.agent",
        kernel = paths.kernel().display(),
        folder = folder.path().display(),
    );
    let program = paths.qemu_command();
    let words = std::iter::once(program.get_program()).chain(program.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    // The sockets are in a separate /run, which ends with its processes.
    let script = format!(
        "mount -t tmpfs tmpfs /run && PATH={bin}:$PATH
         qemu-system-x86_64() {{ {qemu_program} \"$@\"; }}
         {daemon} &
         until [ -e /run/vrnic/a.sock ] && [ -e /run/vrnic/b.net ]; do kill -0 $!; sleep 0.1; done
         {qemu}",
        bin = paths.bin.display(),
        qemu_program = words.join(" "),
        qemu = qemu.replace('…', &more),
    );
    let log = fs::File::create(path("log"))?;
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--pid", "--fork", "--kill-child", "bash", "-euc", &script])
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    let mut vm = Killed::start(command).context("cannot run unshare")?;
    let failure = || {
        let text = |name: &str| fs::read_to_string(path(name)).unwrap_or_default();
        format!("{script}\n{}\n{}", text("log"), text("console"))
    };
    device_appears(&path("agent"), &mut vm).with_context(failure)
}

/// Waits for the guest, loads the module, and checks the device.
fn device_appears(agent: &Path, vm: &mut Killed) -> Result<()> {
    let end = Instant::now() + BOOT;
    let port = loop {
        match UnixStream::connect(agent) {
            Ok(port) => break port,
            Err(_) if vm.alive() && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(error) => bail!("QEMU or the daemon ended: {error}"),
        }
    };
    let agent = Agent::connect("a", port, BOOT)?;
    agent.check("ip link set eth0 up && ip addr add 10.9.0.1/24 dev eth0", SHORT_TIMEOUT)?;
    agent.check("modprobe -a ib_uverbs rdma_ucm && insmod /vrnic/vrnic.ko", SHORT_TIMEOUT)?;
    agent.check("until rdma link | grep -q 'state ACTIVE'; do sleep 0.2; done", SHORT_TIMEOUT)?;
    let device = agent.check("ibv_devinfo", SHORT_TIMEOUT)?;
    ensure!(device.contains("PORT_ACTIVE"), "{device}");
    Ok(())
}
