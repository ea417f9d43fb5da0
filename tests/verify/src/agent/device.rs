//! The device: its attributes, counters and clocks.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::calls::calls;
use super::objects::Objects;
use crate::rpc::values::Times;
use vrnic_verbs::context::{Context, PORT};
use vrnic_verbs::model::DeviceInfo;

/// The kernel keeps values for 10 ms before it queries the driver again.
const LIFESPAN: Duration = Duration::from_millis(30);

/// Folders of counters of a port.
const FOLDERS: [&str; 2] = ["hw_counters", "counters"];

calls! { Device:
    /// Opens the device. This must be the first call to a new agent.
    fn open(&mut self, device: Option<String>) -> io::Result<DeviceInfo> {
        self.context.insert(Context::open(device.as_deref())?).info()
    }

    /// Reads the attributes of the device and its port again.
    fn query(&mut self) -> io::Result<DeviceInfo> {
        self.context()?.info()
    }

    /// Fails if no port has this number.
    fn query_port(&mut self, port: u8) -> io::Result<()> {
        self.context()?.has_port(port)
    }

    /// Reads an entry of the GID table.
    fn query_gid(&mut self, index: i32) -> io::Result<[u8; 16]> {
        self.context()?.gid(index)
    }

    /// Reads an entry of the table of partition keys.
    fn query_pkey(&mut self, index: i32) -> io::Result<u16> {
        self.context()?.pkey(index)
    }

    /// Destroys all objects, dependent objects first. Fails if an object cannot be destroyed.
    fn reset(&mut self) -> io::Result<()> {
        self.clear()
    }

    /// From now on until the next reset, creates CQs and QPs with the extended interfaces.
    fn use_extended(&mut self) -> io::Result<()> {
        self.extended = true;
        Ok(())
    }

    /// Reads the counters of the port, by name.
    fn counters(&mut self) -> io::Result<BTreeMap<String, u64>> {
        sleep(LIFESPAN);
        let port = Path::new("/sys/class/infiniband")
            .join(self.context()?.name())
            .join(format!("ports/{PORT}"));
        let mut all = BTreeMap::new();
        for folder in FOLDERS {
            let entries = match port.join(folder).read_dir() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries?,
            };
            for entry in entries {
                let entry = entry?;
                let text = std::fs::read_to_string(entry.path())?;
                if let (Ok(name), Ok(value)) =
                    (entry.file_name().into_string(), text.trim().parse())
                {
                    all.insert(name, value);
                }
            }
        }
        Ok(all)
    }

    /// Reads the clocks.
    fn clocks(&mut self) -> io::Result<Times> {
        let raw = self.context()?.raw_clock()?;
        let day = SystemTime::now().duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
        Ok(Times { raw, day: u64::try_from(day.as_nanos()).map_err(io::Error::other)? })
    }

    /// From now on, limits the memory that the agent may lock, as it would be without privileges.
    fn limit_memory(&mut self, bytes: u64) -> io::Result<()> {
        setrlimit(Resource::Memlock, Rlimit { current: Some(bytes), maximum: Some(bytes) })?;
        let mut sets = capabilities(None)?;
        sets.effective.remove(CapabilitySet::IPC_LOCK);
        Ok(set_capabilities(None, sets)?)
    }

    /// Ends the agent immediately, without destroying its objects.
    fn crash(&mut self) -> io::Result<()> {
        std::process::abort()
    }
}
