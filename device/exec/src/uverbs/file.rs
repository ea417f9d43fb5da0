//! An open device file: its context, its objects and its doorbell pages.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, memfd_create, open};
use rustix::io::Errno;
use vrnic_abi::admin::command;
use vrnic_abi::uar::SLOTS;
use vrnic_abi::uverbs::NEXT_RING;
use vrnic_abi::{ContextId, Key, UarIndex, regs};
use vrnic_queues::mapping::Mapping;

use super::channel::Channel;
use super::device::Device;
use super::groups::Groups;
use super::objects::{Object, Objects, Qp, Region, Target};
use super::ring::{RINGS, RingMemory, Rings, SharedRing};
use super::routes::Source;
use crate::adapter::bar;
use crate::adapter::waker::Page as KickPage;
use crate::descriptors::check_room;
use crate::memory::guarded::{Guarded, take};
use crate::memory::space::errno;
use crate::memory::spaces::Placement;
use crate::trap::task::FileId;

/// Offset in a device file of the page with the clock. No doorbell and no queue is there.
pub const KICK_OFFSET: u64 = bar::LEN;
/// Maximum number of channels of a file.
const CHANNELS_MAX: usize = 1024;
/// Maximum number of channels for asynchronous events of a file.
const EVENT_CHANNELS_MAX: usize = 16;

/// A doorbell page of a context.
#[derive(Clone, Copy, Debug)]
struct Page {
    uar: UarIndex,
    used: u32,
}

/// The memory of a region, which an adapter reaches.
#[derive(Debug)]
pub enum RegionMemory {
    /// Memory of a process.
    Process(Placement),
    /// Device memory.
    Device(Arc<SharedRing>),
}

/// An open device file. When this is dropped, its objects are destroyed.
#[derive(Debug)]
pub struct OpenFile {
    device: Arc<Device>,
    /// The memory that the program maps: doorbell pages and queues, at their offsets in BAR2.
    memory: Arc<File>,
    kick: KickPage,
    id: FileId,
    context: Option<ContextId>,
    pages: Vec<Page>,
    /// The memory of rings, by the kind and the number of their queues.
    rings: HashMap<(Source, u32), Rings>,
    /// The memory of regions, by the indices of their keys.
    regions: HashMap<u32, RegionMemory>,
    /// Device memory, by handle.
    device_memory: HashMap<u32, Arc<SharedRing>>,
    /// The objects of the program.
    pub objects: Objects,
    /// The multicast groups of its queue pairs.
    pub groups: Groups,
    /// The channels for asynchronous events. The first is that of objects which name none.
    events: Vec<Arc<Channel>>,
    channels: Vec<Arc<Channel>>,
}

