//! A DMA buffer of ordinary memory (`/dev/udmabuf`, linux/udmabuf.h), which can be registered.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};

/// `struct udmabuf_create`.
#[repr(C)]
struct Create {
    memfd: RawFd,
    flags: u32,
    offset: u64,
    size: u64,
}

/// UDMABUF_FLAGS_CLOEXEC.
const CLOEXEC: u32 = 1;

// SAFETY: the opcode is UDMABUF_CREATE, whose argument is this struct, which the kernel only reads;
// it returns a new descriptor.
unsafe impl Ioctl for Create {
    type Output = OwnedFd;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        opcode::write::<Self>(b'u', 0x42)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut *self).cast()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<OwnedFd> {
        // SAFETY: success returns a new descriptor, which no other code has.
        Ok(unsafe { OwnedFd::from_raw_fd(out) })
    }
}

/// Returns a memory file of `len` bytes (whole pages), and its DMA buffer.
pub(crate) fn create(len: usize) -> io::Result<(File, OwnedFd)> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = File::from(rustix::fs::memfd_create("dmabuf", flags)?);
    memory.set_len(len as u64)?;
    rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK)?;
    let device = File::options().read(true).write(true).open("/dev/udmabuf")?;
    let create = Create { memfd: memory.as_raw_fd(), flags: CLOEXEC, offset: 0, size: len as u64 };
    // SAFETY: as the implementation above says, of an open udmabuf device.
    let buffer = unsafe { ioctl(&device, create) }?;
    Ok((memory, buffer))
}
