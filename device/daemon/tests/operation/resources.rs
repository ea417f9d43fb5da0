//! The table of resources: admission of functions, their own maxima, and changes at run time.
//!
//! Shows: resources

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output};

use rustix::process::Signal;
use serde_json::Value;
use vrnic_abi::admin::{Opcode, Status};
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::vmm::daemon::{Daemon, mac};
use vrnic_testdriver::vmm::vfio::Guest;
use vrnic_testdriver::wait;

use crate::common::switch::Folder;

const FULL: Refused = Refused(Status::NoResource, 0);

/// A daemon with a control socket and a monitor.
struct Host {
    folder: Folder,
    daemon: Daemon,
}

impl Host {
    /// Starts a daemon with these options, in which '@' is replaced by its folder.
    fn start(options: &[(&str, &str)]) -> Self {
        Self::start_in(Folder::new(), options)
    }

    fn start_in(folder: Folder, options: &[(&str, &str)]) -> Self {
        let sockets = [("--control", "@control"), ("--monitor", "@monitor")];
        let daemon = folder.daemon(0, &[&sockets[..], options].concat());
        wait::until("control socket", || UnixStream::connect(folder.path("control")).ok());
        Self { folder, daemon }
    }

    /// Runs a command of `vrnic`.
    fn vrnic(&self, args: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vrnic"));
        command.arg("--control").arg(self.folder.path("control"));
        command.arg("--monitor").arg(self.folder.path("monitor"));
        let args = self.folder.settings(args);
        command.args(args.split_whitespace()).output().expect("vrnic runs")
    }