impl OpenFile {
    /// Opens the device file of an adapter. Also returns the descriptor for the program.
    ///
    /// # Errors
    /// `EMFILE` or `ENOMEM`.
    pub fn open(device: &Arc<Device>) -> Result<(Self, OwnedFd), Errno> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = File::from(memfd_create(device.name(), flags)?);
        check_room(&memory)?;
        memory.set_len(RINGS.end).map_err(|error| errno(&error))?;
        // Accesses to what we have mapped must not fail because a program makes the file shorter.
        fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        // The program's descriptor must be of another open file than ours: the end of the last one
        // of the program's is an event.
        let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
        let theirs = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let id = FileId::of(&memory)?;
        let kick = Arc::new(kick_page(&memory, device.driver().host().ahead())?);
        device.driver().host().waker().add(&kick);
        device.routes().opened();
        let this = Self {
            device: Arc::clone(device),
            memory: Arc::new(memory),
            kick,
            id,
            context: None,
            pages: Vec::new(),
            rings: HashMap::new(),
            regions: HashMap::new(),
            device_memory: HashMap::new(),
            objects: Objects::default(),
            groups: Groups::default(),
            events: Vec::new(),
            channels: Vec::new(),
        };
        Ok((this, theirs))
    }

    /// Returns the adapter.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns the identity of the file.
    #[must_use]
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Returns the memory that the program maps.
    #[must_use]
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// Checks that the pages that the program shares with the adapter are all there.
    ///
    /// # Errors
    /// `EIO` if the program has punched holes into the file, and memory was short.
    pub fn check_memory(&self) -> Result<(), Errno> {
        let bar = self.device.driver().host().bar();
        let lost = |page: &Page| bar.is_lost(page.uar.range().start);
        if self.kick.is_lost() || self.pages.iter().any(lost) { Err(Errno::IO) } else { Ok(()) }
    }

    /// Maps a range of a file as a ring. Returns `None` if it is not this file, or if that fails:
    /// the ring is then reached as other memory of the process.
    #[must_use]
    pub fn ring(&self, id: FileId, place: Range<u64>) -> Option<SharedRing> {
        let spaces = self.device.driver().host().spaces();
        (id == self.id).then(|| SharedRing::map(spaces, &self.memory, place).ok())?
    }

    /// Keeps the rings of a queue until it is destroyed.
    pub fn keep_rings(&mut self, source: Source, id: u32, rings: Rings) {
        if !rings.is_empty() {
            self.rings.insert((source, id), rings);
        }
    }

    /// Keeps other rings instead of those of a queue, which the adapter does not use any more.
    pub fn replace_rings(&mut self, source: Source, id: u32, rings: Rings) {
        let old = self.rings.insert((source, id), rings);
        old.into_iter().flatten().for_each(RingMemory::leave);
    }

    /// Keeps the memory of a region until the region is destroyed or gets other memory.
    pub fn keep_region(&mut self, key: Key, memory: RegionMemory) {
        self.regions.insert(key.index(), memory);
    }

    /// Keeps device memory until it is freed.
    pub fn keep_device_memory(&mut self, handle: u32, memory: SharedRing) {
        self.device_memory.insert(handle, Arc::new(memory));
    }

    /// Returns the number of bytes of device memory.
    #[must_use]
    pub fn device_memory(&self) -> u64 {
        self.device_memory.values().map(|memory| memory.len()).sum()
    }

    /// Returns device memory, for a region in it.
    #[must_use]
    pub fn shared_device_memory(&self, handle: u32) -> Option<Arc<SharedRing>> {
        self.device_memory.get(&handle).cloned()
    }

    /// Frees device memory.
    ///
    /// # Errors
    /// `EBUSY` if a region is in it.
    pub fn drop_device_memory(&mut self, handle: u32) -> Result<(), Errno> {
        match self.device_memory.get(&handle) {
            Some(memory) if Arc::strong_count(memory) > 1 => Err(Errno::BUSY),
            _ => {
                drop(self.device_memory.remove(&handle));
                Ok(())
            }
        }
    }

    /// Records the key of a region after a change, and the new memory if it has any.
    pub fn rekey_region(&mut self, from: Key, to: Key, memory: Option<RegionMemory>) {
        let old = self.regions.remove(&from.index());
        if let Some(memory) = memory.or(old) {
            self.regions.insert(to.index(), memory);
        }
    }

    /// Returns the context.
    ///
    /// # Errors
    /// `EINVAL` if there is none (`ib_uverbs_get_ucontext_file`).
    pub fn context(&self) -> Result<ContextId, Errno> {
        self.context.ok_or(Errno::INVAL)
    }

    /// Creates the context, with a first doorbell page. Returns the page.
    ///
    /// # Errors
    /// `EINVAL` if there is one, and the adapter's refusal.
    pub fn create_context(&mut self) -> Result<UarIndex, Errno> {
        if self.context.is_some() {
            return Err(Errno::INVAL);
        }
        let id = self.device.driver().command::<command::AllocContext>(&())?;
        self.context = Some(id);
        let page = self.add_page(0);
        if page.is_err() {
            self.destroy_context();
        }
        page
    }

    /// Takes a slot in a doorbell page that has a free one.
    ///
    /// # Errors
    /// `ENOMEM` if the adapter has no further page.
    pub fn take_slot(&mut self) -> Result<UarIndex, Errno> {
        match self.pages.iter_mut().find(|page| page.used < SLOTS) {
            Some(page) => {
                page.used += 1;
                Ok(page.uar)
            }
            None => self.add_page(1),
        }
    }

    /// Gives a slot of a page back.
    pub fn release_slot(&mut self, uar: UarIndex) {
        if let Some(page) = self.pages.iter_mut().find(|page| page.uar == uar) {
            page.used = page.used.saturating_sub(1);
        }
    }

    fn add_page(&mut self, used: u32) -> Result<UarIndex, Errno> {
        let driver = self.device.driver();
        let uar = driver.command::<command::AllocUar>(&self.context()?)?;
        if let Err(error) = driver.host().bar().place(uar.range(), &self.memory) {
            let _refused = driver.command::<command::FreeUar>(&uar);
            return Err(error);
        }
        // The worker may have said in the page that this one replaces that it sleeps.
        driver.host().waker().wake();
        self.pages.push(Page { uar, used });
        Ok(uar)
    }

    /// Puts the pages of a send queue in device memory into the file.
    ///
    /// # Errors
    /// The errors of mmap.
    pub fn place(&self, start: u64, len: u64) -> Result<(), Errno> {
        let range = vrnic_abi::doorbell::BarRange { start, len };
        self.device.driver().host().bar().place(range, &self.memory)
    }

    /// Takes such pages out of the file.
    pub fn clear(&self, start: u64, len: u64) {
        let range = vrnic_abi::doorbell::BarRange { start, len };
        let _kept = self.device.driver().host().bar().clear(range);
    }

    /// Returns the channel for asynchronous events of objects that name none.
    #[must_use]
    pub fn events(&self) -> Option<&Arc<Channel>> {
        self.events.first()
    }

    /// Adds a channel for asynchronous events, which also gets those of the device. The first one
    /// is that of objects which name none, whatever is added later
    /// (`ib_uverbs_init_async_event_file` in drivers/infiniband/core/uverbs_main.c).
    ///
    /// # Errors
    /// `EMFILE` if there are too many.
    pub fn add_events(
        &mut self,
        create: impl FnOnce() -> Result<(Channel, u32), Errno>,
    ) -> Result<u32, Errno> {
        if self.events.len() >= EVENT_CHANNELS_MAX {
            return Err(Errno::MFILE);
        }
        let (channel, descriptor) = create()?;
        let channel = Arc::new(channel);
        self.device.routes().add_device(self.device.number(), &channel);
        self.events.push(channel);
        Ok(descriptor)
    }

    /// Adds a channel for completion events.
    ///
    /// # Errors
    /// `EMFILE` if there are too many.
    pub fn add_channel(
        &mut self,
        create: impl FnOnce() -> Result<(Channel, u32), Errno>,
    ) -> Result<u32, Errno> {
        if self.channels.len() >= CHANNELS_MAX {
            // Nothing tells when a program closes one. Old ones without queues are probably closed.
            let unused = self.channels.iter().position(|channel| Arc::strong_count(channel) == 1);
            drop(self.channels.remove(unused.ok_or(Errno::MFILE)?));
        }
        let (channel, descriptor) = create()?;
        self.channels.push(Arc::new(channel));
        Ok(descriptor)
    }

    /// Returns the channel whose end in the program is this file.
    ///
    /// # Errors
    /// `EBADF` if there is none.
    pub fn channel(&self, id: FileId) -> Result<Arc<Channel>, Errno> {
        let channels = self.channels.iter().chain(&self.events);
        let is_it = |channel: &&Arc<Channel>| channel.id() == Ok(id);
        channels.into_iter().find(is_it).cloned().ok_or(Errno::BADF)
    }

    /// Destroys an object of the adapter. Returns the numbers of completion events and of
    /// asynchronous events that were sent for it.
    ///
    /// # Errors
    /// `EBUSY` if others use it.
    pub fn destroy(&mut self, object: &Object) -> Result<[u32; 2], Errno> {
        let device = Arc::clone(&self.device);
        let driver = device.driver();
        let rings = &mut self.rings;
        let mut counts = |source, id| {
            drop(rings.remove(&(source, id)));
            device.routes().remove((device.number(), source, id))
        };
        match object {
            // Device memory is freed by its handle.
            Object::Ah(_) | Object::Dm(_) => {}
            Object::Mw(key) => driver.command::<command::DeallocMw>(key)?,
            Object::Mr(Region { key, .. }) => {
                driver.command::<command::DeregMr>(key)?;
                drop(self.regions.remove(&key.index()));
            }
            Object::Xrcd(xrcdn) => device.domains().close(driver, *xrcdn)?,
            Object::Pd(pdn) => driver.command::<command::FreePd>(pdn)?,
            Object::Cq(cqn, uar) => {
                driver.command::<command::DestroyCq>(cqn)?;
                let counts = counts(Source::Cq, cqn.get());
                self.release_slot(*uar);
                return Ok(counts);
            }
            Object::Qp(Qp { target: Some(Target { xrcdn, opening, .. }), qpn, .. }) => {
                device.domains().close_target(driver, *xrcdn, *qpn)?;
                let key = (device.number(), Source::Qp, qpn.get());
                return Ok(device.routes().remove_shared(key, *opening));
            }
            Object::Qp(qp) => {
                driver.command::<command::DestroyQp>(&qp.qpn)?;
                let counts = counts(Source::Qp, qp.qpn.get());
                self.release_slot(qp.uar);
                if let Some((start, len)) = qp.device_sq {
                    self.clear(start, len);
                }
                return Ok(counts);
            }
            Object::Srq(srq) => {
                driver.command::<command::DestroySrq>(&srq.srqn)?;
                let counts = counts(Source::Srq, srq.srqn.get());
                self.release_slot(srq.uar);
                return Ok(counts);
            }
        }
        Ok([0; 2])
    }

    fn destroy_context(&mut self) {
        let Some(id) = self.context.take() else { return };
        let device = Arc::clone(&self.device);
        for page in std::mem::take(&mut self.pages) {
            let _refused = device.driver().command::<command::FreeUar>(&page.uar);
            let _kept = device.driver().host().bar().clear(page.uar.range());
        }
        let _refused = device.driver().command::<command::FreeContext>(&id);
    }
}

