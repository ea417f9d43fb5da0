//! The XRC domains of an adapter, and the targets in them: queue pairs that receive for the shared
//! receive queues of several processes. Device files that name the same file share a domain, and a
//! target exists until all that have opened it have closed it (`ib_uverbs_open_xrcd` in
//! drivers/infiniband/core/uverbs_cmd.c, `ib_open_qp` in verbs.c there).

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use parking_lot::Mutex;
use rustix::fs::OFlags;
use rustix::io::Errno;
use vrnic_abi::admin::command;
use vrnic_abi::{Qpn, Xrcdn};

use crate::adapter::driver::Driver;
use crate::trap::task::FileId;

/// The XRC domains of an adapter.
#[derive(Debug, Default)]
pub struct Domains(Mutex<HashMap<u32, Domain>>);

/// A domain.
#[derive(Debug)]
struct Domain {
    /// The file by which others find it.
    file: Option<FileId>,
    /// Number of device files that have it.
    opened: u32,
    /// Number of openings of each target, by the target's number.
    targets: HashMap<u32, u32>,
}

impl Domains {
    /// Opens the domain of a file, which is created if it does not exist; or a new one.
    ///
    /// # Errors
    /// `EAGAIN` for a file without a domain, `EINVAL` for one that has a domain and must not, and
    /// the adapter's refusal.
    pub fn open(
        &self,
        driver: &Driver,
        file: Option<FileId>,
        flags: OFlags,
    ) -> Result<Xrcdn, Errno> {
        let mut all = self.0.lock();
        let found = all.iter_mut().find(|(_, domain)| file.is_some() && domain.file == file);
        match found {
            Some(_) if flags.contains(OFlags::EXCL) => return Err(Errno::INVAL),
            Some((number, domain)) => {
                domain.opened = domain.opened.checked_add(1).ok_or(Errno::NOMEM)?;
                return Ok(Xrcdn::new(*number));
            }
            None if file.is_some() && !flags.contains(OFlags::CREATE) => return Err(Errno::AGAIN),
            None => {}
        }
        let xrcdn = driver.command::<command::AllocXrcd>(&())?;
        all.insert(xrcdn.get(), Domain { file, opened: 1, targets: HashMap::new() });
        Ok(xrcdn)
    }

    /// Closes a domain. The last one that does so frees it.
    ///
    /// # Errors
    /// `EBUSY` if queues use it.
    pub fn close(&self, driver: &Driver, xrcdn: Xrcdn) -> Result<(), Errno> {
        let mut all = self.0.lock();
        let Entry::Occupied(mut domain) = all.entry(xrcdn.get()) else { return Ok(()) };
        if domain.get().opened > 1 {
            domain.get_mut().opened -= 1;
            return Ok(());
        }
        driver.command::<command::FreeXrcd>(&xrcdn)?;
        domain.remove();
        Ok(())
    }

    /// Opens a target of a domain. `creates` says that it is new.
    ///
    /// # Errors
    /// `EINVAL` if there is no such target.
    pub fn open_target(&self, xrcdn: Xrcdn, qpn: Qpn, creates: bool) -> Result<(), Errno> {
        let mut all = self.0.lock();
        let targets = &mut all.get_mut(&xrcdn.get()).ok_or(Errno::INVAL)?.targets;
        match targets.get_mut(&qpn.get()) {
            Some(count) => *count = count.checked_add(1).ok_or(Errno::NOMEM)?,
            None if creates => drop(targets.insert(qpn.get(), 1)),
            None => return Err(Errno::INVAL),
        }
        Ok(())
    }

    /// Closes a target. The last one that does so destroys it.
    ///
    /// # Errors
    /// The adapter's refusal.
    pub fn close_target(&self, driver: &Driver, xrcdn: Xrcdn, qpn: Qpn) -> Result<(), Errno> {
        let mut all = self.0.lock();
        let Some(domain) = all.get_mut(&xrcdn.get()) else { return Ok(()) };
        let Entry::Occupied(mut count) = domain.targets.entry(qpn.get()) else { return Ok(()) };
        if *count.get() > 1 {
            *count.get_mut() -= 1;
            return Ok(());
        }
        driver.command::<command::DestroyQp>(&qpn)?;
        count.remove();
        Ok(())
    }
}
