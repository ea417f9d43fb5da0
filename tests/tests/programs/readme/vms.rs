//! Virtual machines that are started by hand, as docs/guests.md and docs/packages.md say.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use vrnic_qemu::agent::Agent;
use vrnic_qemu::machine::accel::Accel;
use vrnic_qemu::machine::paths::Paths;
use vrnic_qemu::machine::process::Killed;
use vrnic_qemu::roots::hosts;
use vrnic_qemu::roots::overlay::{Contents, write_initramfs};
use vrnic_qemu::roots::system::System;
use vrnic_tests::repository::script::{succeed, top};

use super::beginning;

/// Time limit of a guest that boots. A whole system does so slowly under TCG.
const BOOT: Duration = Duration::from_secs(300);
/// Time limit of a command in it. The first ones run while a system still starts its services. The
/// kernel reports tasks that hang after 120 s.
const SHORT_TIMEOUT: Duration = Duration::from_secs(180);
/// Time limit of apt. Under TCG even depmod takes minutes: it unpacks each module of the kernel.
const APT: Duration = Duration::from_secs(600);
/// What these kernels need under TCG.
const KERNEL: &str = "console=ttyS0 quiet no_timer_check tsc=reliable";

/// The daemon and two QEMUs with the arguments of docs/guests.md.
struct Vms {
    folder: TempDir,
    script: String,
    running: Killed,
}

