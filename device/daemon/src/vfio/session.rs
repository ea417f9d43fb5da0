//! The protocol without its socket: handles messages, and returns replies.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use serde_json::json;
use vfio_bindings::bindings::vfio::{
    VFIO_DEVICE_FLAGS_PCI, VFIO_DEVICE_FLAGS_RESET, VFIO_DMA_MAP_FLAG_READ,
    VFIO_DMA_MAP_FLAG_WRITE, VFIO_DMA_UNMAP_FLAG_ALL, VFIO_IRQ_SET_ACTION_MASK,
    VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_ACTION_UNMASK, VFIO_IRQ_SET_DATA_EVENTFD,
    VFIO_IRQ_SET_DATA_NONE, VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS,
    VFIO_REGION_INFO_FLAG_CAPS,
};
use vrnic_adapter::log_ratelimit::Limiter;
use zerocopy::{Immutable, IntoBytes};

use super::caller::Caller;
use super::device::{Device, IrqRequest, RegionId};
use super::refusal::Refusal;
use super::regions::{self, len_of};
use super::request::Request;
use super::wire::{
    DeviceInfo, DmaMap, DmaUnmap, FDS_MAX, Header, IrqSet, RegionAccess, RegionInfo, SparseMmap,
    TRANSFER_MAX, Version,
};
use crate::memory::range::DmaRange;
use crate::worker::pool::now;

/// Descriptors that came with a message.
#[derive(Debug, Default)]
pub struct Descriptors {
    /// Descriptors that arrived. One more than the limit stands for any larger number.
    pub files: Vec<File>,
    /// True if some could not be received because the process has reached its limit of descriptors.
    pub lost: bool,
}

/// A message as it arrived.
#[derive(Debug)]
pub struct Message<'a> {
    /// The header of the message.
    pub header: Header,
    /// The body: what follows the header.
    pub body: &'a [u8],
    /// The descriptors that came with the message.
    pub descriptors: Descriptors,
}

/// A reply to send.
#[derive(Debug)]
pub struct Reply<'a> {
    /// All bytes, the header included.
    pub bytes: Vec<u8>,
    /// A descriptor to send with them.
    pub file: Option<BorrowedFd<'a>>,
}

/// The answer to a command.
#[derive(Default)]
struct Answer {
    body: Vec<u8>,
    /// True if the file of BAR2 is attached.
    uar: bool,
}

impl Answer {
    fn of(body: &(impl IntoBytes + Immutable)) -> Self {
        Self { body: body.as_bytes().to_vec(), uar: false }
    }
}

/// A connection's state: before VERSION and after.
pub struct Session<'a> {
    name: &'a str,
    device: &'a mut dyn Device,
    limiter: &'a Limiter,
    /// The connection, until a version has been agreed on.
    connection: Option<OwnedFd>,
    /// The file of BAR2, after a version has been agreed on.
    uar: Option<File>,
    /// The requests to the VMM.
    caller: Arc<Caller>,
}

impl<'a> Session<'a> {
    /// Creates the state of a `connection` to adapter `name`, on which no message has been
    /// received.
    pub fn new(
        name: &'a str,
        device: &'a mut dyn Device,
        limiter: &'a Limiter,
        connection: OwnedFd,
        caller: Arc<Caller>,
    ) -> Self {
        Self { name, device, limiter, connection: Some(connection), uar: None, caller }
    }