impl Drop for OpenFile {
    /// Does what the kernel does when the last descriptor and the last mapping are gone.
    fn drop(&mut self) {
        for member in self.groups.all() {
            if let Ok(qp) = self.objects.qp(member.0) {
                let _refused = self.groups.leave(self.device.driver(), qp.qpn, member);
            }
        }
        for object in self.objects.take_all() {
            // In this order, nothing uses it any more.
            let _refused = self.destroy(&object);
        }
        // What the adapter has refused to destroy may use its memory for ever. So the memory stays,
        // and its numbers are no other one's.
        self.rings.drain().for_each(|(_, rings)| std::mem::forget(rings));
        self.regions.drain().for_each(|(_, memory)| std::mem::forget(memory));
        self.destroy_context();
        for events in &self.events {
            self.device.routes().remove_device(events);
        }
        self.device.driver().host().waker().remove(&self.kick);
        self.device.routes().closed();
    }
}

/// Maps the kick page of a device file, and tells the programs where rings begin, and what the
/// adapter's clock is ahead of the system's.
fn kick_page(memory: &File, ahead: u64) -> Result<Guarded, Errno> {
    let len = u64::from(regs::KICK_LEN);
    take(memory, KICK_OFFSET..KICK_OFFSET + len)?;
    let page = Mapping::device(memory.as_fd(), KICK_OFFSET, regs::KICK_LEN as usize)?;
    page.word64(regs::CLOCK_LO - regs::KICK).ok_or(Errno::IO)?.store(ahead, Ordering::Release);
    page.word64(NEXT_RING).ok_or(Errno::IO)?.store(RINGS.start, Ordering::Release);
    Guarded::new(page)
}
