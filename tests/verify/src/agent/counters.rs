//! The counters of the device, as the kernel shows them to everybody.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use super::objects::Objects;
use crate::verbs::context::PORT;

/// The kernel keeps values for 10 ms before it asks the driver again.
const LIFESPAN: Duration = Duration::from_millis(30);

/// Folders of counters of a port.
const FOLDERS: [&str; 2] = ["hw_counters", "counters"];

impl Objects {
    /// All counters of the port that are numbers; none when the device has no folder of them.
    pub(super) fn counters(&self) -> io::Result<BTreeMap<String, u64>> {
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
}
