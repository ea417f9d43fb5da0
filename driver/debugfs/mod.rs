// SPDX-License-Identifier: GPL-2.0
//! The debugfs files of a device, in `/sys/kernel/debug/vrnic-<PCI address>`. Removing them waits
//! for their readers.
//!
//! | file | what it shows |
//! | --- | --- |
//! | `events` | processors, and the queues that they serve ([`vectors`]) |
//! | `admin` | the admin queue's rings |
//! | `eqs`, `cqs`, `srqs`, `qps` | queues: their rings and doorbells ([`objects`]) |
//! | `connections` | connections whose peers are reached by packets ([`objects`]) |
//! | `ranges` | the address ranges of direct transfers that have an owner |
//! | `window` | the place of the ranges, and the adapter's blocks ([`window`]) |
//! | `tpt` | the table of keys |
//! | `faults` | rules for faults, if the operator permits them ([`faults`]) |
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`vectors`] | the file `events` |
//! | [`objects`] | the files that list the adapter's objects |
//! | [`window`] | the file `window` |
//! | [`faults`] | the file `faults` |
//! | [`permission`] | the permission that this file demands |
//! | [`query`] | queries to the adapter about its objects (INSPECT) |
//! | [`format`] | lines of names and values |

use abi::admin::{
    ConnectionRecord,
    CqRecord,
    EqRecord,
    KeyRecord,
    QpRecord,
    SrqRecord,
    fields::Record, //
};
use kernel::{
    debugfs::{Dir, File},
    device,
    prelude::*,
    str::{CStr, CString},
    sync::Arc,
};

use self::{faults::Faults, objects::Listing, query::Inspector, window::Window};
use crate::{
    direct::ranges::{Owners, Ranges},
    hw::admin::{Admin, AdminState},
    quiesce::Liveness,
};

mod faults;
mod format;
mod objects;
mod permission;
pub(crate) mod query;
mod vectors;
mod window;

pub(crate) use self::vectors::Tree;

/// The files, which exist until this is dropped.
pub(crate) struct DebugFiles {
    _events: Pin<KBox<File<Tree>>>,
    _admin: Pin<KBox<File<AdminState>>>,
    _eqs: Pin<KBox<File<Listing<EqRecord>>>>,
    _cqs: Pin<KBox<File<Listing<CqRecord>>>>,
    _srqs: Pin<KBox<File<Listing<SrqRecord>>>>,
    _qps: Pin<KBox<File<Listing<QpRecord>>>>,
    _connections: Pin<KBox<File<Listing<ConnectionRecord>>>>,
    _ranges: Pin<KBox<File<Owners>>>,
    _window: Pin<KBox<File<Window>>>,
    _tpt: Pin<KBox<File<Listing<KeyRecord>>>>,
    faults: Option<Pin<KBox<File<Faults>>>>,
    dir: Dir,
}

/// The objects of direct transfers that the files show.
pub(crate) struct DirectLists {
    pub(crate) ranges: Arc<Ranges>,
    pub(crate) liveness: Arc<Liveness>,
}

impl DebugFiles {
    /// Makes the files of this device.
    pub(crate) fn new(
        device: &device::Device<device::Bound>,
        tree: Tree,
        admin: Arc<Admin>,
        direct: DirectLists,
        inspector: &Arc<Inspector>,
    ) -> Result<Self> {
        let name = CString::try_from_fmt(fmt!("vrnic-{}", device.name()))?;
        let dir = Dir::new(&name);
        let tree = dir.read_only_file(c"events", tree);
        let admin = dir.read_only_file(c"admin", AdminState::new(admin));
        let ranges = dir.read_only_file(c"ranges", Owners(direct.ranges));
        let window = dir.read_only_file(c"window", Window(direct.liveness));
        Ok(Self {
            _events: KBox::pin_init(tree, GFP_KERNEL)?,
            _admin: KBox::pin_init(admin, GFP_KERNEL)?,
            _eqs: listing(&dir, c"eqs", inspector)?,
            _cqs: listing(&dir, c"cqs", inspector)?,
            _srqs: listing(&dir, c"srqs", inspector)?,
            _qps: listing(&dir, c"qps", inspector)?,
            _connections: listing(&dir, c"connections", inspector)?,
            _ranges: KBox::pin_init(ranges, GFP_KERNEL)?,
            _window: KBox::pin_init(window, GFP_KERNEL)?,
            _tpt: listing(&dir, c"tpt", inspector)?,
            faults: None,
            dir,
        })
    }

    /// Makes the file of rules for faults of an adapter that has them.
    pub(crate) fn add_faults(
        &mut self,
        device: &device::Device<device::Bound>,
        liveness: Arc<Liveness>,
    ) -> Result {
        let faults = Faults::new(device, liveness)?;
        let file = self.dir.read_write_binary_file(c"faults", faults);
        self.faults = Some(KBox::pin_init(file, GFP_KERNEL)?);
        Ok(())
    }
}

/// Returns a file that lists objects.
fn listing<R: Record>(
    dir: &Dir,
    name: &CStr,
    inspector: &Arc<Inspector>,
) -> Result<Pin<KBox<File<Listing<R>>>>> {
    let file = dir.read_binary_file(name, Listing::<R>::new(inspector.clone()));
    KBox::pin_init(file, GFP_KERNEL)
}
