//! Two functions, in one daemon or in two, and the command `vrnic`.

use std::process::{Command, Output};

use serde_json::Value;
use vrnic_abi::admin::Stats;
use vrnic_abi::qp::Attr;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::vmm::daemon::Daemon;
use vrnic_testdriver::vmm::vfio::{Endpoint, Guest};
use vrnic_testdriver::wait;

use super::switch::Folder;

/// Two functions, `f0` and `f1`.
pub(crate) struct World {
    pub(crate) folder: Folder,
    pub(crate) daemons: Vec<Daemon>,
    pub(crate) guests: [Guest; 2],
}

impl World {
    /// Starts both functions in one daemon, which uses packets.
    pub(crate) fn one() -> Self {
        Self::with_fabric("wire")
    }

    /// Starts both functions in one daemon, which uses packets (`wire`) or memory copies.
    pub(crate) fn with_fabric(fabric: &str) -> Self {
        let folder = Folder::new();
        let options = [("--fabric", fabric), ("--control", "@control"), ("--monitor", "@monitor")];
        let daemon = folder.daemon(2, &options);
        let guests = super::pair(&daemon);
        Self::ready(folder, vec![daemon], guests)
    }

    /// Starts the functions in two daemons, which are joined by a trunk. The first daemon has the
    /// control socket `control`, the second one `control1`.
    pub(crate) fn two() -> Self {
        let folder = Folder::new();
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_vrnicd"));
        let controls = ["@control", "@control1"].map(|path| folder.settings(path));
        let [listen, connect] =
            ["name=up,listen=@t", "name=up,connect=@t"].map(|uplink| folder.settings(uplink));
        let first = ["--uplink", listen.as_str(), "--control", controls[0].as_str()];
        let second = ["--uplink", connect.as_str(), "--control", controls[1].as_str()];
        let daemons = vec![
            Daemon::start_range(program, 0..1, &first).expect("vrnicd starts"),
            Daemon::start_range(program, 1..2, &second).expect("vrnicd starts"),
        ];
        daemons.iter().for_each(|daemon| daemon.wait_for_log("link up port=\"up\""));
        let guests = [daemons[0].ready_guest(0), daemons[1].ready_guest(1)];
        Self::ready(folder, daemons, guests)
    }

    pub(crate) fn ready(folder: Folder, daemons: Vec<Daemon>, guests: [Guest; 2]) -> Self {
        wait::until("control socket", || folder.path("control").exists().then_some(()));
        Self { folder, daemons, guests }
    }

    /// Runs a command of `vrnic` for the first daemon.
    pub(crate) fn vrnic(&self, args: &str) -> Output {
        self.vrnic_at("control", args)
    }

    /// Runs a command of `vrnic` for the daemon with this control socket.
    fn vrnic_at(&self, control: &str, args: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vrnic"));
        command.arg("--control").arg(self.folder.path(control));
        command.arg("--monitor").arg(self.folder.path("monitor"));
        command.args(args.split_whitespace()).output().expect("vrnic runs")
    }

    /// Runs a command, which must succeed. Returns its output.
    #[track_caller]
    pub(crate) fn said(&self, args: &str) -> String {
        self.said_at("control", args)
    }

    /// Runs a command for the daemon with this control socket, as [`Self::said`] does.
    #[track_caller]
    fn said_at(&self, control: &str, args: &str) -> String {
        let output = self.vrnic_at(control, args);
        assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Runs a command, which must succeed, for each daemon.
    #[track_caller]
    pub(crate) fn said_by_all(&self, args: &str) {
        for control in ["control", "control1"].into_iter().take(self.daemons.len()) {
            self.said_at(control, args);
        }
    }

    /// Replaces all rules for faults by this one.
    #[track_caller]
    pub(crate) fn rule(&self, text: &str) {
        self.said("fault clear");
        assert_eq!(self.said(&format!("fault add {text}")), "rule 1\n");
    }

    /// Returns the value of a numeric field of the first rule.
    pub(crate) fn first(&self, field: &str) -> u64 {
        let list: Value = serde_json::from_str(&self.said("fault list --json")).expect("JSON");
        list["rules"][0][field].as_u64().expect("a number")
    }

    pub(crate) fn connected(&self, tune: impl Fn(&mut Attr)) -> [Endpoint; 2] {
        let [a, b] = self.guests.each_ref().map(|guest| Endpoint::new(guest, Setup::default()));
        a.connect(self.guests[1].mac(), b.qpn, &tune);
        b.connect(self.guests[0].mac(), a.qpn, &tune);
        [a, b]
    }

    /// Returns the counters of `f0` and `f1`.
    pub(crate) fn stats(&self) -> [Stats; 2] {
        self.guests.each_ref().map(|guest| guest.stats())
    }

    pub(crate) fn check(mut self) {
        self.daemons.iter_mut().for_each(Daemon::check);
    }
}