    /// Returns the output of a command, which must succeed.
    #[track_caller]
    fn said(&self, args: &str) -> String {
        let output = self.vrnic(args);
        assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Returns the reason for which a command is refused.
    #[track_caller]
    fn refused(&self, args: &str) -> String {
        let output = self.vrnic(args);
        assert!(!output.status.success(), "{args} was accepted");
        String::from_utf8(output.stderr).expect("text")
    }

    fn rows(&self) -> Vec<Value> {
        let rows = self.said("resources --json");
        serde_json::from_str::<Value>(&rows).expect("JSON").as_array().expect("rows").clone()
    }

    /// Returns the maximum and the number in use of a resource. The name of row 0 is "".
    fn amounts(&self, function: &str, resource: &str) -> [u64; 2] {
        let rows = self.rows();
        let row = rows.iter().find(|row| row["function"].as_str().unwrap_or("") == function);
        let amounts = &row.expect("a row")["resources"][resource];
        ["maximum", "actual"].map(|key| amounts[key].as_u64().expect("a number"))
    }

    /// Returns the guest of a function, with the MAC of number `index`.
    fn guest(&self, name: &str, index: usize) -> Guest {
        let guest = Guest::connect(&self.folder.path(name), mac(index)).expect("a VMM");
        guest.bring_up();
        guest
    }
}

/// Returns the settings of a function with these resources.
fn function(name: &str, index: usize, resources: &str) -> String {
    let mac = mac(index).map(|byte| format!("{byte:02x}")).join(":");
    format!("name={name},mac={mac},socket=@{name},resources={resources}")
}

fn alloc_pd(guest: &Guest) -> Result<u32, Refused> {
    guest.on_object(Opcode::AllocPd, 0)
}

#[test]
fn a_function_is_admitted_while_all_of_its_resources_are_left() {
    let options = [("--resource", "pd=10"), ("--resource", "device-memory=100")];
    let mut host = Host::start(&options);
    let add = |name, index, resources| format!("function add {}", function(name, index, resources));
    host.said(&add("a", 0, "pd:6/device-memory:40"));
    assert_eq!(host.amounts("", "pd"), [10, 6]);
    let why = host.refused(&add("b", 1, "pd:5/device-memory:40"));
    let text = "out of resources: 5 of pd were requested, and 4 of 10 are left";
    assert!(why.contains(text), "{why}");
    let why = host.refused(&add("b", 1, "pd:4/device-memory:62"));
    assert!(why.contains("out of resources: 65011712 of device-memory"), "{why}");
    assert!(!host.folder.path("b").exists());
    assert_eq!((host.rows().len(), host.amounts("", "pd")), (2, [10, 6]), "nothing has changed");
    // Equality passes.
    host.said(&add("b", 1, "pd:4/device-memory:60"));
    assert_eq!(host.amounts("", "pd"), [10, 10]);
    assert_eq!(host.amounts("", "device-memory"), [100 << 20; 2]);
    host.refused(&add("c", 2, "pd:1/device-memory:0"));
    host.said("function remove a");
    host.said(&add("c", 2, "pd:6/device-memory:0"));
    let rows = host.rows();
    let names: Vec<_> = rows.iter().map(|row| (&row["row"], &row["function"])).collect();
    let expected = [(0.into(), Value::Null), (1.into(), "c".into()), (2.into(), "b".into())];
    assert_eq!(names, expected.iter().map(|(row, name)| (row, name)).collect::<Vec<_>>());
    host.daemon.check();
}

#[test]
fn contradictory_settings_are_refused_with_their_line() {
    let folder = Folder::new();
    let path = folder.path("vrnicd.toml");
    let functions = |resources: &str| {
        format!(
            "[limit]\nqp = 50\n[resources]\npd = 10\n\
             [[function]]\nname = 'a'\nmac = '52:54:00:00:00:0a'\nsocket = '/run/a'\n\
             resources = {{ pd = 6 }}\n\
             [[function]]\nname = 'b'\nmac = '52:54:00:00:00:0b'\nsocket = '/run/b'\n{resources}\n"
        )
    };
    let check_text = |settings: &str| {
        fs::write(&path, settings).expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_vrnicd"));
        let output = command.args(["--check", "--config"]).arg(&path).output().expect("it runs");
        (output.status.success(), String::from_utf8(output.stderr).expect("text"))
    };
    let check = |resources: &str| check_text(&functions(resources));
    let (valid, why) = check("resources = { pd = 4, qp = 50 }");
    assert!(valid, "{why}");
    for (resources, line, part) in [
        ("resources = { pd = 5 }", "line 14", "function b: out of resources: 5 of pd"),
        ("", "line 10", "function b: out of resources: 32768 of pd"),
        ("resources = { qp = 51, pd = 1 }", "line 14", "qp is 51; it must be from 1 to 50"),
        ("resources = { cats = 1 }", "line 14", "no resource 'cats'"),
        ("resources = { pd = 1, pd = 2 }", "line 14", "duplicate key"),
    ] {
        let (valid, why) = check(resources);
        assert!(!valid && why.contains(line) && why.contains(part), "{resources}: {why}");
    }
    for (settings, line, part) in [
        ("[limit]\nqp = 32769\n", "line 1", "qp is 32769; it must be from 1 to 32768"),
        ("\n[resources]\nqp = 8388609\n", "line 2", "qp is 8388609"),
        ("[limit]\ncats = 1\n", "line 1", "no resource 'cats'"),
    ] {
        let (valid, why) = check_text(settings);
        assert!(!valid && why.contains(line) && why.contains(part), "{settings}: {why}");
    }
}

#[test]
fn a_guest_learns_the_maximum_of_its_own_function() {
    let (a, b) = (function("a", 0, "pd:2/qp:7/mr:9/mcast:5"), function("b", 1, "qp:8"));
    let mut host = Host::start(&[("--function", &a), ("--function", &b), ("--limit", "cq=40")]);
    let opened = |host: &Host| {
        let rows = host.rows();
        rows.iter().map(|row| row["opened"].as_bool()).collect::<Vec<_>>()
    };
    assert_eq!(opened(&host), [None, Some(false), Some(false)]);
    let guest = host.guest("a", 0);
    assert_eq!(opened(&host), [None, Some(true), Some(false)]);
    let caps = guest.caps();
    let told = [caps.max_pd, caps.max_qp, caps.max_mr, caps.max_mcast_groups, caps.max_cq];
    assert_eq!(told.map(|number| number.get()), [2, 7, 9, 5, 40]);
    let caps = host.guest("b", 1).caps();
    assert_eq!([caps.max_pd, caps.max_qp].map(|number| number.get()), [32768, 8]);

    let first = alloc_pd(&guest).expect("the first");
    alloc_pd(&guest).expect("the second");
    assert_eq!((alloc_pd(&guest), host.amounts("a", "pd")), (Err(FULL), [2, 2]));
    guest.on_object(Opcode::FreePd, first).expect("freed");
    assert_eq!((host.amounts("a", "pd"), host.amounts("b", "pd")), ([2, 1], [32768, 0]));
    let row = &host.rows()[1];
    assert_eq!((&row["mac"], &row["port"]), (&"52:54:00:00:00:0a".into(), &"a".into()));
    assert_eq!(row["resources"]["wr"]["actual"], Value::Null);

    let table = host.said("resources --function a");
    let line = table.lines().find(|line| line.contains(" pd ")).expect("a line");
    let cells: Vec<_> = line.split_whitespace().collect();
    assert_eq!(cells, ["1", "a", "52:54:00:00:00:0a", "a", "yes", "pd", "2", "1"]);
    let metrics = host.said("metrics");
    for line in [
        "vrnic_resource_maximum{resource=\"pd\",function=\"a\"} 2",
        "vrnic_resource_actual{resource=\"pd\",function=\"a\"} 1",
        "vrnic_physical_maximum{resource=\"qp\"} 524288",
        "vrnic_physical_assigned{resource=\"qp\"} 15",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is missing in\n{metrics}");
    }
    assert!(!metrics.contains("resource_actual{resource=\"wr\""));
    host.daemon.check();
}

#[test]
fn a_maximum_changes_while_the_guest_runs() {
    let a = function("a", 0, "pd:3");
    let mut host = Host::start(&[("--function", &a), ("--resource", "pd=10")]);
    let guest = host.guest("a", 0);
    let pds = [(); 3].map(|()| alloc_pd(&guest).expect("a PD"));
    assert_eq!(alloc_pd(&guest), Err(FULL));
    host.said("assign --function a pd=4 qp=9");
    assert_eq!([guest.caps().max_pd, guest.caps().max_qp].map(|number| number.get()), [4, 9]);
    alloc_pd(&guest).expect("one more");

    for (args, part) in [
        ("--function a pd=11", "out of resources: 11 of pd were requested, and 10 of 10 are left"),
        ("--function a pd=3 qp=8", "4 of pd are in use, more than 3"),
        ("--function a pd=0", "pd is 0"),
        ("--function a pd=5 pd=6", "pd is given twice"),
        ("--function a cats=5", "no resource 'cats'"),
        ("--function a device-memory=2", "device memory"),
        ("--function b pd=5", "no function 'b'"),
        ("pd=3", "4 of pd are assigned to functions, more than 3"),
    ] {
        let why = host.refused(&format!("assign {args}"));
        assert!(why.contains(part), "{args}: {why}");
    }
    assert_eq!((host.amounts("a", "pd"), host.amounts("a", "qp")), ([4, 4], [9, 0]));

    host.said("assign --function a pd=2 --drain");
    assert_eq!(host.amounts("a", "pd"), [2, 4]);
    for pd in pds {
        assert_eq!(alloc_pd(&guest), Err(FULL));
        guest.on_object(Opcode::FreePd, pd).expect("freed");
    }
    alloc_pd(&guest).expect("the number is below the maximum");
    assert_eq!((alloc_pd(&guest), host.amounts("", "pd")), (Err(FULL), [10, 2]));
    host.daemon.check();
}

#[test]
fn what_all_functions_have_together_changes_or_drains() {
    let a = function("a", 0, "pd:6");
    let mut host = Host::start(&[("--function", &a), ("--resource", "pd=10")]);
    host.said("assign pd=7");
    let add = format!("function add {}", function("b", 1, "pd:2"));
    assert!(host.refused(&add).contains("1 of 7 are left"));
    host.said("assign pd=5 --drain");
    assert!(host.refused(&add).contains("0 of 5 are left"));
    assert_eq!(host.amounts("", "pd"), [5, 6]);
    host.said("assign --function a pd=3");
    host.said(&add);
    assert_eq!(host.amounts("", "pd"), [5, 5]);
    host.daemon.check();
}

#[test]
fn a_reload_changes_resources() {
    let folder = Folder::new();
    let path = folder.path("vrnicd.toml");
    let config = path.to_str().expect("text").to_owned();
    let sockets = ["a", "b"].map(|name| folder.path(name));
    let write = move |physical: u32, [a, b]: [u32; 2]| {
        let function = |name: &str, mac: &str, socket: &Path, pd: u32| {
            format!(
                "[[function]]\nname = '{name}'\nmac = '52:54:00:00:00:{mac}'\n\
                 socket = '{}'\nresources = {{ pd = {pd} }}\n",
                socket.display()
            )
        };
        let functions =
            [function("a", "0a", &sockets[0], a), function("b", "0b", &sockets[1], b)].concat();
        fs::write(&path, format!("[resources]\npd = {physical}\n{functions}")).expect("a file");
    };
    write(10, [4, 6]);
    let mut host = Host::start_in(folder, &[("--config", &config)]);
    // `a` comes first, and gets what `b` gives up.
    write(10, [7, 3]);
    host.daemon.signal(Signal::HUP);
    wait::until("a's maximum", || (host.amounts("a", "pd")[0] == 7).then_some(()));
    assert_eq!((host.amounts("b", "pd")[0], host.amounts("", "pd")), (3, [10, 10]));
    // Less for all, and less for each.
    write(5, [3, 2]);
    host.daemon.signal(Signal::HUP);
    wait::until("less", || (host.amounts("", "pd") == [5, 5]).then_some(()));

    let guest = host.guest("a", 0);
    (0..3).for_each(|_| assert!(alloc_pd(&guest).is_ok()));
    write(5, [2, 3]);
    host.daemon.signal(Signal::HUP);
    host.daemon.wait_for_log("function a: 3 of pd are in use, more than 2");
    assert_eq!((host.amounts("a", "pd"), host.amounts("b", "pd")), ([3, 3], [2, 0]));
    // A contradictory file changes nothing.
    write(4, [3, 2]);
    host.daemon.signal(Signal::HUP);
    host.daemon.wait_for_log("function b: out of resources: 2 of pd");
    assert_eq!(host.amounts("", "pd"), [5, 5]);
    host.daemon.check();
}