impl Vms {
    /// Starts them. The page leaves the disk to the user: `machine` has arguments of QEMU instead,
    /// as words for a shell, in which `$1` is the name. The guests see the folder of packages.
    fn start(folder: TempDir, machine: &str, packages: &Path) -> Result<Self> {
        let paths = Paths::from_env()?;
        let path = |name: &str| folder.path().join(name);
        let (daemon, vm) = (&beginning("mkdir -p /run/vrnic")?[0], &beginning("vm() {")?[0]);
        let accel = Accel::choose(&paths)?.arguments().join(" ");
        let output = format!(
            "-display none -serial file:{folder}/$1.console -device virtio-serial-pci \
             -chardev socket,id=agent,path={folder}/$1.agent,server=on,wait=off \
             -device virtserialport,chardev=agent,name=vrnic.agent",
            folder = folder.path().display(),
        );
        let mut run = vm.clone();
        for (printed, tested) in [
            ("qemu-system-x86_64", &*top()?.join("scripts/qemu").to_string_lossy()),
            ("-accel kvm", &accel),
            ("-m 2G", "-m 1G"),
            ("size=2G", "size=1G"),
            ("-drive file=$1.qcow2,if=virtio", machine),
            ("path=build/packages", &format!("path={}", packages.display())),
            ("-nographic", &output),
        ] {
            ensure!(run.contains(printed), "the page has no {printed}:\n{vm}");
            run = run.replace(printed, tested);
        }
        // The sockets are in a separate /run, which ends with its processes.
        let script = format!(
            "mount -t tmpfs tmpfs /run && PATH={bin}:$PATH
             {daemon} &
             until [ -e /run/vrnic/a.sock ] && [ -e /run/vrnic/b.net ]; do kill -0 $!; sleep 0.1; done
             {run}
             vm a & vm b",
            bin = paths.bin.display(),
        );
        let log = fs::File::create(path("log"))?;
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--pid", "--fork", "--kill-child", "bash", "-euc", &script])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let running = Killed::start(command).context("cannot run unshare")?;
        Ok(Self { folder, script, running })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Waits for a guest.
    fn reached(&mut self, name: &str) -> Result<Agent> {
        let (agent, end) = (self.path(&format!("{name}.agent")), Instant::now() + BOOT);
        let port = loop {
            match UnixStream::connect(&agent) {
                Ok(port) => break port,
                Err(_) if self.running.alive() && Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                Err(error) => bail!("QEMU or the daemon ended: {error}"),
            }
        };
        Agent::connect(name, port, BOOT)
    }

    /// Calls `work` with both guests. Its error contains what daemon and guests have printed.
    fn with_guests(mut self, work: impl FnOnce(&Agent, &Agent) -> Result<()>) -> Result<()> {
        let reached = self.reached("a").and_then(|a| Ok((a, self.reached("b")?)));
        reached.and_then(|(a, b)| work(&a, &b)).with_context(|| {
            let text = |name: &str| fs::read_to_string(self.path(name)).unwrap_or_default();
            [self.script.clone(), text("log"), text("a.console"), text("b.console")].join("\n")
        })
    }
}

/// Small guests with a kernel and an agent instead of a disk, and with the module and the plugin
/// without packages, exchange data by the commands of the page.
pub(super) fn small() -> Result<()> {
    let paths = Paths::from_env()?;
    let folder = tempfile::tempdir()?;
    let contents = Contents { files: &[], tree: None, names: &hosts::table(2, 1) };
    write_initramfs(&paths, contents, &folder.path().join("initramfs"))?;
    let packages = folder.path().join("packages");
    fs::create_dir(&packages)?;
    let machine = format!(
        "-kernel {} -initrd {}/initramfs -append \"{KERNEL} rdinit=/init panic=-1 hostname=$1\" \
         -nodefaults -no-reboot",
        paths.kernel().display(),
        folder.path().display(),
    );
    Vms::start(folder, &machine, &packages)?.with_guests(|a, b| {
        for guest in [a, b] {
            guest
                .check("modprobe -a ib_uverbs rdma_ucm && insmod /vrnic/vrnic.ko", SHORT_TIMEOUT)?;
        }
        exchange(a, b)
    })
}

/// Whole Debian systems get the packages from this machine, start again, and exchange data. The
/// commands are those of the pages, from the mount to the address. The service of the host's
/// package starts in one of them.
pub(super) fn systems() -> Result<()> {
    let paths = Paths::from_env()?;
    let folder = TempDir::new_in("/var/tmp")?;
    succeed(Command::new(top()?.join("scripts/setup")).arg("--system"))?;
    let packages = folder.path().join("packages");
    let mut package = Command::new(top()?.join("scripts/package"));
    // These programs are built for the other cases, too.
    succeed(package.arg("--into").arg(&packages).env("VRNIC_PROFILE", "quick"))?;
    let system = System::new(&paths, None, &folder.path().join("kit"))?;
    let machine: Vec<_> = system.arguments(KERNEL, "@NAME@").iter().map(|it| quoted(it)).collect();
    let machine = machine.join(" ").replace("@NAME@", "'$1'");
    Vms::start(folder, &machine, &packages)?.with_guests(|a, b| {
        std::thread::scope(|scope| {
            let first = scope.spawn(|| install(a));
            install(b)?;
            first.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?
        })?;
        exchange(a, b)?;
        serve(a)
    })
}

/// Returns a word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Runs the commands of docs/guests.md up to the restart. apt asks nothing, and has no list of
/// packages: what is not in the folder is in the system already.
fn install(guest: &Agent) -> Result<()> {
    let block = &beginning("mount -t 9p")?[0];
    let commands = block.strip_suffix("reboot").context("the page ends without a restart")?;
    guest.check(&unattended(commands), APT)?;
    let before = guest.greetings();
    guest.check("systemctl reboot", SHORT_TIMEOUT)?;
    guest.greets_after(before, BOOT)
}

fn unattended(commands: &str) -> String {
    let asked = commands.replace("apt install", "apt-get -y install");
    format!("export DEBIAN_FRONTEND=noninteractive\n{asked}")
}

/// Gives both guests their addresses as the page says, and runs its test.
fn exchange(a: &Agent, b: &Agent) -> Result<()> {
    let commands = &beginning("nic=$(")?[0];
    let of_b = commands.replace("00:0a", "00:0b").replace("10.9.0.1", "10.9.0.2");
    for (guest, commands) in [(a, commands), (b, &of_b)] {
        guest.check(commands, SHORT_TIMEOUT)?;
        guest
            .check("until rdma link | grep -q 'state ACTIVE'; do sleep 0.2; done", SHORT_TIMEOUT)?;
    }
    let block = &beginning("ib_write_bw")?[0];
    let (server, client) = block.split_once('\n').context("the block has two commands")?;
    let [server, client] = [server, client].map(|line| line.split('#').next().unwrap_or(line));
    let server = b.start(&format!("while :; do {server}; done"))?;
    let said = a.check(&format!("until {client}; do sleep 1; done"), SHORT_TIMEOUT)?;
    ensure!(said.contains("BW average"), "{said}");
    server.kill()
}

/// Runs the commands of docs/packages.md for guests, whose packages are there already, and those
/// for the host: the service starts, and takes a function. Then it starts with each of the settings
/// that the page gives to `systemctl edit`.
fn serve(guest: &Agent) -> Result<()> {
    guest.check("mount -t 9p -o trans=virtio,ro packages /mnt", SHORT_TIMEOUT)?;
    let blocks = beginning("apt install ./vrnic")?;
    ensure!(blocks.len() == 2, "other commands: {blocks:?}");
    for block in blocks {
        guest.check(&format!("cd /mnt\n{}", unattended(&block)), APT)?;
    }
    let said = guest.check("vrnic show function", SHORT_TIMEOUT)?;
    ensure!(said.contains(" a "), "the function is not there:\n{said}");
    guest.check("umask 077; head -c 32 /dev/zero >/etc/vrnic/trunk.key", SHORT_TIMEOUT)?;
    for (block, part) in beginning("[Service]")?.iter().zip(["cap_net_raw", "trunk.key"]) {
        let edit = format!("printf '%s\\n' {} >$d/override.conf", quoted(block));
        let restart = "systemctl daemon-reload && systemctl restart vrnicd";
        let folder = "d=/etc/systemd/system/vrnicd.service.d && mkdir -p $d";
        guest.check(&format!("{folder} && {edit} && {restart}"), SHORT_TIMEOUT)?;
        // The page names this place of the key.
        let show = "systemctl show vrnicd -p ActiveState,AmbientCapabilities
                    ls /run/credentials/vrnicd.service 2>&1 || true";
        let said = guest.check(show, SHORT_TIMEOUT)?;
        ensure!(said.contains("=active") && said.contains(part), "{block}:\n{said}");
    }
    Ok(())
}
