//! Two functions, in one daemon or in two, and the command `vrnic`.

use std::process::{Command, Output};

use serde_json::Value;
use vrnic_abi::admin::Stats;
use vrnic_abi::qp::Attr;
use vrnic_testdriver::daemon::Daemon;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::vfio::{Endpoint, Guest};
use vrnic_testdriver::wait;

use super::switch::Folder;

/// Functions `f0` and `f1`.
pub(crate) struct World {
    pub(crate) folder: Folder,
    pub(crate) daemons: Vec<Daemon>,
    pub(crate) guests: [Guest; 2],
}

impl World {
    /// Both in one daemon, which carries packets.
    pub(crate) fn one() -> Self {
        Self::with_fabric("wire")
    }

    /// Both in one daemon, which carries packets (`wire`) or copies.
    pub(crate) fn with_fabric(fabric: &str) -> Self {
        let folder = Folder::new();
        let options = [("--fabric", fabric), ("--control", "@control"), ("--monitor", "@monitor")];
        let daemon = folder.daemon(2, &options);
        let guests = super::pair(&daemon);
        Self::ready(folder, vec![daemon], guests)
    }

    /// In two daemons, joined by a trunk. The control socket is that of the first.
    pub(crate) fn two() -> Self {
        let folder = Folder::new();
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_vrnicd"));
        let control = folder.settings("@control");
        let [listen, connect] =
            ["name=up,listen=@t", "name=up,connect=@t"].map(|uplink| folder.settings(uplink));
        let first = ["--uplink", listen.as_str(), "--control", control.as_str()];
        let second = ["--uplink", connect.as_str()];
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

    pub(crate) fn vrnic(&self, args: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vrnic"));
        command.arg("--control").arg(self.folder.path("control"));
        command.arg("--monitor").arg(self.folder.path("monitor"));
        command.args(args.split_whitespace()).output().expect("vrnic runs")
    }

    /// Runs a command, which must succeed. Returns its output.
    #[track_caller]
    pub(crate) fn said(&self, args: &str) -> String {
        let output = self.vrnic(args);
        assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
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

    /// Counters of `f0` and `f1`.
    pub(crate) fn stats(&self) -> [Stats; 2] {
        self.guests.each_ref().map(|guest| guest.stats())
    }

    pub(crate) fn check(mut self) {
        self.daemons.iter_mut().for_each(Daemon::check);
    }
}
