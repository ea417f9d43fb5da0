//! Two daemons that are joined by an uplink.

use std::path::Path;

use vrnic_abi::qp::Attr;
use vrnic_testdriver::qp::Setup;
use vrnic_testdriver::vmm::daemon::Daemon;
use vrnic_testdriver::vmm::vfio::{Endpoint, Guest};

use super::switch::Folder;

/// Two daemons, each with a function.
pub(crate) struct Joined {
    pub(crate) daemons: [Daemon; 2],
    pub(crate) guests: [Guest; 2],
    pub(crate) folder: Folder,
}

impl Joined {
    /// Starts the daemons with their sockets in this folder, and with these arguments, which
    /// contain an uplink with the name `up`. A '@' is replaced by the folder.
    pub(crate) fn start(folder: Folder, arguments: [&[&str]; 2]) -> Self {
        let daemons = [0, 1].map(|number| {
            let texts: Vec<_> =
                arguments[number].iter().map(|text| folder.settings(text)).collect();
            let args: Vec<_> = texts.iter().map(String::as_str).collect();
            let program = Path::new(env!("CARGO_BIN_EXE_vrnicd"));
            Daemon::start_range(program, number..number + 1, &args).expect("vrnicd starts")
        });
        daemons.iter().for_each(|daemon| daemon.wait_for_log("link up port=\"up\""));
        let guests = [daemons[0].ready_guest(0), daemons[1].ready_guest(1)];
        Self { daemons, guests, folder }
    }

    /// Starts two daemons with a trunk between them.
    pub(crate) fn by_trunk() -> Self {
        let ends = ["name=up,listen=@trunk", "name=up,connect=@trunk"];
        Self::start(Folder::new(), [&["--uplink", ends[0]], &["--uplink", ends[1]]])
    }

    /// Returns endpoints with a connection between them.
    pub(crate) fn connected(&self, setup: Setup, tune: impl Fn(&mut Attr)) -> [Endpoint; 2] {
        let [a, b] = self.guests.each_ref().map(|guest| Endpoint::new(guest, setup));
        a.connect(self.guests[1].mac(), b.qpn, &tune);
        b.connect(self.guests[0].mac(), a.qpn, &tune);
        [a, b]
    }

    /// Checks that both daemons run and have not panicked.
    #[track_caller]
    pub(crate) fn check(&mut self) {
        self.daemons.iter_mut().for_each(Daemon::check);
    }
}
