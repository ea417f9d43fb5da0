//! What clients see of a running `vrnic exec`, and what they can change: its monitor and its
//! control socket, which are those of the daemon (docs/monitor.md, docs/faults.md).
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`shown`] | what the monitor shows |
//! | [`requests`] | what clients can ask for |
//! | [`files`] | captures and timelines in files |
//! | [`report`] | a report on a run in a file |

pub mod files;
pub mod report;
pub mod requests;
pub mod shown;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;
use vrnic_control::monitor::Monitor;
use vrnic_control::reconfig::Reconfig;
use vrnic_control::socket::access::{Access, SocketMode};
use vrnic_control_api::Address;

use self::requests::Requests;
use self::shown::Shown;

/// The names of the sockets in their folder, as below `/run/vrnic`.
const MONITOR: &str = "monitor.sock";
const CONTROL: &str = "control.sock";
/// The environment variables by which the command `vrnic` finds the sockets.
const VARIABLES: [(&str, &str); 2] = [("VRNIC_MONITOR", MONITOR), ("VRNIC_CONTROL", CONTROL)];

/// The sockets. They are closed when this is dropped.
#[derive(Debug)]
pub struct Sockets {
    folder: PathBuf,
    _reconfig: Reconfig,
    _monitor: Monitor,
}

impl Sockets {
    /// Listens in this folder. Only the user of this process can connect.
    ///
    /// # Errors
    /// Says which socket cannot be used, or that no thread can be started.
    pub fn open(folder: &Path, shown: &Shown) -> anyhow::Result<Self> {
        let access = Access { mode: SocketMode(0o600), group: None };
        let address = Address::Path(folder.join(MONITOR));
        let monitor = Monitor::start(&address, &access, shown.clone())
            .context("the monitor cannot be started")?;
        let requests = Requests::new(&shown.drivers, &shown.traffic);
        let handle = Box::new(move |request| requests.handle(request));
        let reconfig = Reconfig::start(&folder.join(CONTROL), || (), handle)
            .context("the control socket cannot be opened")?;
        Ok(Self { folder: folder.to_owned(), _reconfig: reconfig, _monitor: monitor })
    }

    /// Returns the environment variables by which programs find the sockets.
    #[must_use]
    pub fn environment(&self) -> [(OsString, OsString); 2] {
        VARIABLES.map(|(variable, name)| (variable.into(), self.folder.join(name).into()))
    }
}