    /// Returns whether a version has been agreed on.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.uar.is_some()
    }

    /// Handles the end of the connection.
    pub fn close(self) {
        self.caller.close();
        if self.is_open() {
            self.device.disconnected();
        }
    }

    /// Executes a message. Returns none if the sender wants no reply.
    pub fn handle(&mut self, message: Message<'_>) -> Option<Reply<'_>> {
        let header = message.header;
        if header.is_reply() && self.caller.has_called() {
            if !self.caller.deliver(&header, message.body) {
                self.limiter.warn(now(), || {
                    let id = header.id;
                    tracing::warn!(
                        function = self.name,
                        id,
                        "a reply of the VMM was ignored: it is late, or belongs to no request"
                    );
                });
            }
            return None;
        }
        let answer = self.answer(message).inspect_err(|why| {
            let command = header.command;
            self.limiter.warn(now(), || {
                tracing::error!(
                    function = self.name,
                    command,
                    "a request of the VMM was refused: {why}"
                );
            });
        });
        if !header.wants_reply() {
            return None;
        }
        Some(match answer {
            Ok(Answer { body, uar }) => {
                let bytes = [header.reply(body.len()).as_bytes(), &body].concat();
                let file = self.uar.as_ref().filter(|_| uar).map(AsFd::as_fd);
                Reply { bytes, file }
            }
            Err(why) => {
                Reply { bytes: header.refusal(why.errno()).as_bytes().to_vec(), file: None }
            }
        })
    }

    fn answer(&mut self, message: Message<'_>) -> Result<Answer, Refusal> {
        let Message { header, body, descriptors } = message;
        if header.body_len() != Some(body.len()) {
            return Err(Refusal::Size(header.size));
        }
        if !header.is_command() {
            return Err(Refusal::NotACommand);
        }
        let request = Request::parse(header.command, body)?;
        let files = descriptors.files;
        if files.len() > FDS_MAX {
            return Err(Refusal::Descriptors(files.len()));
        }
        if descriptors.lost {
            return Err(Refusal::NoDescriptors);
        }
        match (request, self.is_open()) {
            (Request::Version(limit), false) => self.open(limit),
            (Request::Version(_), true) => Err(Refusal::Again),
            (_, false) => Err(Refusal::Early),
            (Request::DmaMap(map), true) => self.dma_map(map, files),
            (Request::DmaUnmap(unmap), true) => self.dma_unmap(unmap),
            (Request::DeviceInfo, true) => Ok(device_info()),
            (Request::RegionInfo(asked), true) => region_info(asked),
            (Request::IrqInfo(asked), true) => {
                let info = regions::irq_info(asked.index).ok_or(Refusal::NoIrq(asked.index))?;
                Ok(Answer::of(&info))
            }
            (Request::SetIrqs(set), true) => self.set_irqs(set, files),
            (Request::Read(access), true) => self.read(access),
            (Request::Write(access, data), true) => self.write(access, data),
            (Request::Reset, true) => {
                tracing::debug!(function = self.name, "the VMM resets the function");
                self.device.reset();
                Ok(Answer::default())
            }
        }
    }

    /// Agrees on version 0.0, which every minor version is compatible with.
    fn open(&mut self, limit: Option<u64>) -> Result<Answer, Refusal> {
        let connection = self.connection.take().ok_or(Refusal::Again)?;
        if let Some(limit) = limit {
            self.caller.limit(limit);
        }
        let messages = Arc::clone(&self.caller);
        self.uar = Some(self.device.connected(connection, messages).map_err(Refusal::Memory)?);
        let limits = json!({ "max_msg_fds": FDS_MAX, "max_data_xfer_size": TRANSFER_MAX });
        let mut body = Version { major: 0, minor: 0 }.as_bytes().to_vec();
        body.extend_from_slice(json!({ "capabilities": limits }).to_string().as_bytes());
        body.push(0);
        Ok(Answer { body, uar: false })
    }

    fn dma_map(&mut self, map: DmaMap, mut files: Vec<File>) -> Result<Answer, Refusal> {
        let DmaMap { flags, offset, iova, size, .. } = map;
        tracing::debug!(
            function = self.name,
            "the VMM maps {iova:#x}+{size:#x}, flags {flags:#x}, with {} files",
            files.len()
        );
        if flags & !(VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE) != 0 {
            return Err(Refusal::Flags(flags));
        }
        let file = files.pop();
        if !files.is_empty() {
            return Err(Refusal::Descriptors(files.len() + 1));
        }
        let readable = flags & VFIO_DMA_MAP_FLAG_READ != 0;
        let writable = flags & VFIO_DMA_MAP_FLAG_WRITE != 0;
        self.device.dma_map(DmaRange { iova, size, readable, writable, offset, file })?;
        Ok(Answer::default())
    }

    fn dma_unmap(&mut self, unmap: DmaUnmap) -> Result<Answer, Refusal> {
        let DmaUnmap { flags, iova, size, .. } = unmap;
        tracing::debug!(
            function = self.name,
            "the VMM unmaps {iova:#x}+{size:#x}, flags {flags:#x}"
        );
        let range = match flags {
            0 => Some((iova, size)),
            VFIO_DMA_UNMAP_FLAG_ALL => None,
            _ => return Err(Refusal::Flags(flags)),
        };
        self.device.dma_unmap(range)?;
        Ok(Answer::of(&unmap))
    }

    fn set_irqs(&mut self, set: IrqSet, files: Vec<File>) -> Result<Answer, Refusal> {
        let IrqSet { flags, index, start, count, .. } = set;
        if index >= VFIO_PCI_NUM_IRQS || index != VFIO_PCI_MSIX_IRQ_INDEX && count != 0 {
            return Err(Refusal::NoIrq(index));
        }
        const NONE: u32 = VFIO_IRQ_SET_DATA_NONE;
        let request = match (flags & NONE != 0, flags & !NONE) {
            (true, VFIO_IRQ_SET_ACTION_MASK) => IrqRequest::Mask,
            (true, VFIO_IRQ_SET_ACTION_UNMASK) => IrqRequest::Unmask,
            (true, VFIO_IRQ_SET_ACTION_TRIGGER) if count == 0 => IrqRequest::Disable,
            (true, VFIO_IRQ_SET_ACTION_TRIGGER) => IrqRequest::Trigger,
            (false, flags) if flags == VFIO_IRQ_SET_ACTION_TRIGGER | VFIO_IRQ_SET_DATA_EVENTFD => {
                IrqRequest::Assign(files)
            }
            _ => return Err(Refusal::Flags(flags)),
        };
        if index == VFIO_PCI_MSIX_IRQ_INDEX {
            self.device.set_irqs(start, count, request)?;
        }
        Ok(Answer::default())
    }

    fn read(&mut self, access: RegionAccess) -> Result<Answer, Refusal> {
        let mut body = access.as_bytes().to_vec();
        let head = body.len();
        body.resize(head + access.count as usize, 0xff);
        // Some VMMs hang after an error reply. Reads of a bus address without a device return ones.
        if let Some(region) = self.inside(access)? {
            self.device.read(region, access.offset, &mut body[head..]);
        }
        Ok(Answer { body, uar: false })
    }

    fn write(&mut self, access: RegionAccess, data: &[u8]) -> Result<Answer, Refusal> {
        if let Some(region) = self.inside(access)? {
            self.device.write(region, access.offset, data);
        }
        Ok(Answer::of(&access))
    }

    /// Returns the region of an access if the access is inside of it, and logs the access
    /// otherwise.
    fn inside(&self, access: RegionAccess) -> Result<Option<RegionId>, Refusal> {
        let RegionAccess { offset, region: index, count } = access;
        if index >= VFIO_PCI_NUM_REGIONS {
            return Err(Refusal::NoRegion(index));
        }
        let fits = regions::region(index).filter(|region| {
            let end = offset.checked_add(count.into());
            end.is_some_and(|end| end <= regions::region_len(*region))
        });
        if fits.is_none() {
            self.limiter.warn(now(), || {
                tracing::warn!(
                    function = self.name,
                    "the VMM accessed {count} bytes at {offset:#x}, outside region {index}"
                );
            });
        }
        Ok(fits)
    }
}

fn device_info() -> Answer {
    Answer::of(&DeviceInfo {
        argsz: len_of::<DeviceInfo>(),
        flags: VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET,
        regions: VFIO_PCI_NUM_REGIONS,
        irqs: VFIO_PCI_NUM_IRQS,
    })
}

/// Describes a region. The reply for BAR2 also says that it can be mapped, if the request has room
/// for that.
fn region_info(asked: RegionInfo) -> Result<Answer, Refusal> {
    let index = asked.index;
    let mut info = regions::region_info(index).ok_or(Refusal::NoRegion(index))?;
    if regions::region(index) != Some(RegionId::Uar) {
        return Ok(Answer::of(&info));
    }
    info.flags |= VFIO_REGION_INFO_FLAG_CAPS;
    info.argsz = len_of::<RegionInfo>() + len_of::<SparseMmap>();
    // QEMU refuses an offset of zero even in a reply without room for the capability.
    info.cap_offset = len_of::<RegionInfo>();
    if asked.argsz < info.argsz {
        return Ok(Answer::of(&info));
    }
    let body = [info.as_bytes(), regions::uar_areas().as_bytes()].concat();
    Ok(Answer { body, uar: true })
}
