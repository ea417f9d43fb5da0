//! The daemon as a service of systemd: the messages that it sends, and the signals that it gets.
//!
//! Shows: daemon

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use rustix::process::{Signal, kill_process};
use tempfile::TempDir;
use vrnic_testdriver::wait;

/// The time of the watchdog in these tests.
const WATCHDOG: Duration = Duration::from_secs(2);

/// A daemon, and a socket in place of systemd's.
struct Service {
    child: Child,
    systemd: UnixDatagram,
    folder: TempDir,
}

impl Service {
    /// Starts a daemon with function `a` and these arguments.
    fn start(args: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().expect("a folder"), args)
    }

    /// Like [`Self::start`], with the files in this folder.
    fn start_in(folder: TempDir, args: &[&str]) -> Self {
        let notify = folder.path().join("notify");
        let systemd = UnixDatagram::bind(&notify).expect("a socket");
        let function =
            format!("name=a,mac=52:54:00:00:00:0a,socket={}/a.sock", folder.path().display());
        let child = Command::new(env!("CARGO_BIN_EXE_vrnicd"))
            .args(["--function", &function])
            .args(args)
            .env("NOTIFY_SOCKET", &notify)
            .env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string())
            .stderr(File::create(folder.path().join("log")).expect("a file"))
            .spawn()
            .expect("vrnicd runs");
        let this = Self { child, systemd, folder };
        this.expect("READY=1");
        this
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).expect("the log")
    }

    /// Returns the next message, if there is one within `limit`.
    fn message(&self, limit: Duration) -> Option<String> {
        let mut buffer = [0; 128];
        self.systemd.set_read_timeout(Some(limit)).expect("a time limit");
        match self.systemd.recv(&mut buffer) {
            Ok(length) => Some(String::from_utf8_lossy(&buffer[..length]).trim().to_owned()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Waits for a message that begins with this text. Skips messages of the watchdog.
    #[track_caller]
    fn expect(&self, text: &str) {
        wait::until(text, || {
            let message = self.message(wait::LIMIT).expect(text);
            if message == "WATCHDOG=1" && message != text {
                return None;
            }
            assert!(message.starts_with(text), "{message} instead of {text}");
            Some(())
        });
    }

    fn signal(&self, signal: Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        kill_process(pid, signal).expect("a signal");
    }

    fn end(&mut self) -> ExitStatus {
        wait::until("the end of vrnicd", || self.child.try_wait().expect("a child"))
    }

    /// Makes the daemon reload its settings from this text.
    #[track_caller]
    fn reload(&self, settings: &str) {
        write_settings(&self.folder, settings);
        self.signal(Signal::HUP);
        self.expect("RELOADING=1\nMONOTONIC_USEC=");
        self.expect("READY=1");
    }

    /// Returns the thread of this name.
    fn thread(&self, name: &str) -> Pid {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("threads");
        let named = |task: &PathBuf| {
            fs::read_to_string(task.join("comm")).is_ok_and(|text| text.trim() == name)
        };
        let task = tasks.map(|task| task.expect("a thread").path()).find(named).expect(name);
        let id = task.file_name().and_then(|id| id.to_str()).expect("a number");
        Pid::from_raw(id.parse().expect("a number"))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) && self.child.kill().is_ok() {
            let _status = self.child.wait();
        }
        if std::thread::panicking() {
            eprintln!("log of vrnicd:\n{}", self.log());
        }
    }
}

/// Writes a file with these settings, in which '@' is replaced by the folder.
fn write_settings(folder: &TempDir, settings: &str) -> PathBuf {
    let path = folder.path().join("vrnicd.toml");
    let text = settings.replace('@', &format!("{}/", folder.path().display()));
    fs::write(&path, text).expect("a file");
    path
}

#[test]
fn systemd_hears_of_the_start_and_of_the_end() {
    let mut service = Service::start(&[]);
    UnixStream::connect(service.path("a.sock")).expect("a socket when the daemon is ready");
    service.signal(Signal::TERM);
    service.expect("STOPPING=1");
    assert!(service.end().success());
}

/// Log lines begin with their priority if they go to the journal, otherwise with the time.
#[test]
fn the_journal_gets_priorities_and_no_times() {
    // The daemon may also log the warning that a client has disconnected.
    for (inode, begins) in [(0, &["<6>INFO vrnic", "<4>WARN vrnic"][..]), (1, &["20"])] {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        let file = File::create(&log).expect("a file");
        let metadata = file.metadata().expect("a file");
        let mut child = Command::new(env!("CARGO_BIN_EXE_vrnicd"))
            .args(["--control".as_ref(), folder.path().join("control").as_os_str()])
            .env("JOURNAL_STREAM", format!("{}:{}", metadata.dev(), metadata.ino() + inode))
            .stderr(file)
            .spawn()
            .expect("vrnicd runs");
        wait::until("a socket", || UnixStream::connect(folder.path().join("control")).ok());
        let pid = rustix::process::Pid::from_child(&child);
        kill_process(pid, Signal::TERM).expect("a signal");
        assert!(child.wait().expect("a child").success());
        let text = fs::read_to_string(log).expect("the log");
        let begun = |line: &str| begins.iter().any(|begin| line.starts_with(begin));
        assert!(text.contains(begins[0]) && text.lines().all(begun), "{text}");
    }
}

/// A debugger stops one thread. The daemon's other threads go on.
#[test]
fn a_thread_that_hangs_silences_the_watchdog() {
    let service = Service::start(&["--workers", "2"]);
    for name in ["worker-0", "worker-1", "switch", "housekeeping"] {
        service.expect("WATCHDOG=1");
        let thread = service.thread(name);
        ptrace::seize(thread, ptrace::Options::empty()).expect("a thread of a child");
        ptrace::interrupt(thread).expect("a thread of a child");
        waitpid(thread, Some(WaitPidFlag::__WALL)).expect("its stop");
        // The thread may have answered the last ping, and one message may be on its way.
        let (start, mut heard) = (Instant::now(), 0);
        while start.elapsed() < 2 * WATCHDOG {
            heard += usize::from(service.message(WATCHDOG / 4).is_some());
        }
        assert!(heard <= 2, "{heard} messages while {name} hung");
        // On a busy machine other threads may be late, too.
        let log = service.log();
        assert!(log.lines().any(|line| line.contains("not answered") && line.contains(name)));
        ptrace::detach(thread, None).expect("a stopped thread");
        service.expect("WATCHDOG=1");
    }
    assert!(service.log().matches("answer the watchdog again").count() >= 4);
}

/// Returns function `NAME` as text of a file of settings.
fn function(name: &str, number: u8) -> String {
    format!(
        "[[function]]\nname = '{name}'\nmac = '52:54:00:00:00:{number:02x}'\n\
         socket = '@{name}.sock'\n"
    )
}

#[test]
fn a_reload_adds_what_is_new_and_names_what_cannot_change() {
    let [b, c] = [function("b", 0x0b), function("c", 0x0c)];
    let folder = tempfile::tempdir().expect("a folder");
    let common = "control = '@control'\n";
    let lanes = "[[lanes]]\nport = 'b'\nrate = '1G'\n";
    let path = write_settings(&folder, &format!("{common}log = 'error'\n{b}{c}{lanes}"));
    let service = Service::start_in(folder, &["--config", path.to_str().expect("text")]);
    UnixStream::connect(service.path("c.sock")).expect("a function of the start");
    assert!(!service.log().contains("INFO"), "the filter of the start");

    // Function b is changed, c and the lanes of b are missing, and d, a port and an uplink are new.
    let moved = function("b", 0x1b);
    let d = function("d", 0x0d);
    let rest = "[[port]]\nname = 'p'\nnet = '@p'\n[[uplink]]\nname = 'u'\nlisten = '@u'\n";
    service.reload(&format!("{common}log = 'info'\nworkers = 3\n{moved}{d}{rest}"));
    let log = service.log();
    for part in [
        "INFO vrnicd: the settings are reloaded log=\"info\"",
        "a change of workers takes effect when the daemon is started again",
        "function b keeps its earlier settings",
        "vrnic function remove c",
        "vrnic lanes clear b",
        "function d was added",
        "port p was added",
        "uplink u was added",
    ] {
        assert!(log.contains(part), "no '{part}'");
    }
    assert_eq!(log.matches("WARN").count(), 4);
    for name in ["a.sock", "b.sock", "c.sock", "d.sock", "p"] {
        UnixStream::connect(service.path(name)).expect(name);
    }

    // If the settings have a fault, nothing is changed, and the daemon goes on.
    service.reload(&format!("{common}log = 'debug'\nworkers = 'x'\n{b}"));
    assert!(service.log().contains("ERROR vrnicd: the settings were not reloaded"));
    // The log names what cannot be added. The rest is added.
    let bad = "[[function]]\nname = 'e'\nmac = '52:54:00:00:00:0e'\nsocket = '/nonexistent/e'\n";
    let f = function("f", 0x0f);
    service.reload(&format!("{common}log = 'info'\n{bad}{f}"));
    assert!(service.log().contains("function e cannot be added: cannot listen for a VMM"));
    UnixStream::connect(service.path("f.sock")).expect("function f");
    assert!(!service.log().contains("DEBUG"), "the filter of settings that were refused");
}
