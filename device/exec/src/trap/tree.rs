//! The files that programs see in sysfs and in `/dev`, in a temporary folder. Folders there are
//! real ones, so programs read them, and open files relative to them, without help.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::net::Ipv6Addr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;
use vrnic_abi::admin::STAT_NAMES;
use vrnic_abi::pci;

use super::paths::RDMA_CM;
use super::stat::DeviceNumber;

/// Begin of the name of the folder.
const PREFIX: &str = "vrnic-exec.";
/// Version of the interface of device files (`IB_USER_VERBS_ABI_VERSION` in
/// rdma/ib_user_verbs.h).
const VERBS_ABI: u32 = 6;
/// Version of the interface of the connection manager (`RDMA_USER_CM_ABI_VERSION` in
/// rdma/rdma_user_cm.h).
const CM_ABI: u32 = 4;

/// What the tree says of an adapter.
#[derive(Clone, Debug)]
pub struct Face {
    /// The name of the adapter.
    pub name: String,
    /// The GUID of the adapter.
    pub guid: [u8; 8],
    /// The GIDs of the adapter.
    pub gids: Vec<[u8; 16]>,
    /// The network interface that its GIDs belong to.
    pub interface: &'static str,
    /// Version of the adapter.
    pub version: String,
}

/// The folder. It is removed when this is dropped.
#[derive(Debug)]
pub struct Tree {
    folder: TempDir,
    /// Holds a lock on the folder, which ends with this process.
    _lock: File,
}

impl Tree {
    /// Creates the files of these adapters, in the first folder of `XDG_RUNTIME_DIR`, `/dev/shm`
    /// and `TMPDIR` that permits it. Removes those of earlier runs that were killed.
    ///
    /// # Errors
    /// Says that no folder permits it.
    pub fn new(adapters: &[Face]) -> anyhow::Result<Self> {
        let mut tried = String::new();
        for place in places().into_iter().flat_map(|place| [place.clone(), place]) {
            // The second try is for a folder that another start has taken for a leftover.
            remove_leftovers(&place);
            match Self::at(&place, adapters) {
                Ok(tree) => return Ok(tree),
                Err(error) => write!(tried, "; {}: {error}", place.display())?,
            }
        }
        anyhow::bail!("no folder for the files of the adapters{tried}. Set TMPDIR to one")
    }

    fn at(place: &Path, adapters: &[Face]) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(place)?;
        let lock = File::open(folder.path())?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let this = Self { folder, _lock: lock };
        this.fill(adapters)?;
        // Programs of other users that this one runs may look, too.
        fs::set_permissions(this.folder.path(), fs::Permissions::from_mode(0o755))?;
        Ok(this)
    }

    /// Returns the place of a file that programs see at this absolute path.
    #[must_use]
    pub fn place(&self, path: &str) -> PathBuf {
        self.folder.path().join(path.trim_start_matches('/'))
    }

    fn fill(&self, adapters: &[Face]) -> io::Result<()> {
        let verbs = "/sys/class/infiniband_verbs";
        self.put(&format!("{verbs}/abi_version"), &format!("{VERBS_ABI}\n"))?;
        fs::create_dir_all(self.place("/dev/infiniband"))?;
        let misc = "/sys/class/misc/rdma_cm";
        self.put(&format!("{misc}/abi_version"), &format!("{CM_ABI}\n"))?;
        self.put(&format!("{misc}/dev"), &node(DeviceNumber::RDMA_CM))?;
        self.put(RDMA_CM, "")?;
        fs::create_dir_all(self.place("/sys/class/infiniband"))?;
        for (number, face) in adapters.iter().enumerate() {
            let number = u32::try_from(number).map_err(io::Error::other)?;
            let folder = format!("{verbs}/uverbs{number}");
            self.put(&format!("{folder}/ibdev"), &format!("{}\n", face.name))?;
            let version = vrnic_abi::UVERBS_ABI_VERSION;
            self.put(&format!("{folder}/abi_version"), &format!("{version}\n"))?;
            self.put(&format!("{folder}/dev"), &node(DeviceNumber::adapter(number)))?;
            self.put(&format!("/dev/infiniband/uverbs{number}"), "")?;
            self.device(&format!("{folder}/device"))?;
            self.adapter(face)?;
        }
        Ok(())
    }

    /// Writes the files of an adapter that sysfs has below `/sys/class/infiniband`.
    fn adapter(&self, face: &Face) -> io::Result<()> {
        let folder = format!("/sys/class/infiniband/{}", face.name);
        let guid = group(&face.guid);
        for (name, text) in [
            ("node_type", "1: CA"),
            ("node_guid", &*guid),
            ("sys_image_guid", &*guid),
            ("node_desc", "vrnic"),
            ("fw_ver", &*face.version),
        ] {
            self.put(&format!("{folder}/{name}"), &format!("{text}\n"))?;
        }
        self.device(&format!("{folder}/device"))?;
        fs::create_dir_all(self.place(&format!("{folder}/device/net/{}", face.interface)))?;
        let port = format!("{folder}/ports/1");
        for (name, text) in [
            ("state", "4: ACTIVE"),
            ("phys_state", "5: LinkUp"),
            ("link_layer", "Ethernet"),
            ("lid", "0x0"),
            ("sm_lid", "0x0"),
            ("lid_mask_count", "0"),
            ("sm_sl", "0"),
            ("cap_mask", "0x04010000"),
            ("rate", "100 Gb/sec (4X EDR)"),
            ("pkeys/0", "0xffff"),
        ] {
            self.put(&format!("{port}/{name}"), &format!("{text}\n"))?;
        }
        // A program that opens one of these files gets the value at that moment.
        for name in STAT_NAMES {
            self.put(&format!("{port}/hw_counters/{name}"), "0\n")?;
        }
        for (index, gid) in face.gids.iter().enumerate() {
            self.put(&format!("{port}/gids/{index}"), &format!("{}\n", group(gid)))?;
            self.put(&format!("{port}/gid_attrs/types/{index}"), "RoCE v2\n")?;
            let interface = format!("{}\n", face.interface);
            self.put(&format!("{port}/gid_attrs/ndevs/{index}"), &interface)?;
        }
        Ok(())
    }

    /// Writes the files of a PCI device, by which libibverbs finds the plugin.
    fn device(&self, folder: &str) -> io::Result<()> {
        let (vendor, device) = (pci::VENDOR_ID, pci::DEVICE_ID);
        let modalias = format!(
            "pci:v{vendor:08X}d{device:08X}sv00001AF4sd{:08X}bc02sc07i00\n",
            pci::SUBSYSTEM_ID
        );
        self.put(&format!("{folder}/modalias"), &modalias)?;
        self.put(&format!("{folder}/vendor"), &format!("{vendor:#06x}\n"))?;
        self.put(&format!("{folder}/device"), &format!("{device:#06x}\n"))?;
        self.put(&format!("{folder}/numa_node"), "-1\n")
    }

    fn put(&self, path: &str, text: &str) -> io::Result<()> {
        let place = self.place(path);
        if let Some(folder) = place.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&place, text)?;
        fs::set_permissions(&place, fs::Permissions::from_mode(0o444))
    }
}

/// Returns the number of a device, as sysfs has it.
fn node(number: DeviceNumber) -> String {
    format!("{}:{}\n", number.major, number.minor)
}

/// Returns the folders that may hold the tree, in the order in which they are tried.
fn places() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    runtime.into_iter().chain([PathBuf::from("/dev/shm"), std::env::temp_dir()]).collect()
}

/// Removes the folders of runs that were killed, which nobody holds a lock on any more.
fn remove_leftovers(place: &Path) {
    let Ok(entries) = fs::read_dir(place) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        // Another user may have put a file there that is no folder.
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let folder = fs::OpenOptions::new().read(true).custom_flags(flags).open(entry.path());
        let Ok(folder) = folder else { continue };
        if flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // Those of other users stay.
            let _kept = fs::remove_dir_all(entry.path());
        }
    }
}

/// Returns bytes in groups of two, as sysfs has GUIDs and GIDs.
fn group(bytes: &[u8]) -> String {
    let groups: Vec<_> = bytes
        .chunks(2)
        .map(|pair| pair.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}")))
        .collect();
    groups.join(":")
}

/// Returns the GID of an IPv4 address.
#[must_use]
pub fn ipv4_gid(address: std::net::Ipv4Addr) -> [u8; 16] {
    address.to_ipv6_mapped().octets()
}

/// Returns the link-local GID of a MAC (RFC 4291, appendix A).
#[must_use]
pub fn link_local_gid(mac: [u8; 6]) -> [u8; 16] {
    let [a, b, c, d, e, f, g, h] = guid(mac);
    let pair = |high, low| u16::from_be_bytes([high, low]);
    Ipv6Addr::new(0xfe80, 0, 0, 0, pair(a, b), pair(c, d), pair(e, f), pair(g, h)).octets()
}

/// Returns the GUID of a MAC (EUI-64 with the bit for universal addresses inverted).
#[must_use]
pub fn guid(mac: [u8; 6]) -> [u8; 8] {
    let [a, b, c, d, e, f] = mac;
    [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn face() -> Face {
        Face {
            name: "vrnic0".to_owned(),
            guid: guid([0x52, 0x54, 0, 0, 0, 1]),
            gids: vec![
                link_local_gid([0x52, 0x54, 0, 0, 0, 1]),
                ipv4_gid(std::net::Ipv4Addr::LOCALHOST),
            ],
            interface: "lo",
            version: "0.1.0".to_owned(),
        }
    }

    #[test]
    fn the_files_are_those_of_sysfs_and_leave_with_the_tree() {
        let tree = Tree::new(&[face()]).expect("a folder");
        let read = |path: &str| fs::read_to_string(tree.place(path)).expect("a file");
        let device = "/sys/class/infiniband/vrnic0";
        assert_eq!(read(&format!("{device}/node_guid")), "5054:00ff:fe00:0001\n");
        let gid = read(&format!("{device}/ports/1/gids/1"));
        assert_eq!(gid, "0000:0000:0000:0000:0000:ffff:7f00:0001\n");
        let modalias = read("/sys/class/infiniband_verbs/uverbs0/device/modalias");
        assert_eq!(modalias, "pci:v00001234d0000524Esv00001AF4sd00000001bc02sc07i00\n");
        let folder = tree.folder.path().to_owned();
        drop(tree);
        assert!(!folder.exists());
    }

    #[test]
    fn folders_of_killed_runs_are_removed_and_those_in_use_are_not() {
        let place = TempDir::new().expect("a folder");
        let dead = place.path().join(format!("{PREFIX}dead"));
        fs::create_dir(&dead).expect("a folder");
        let living = Tree::at(place.path(), &[face()]).expect("a folder");
        remove_leftovers(place.path());
        assert!(!dead.exists() && living.folder.path().exists());
    }
}
