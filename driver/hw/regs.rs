// SPDX-License-Identifier: GPL-2.0
//! The registers (BAR0). Each access traps to the adapter, so the data path does not use them.

use abi::{
    pci::{BAR_REGS, BAR_REGS_LEN},
    regs::{self, Control, Status},
};
use kernel::{
    device::Bound,
    io::Io,
    pci::{self, DevresBar},
    prelude::*,
    time::{Delta, Instant, Monotonic, delay::fsleep},
};

const LENGTH: usize = BAR_REGS_LEN as usize;

/// The value that a read returns if the adapter does not exist.
const ABSENT: u32 = u32::MAX;

/// The time between two looks at the state of the adapter.
const POLL: Delta = Delta::from_millis(1);
/// The maximum time to wait for that: reset and enabling take milliseconds. A single register
/// access to an adapter that hangs may take seconds, so the wait is limited by time and not by the
/// number of accesses.
const TIMEOUT: Delta = Delta::from_secs(5);

/// The register BAR.
pub(crate) struct Registers {
    bar: DevresBar<LENGTH>,
}

impl Registers {
    /// Maps the registers of an adapter that this driver knows.
    ///
    /// # Errors
    ///
    /// `ENODEV` for something else.
    pub(crate) fn map(pdev: &pci::Device<Bound>) -> Result<Self> {
        let bar = pdev.iomap_region_sized::<LENGTH>(BAR_REGS, c"vrnic registers")?;
        let this = Self { bar: bar.into_devres()? };
        let (magic, version) = (this.read(regs::MAGIC), this.version());
        if magic != regs::MAGIC_VALUE || version >> 16 != abi::ABI_VERSION >> 16 {
            dev_err!(pdev, "the adapter is unknown: magic {magic:#x}, version {version:#x}\n");
            return Err(ENODEV);
        }
        Ok(this)
    }

    /// Returns the version of the adapter's interface.
    pub(crate) fn version(&self) -> u32 {
        self.read(regs::VERSION)
    }

    /// Reads a register; all ones when the adapter has gone.
    pub(crate) fn read(&self, offset: u32) -> u32 {
        let value = self.bar.try_access().and_then(|bar| bar.try_read32(offset as usize).ok());
        value.unwrap_or(ABSENT)
    }

    /// Writes a register; without effect when the adapter has gone.
    pub(crate) fn write(&self, offset: u32, value: u32) {
        if let Some(bar) = self.bar.try_access() {
            // The offsets are constants inside the BAR.
            let _ = bar.try_write32(value, offset as usize);
        }
    }

    /// Writes a pair of registers that makes a 64-bit value.
    pub(crate) fn write_pair(&self, low: u32, value: u64) {
        // CAST: the halves.
        self.write(low, value as u32);
        self.write(low + 4, (value >> 32) as u32);
    }

    /// Returns the state of the adapter.
    pub(crate) fn status(&self) -> Status {
        Status::from_bits_truncate(self.read(regs::STATUS))
    }

    /// Returns the MAC of the port.
    pub(crate) fn mac(&self) -> [u8; 6] {
        let [a, b, c, d] = self.read(regs::MAC_LO).to_le_bytes();
        let [e, f, ..] = self.read(regs::MAC_HI).to_le_bytes();
        [a, b, c, d, e, f]
    }

    /// Destroys all objects. On return the adapter does not access memory or raise interrupts.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT`, or `ENODEV` when the adapter has gone.
    pub(crate) fn reset(&self) -> Result {
        self.write(regs::CONTROL, Control::RESET.bits());
        self.wait(|status| !status.contains(Status::RESETTING))?;
        // Reads that nothing answers may also return zeros.
        if self.read(regs::MAGIC) != regs::MAGIC_VALUE {
            return Err(ENODEV);
        }
        Ok(())
    }

    /// Starts the rings that the registers name.
    ///
    /// # Errors
    ///
    /// `EIO` if the adapter refuses them, `ETIMEDOUT`, `ENODEV` if the adapter no longer exists.
    pub(crate) fn enable(&self, pdev: &pci::Device<Bound>) -> Result {
        self.write(regs::CONTROL, Control::ENABLE.bits());
        self.wait(|status| status.intersects(Status::ENABLED | Status::FATAL))?;
        if self.status().contains(Status::FATAL) {
            dev_err!(
                pdev,
                "the adapter refused the addresses of its rings: code {}\n",
                self.read(regs::FATAL_CODE)
            );
            return Err(EIO);
        }
        Ok(())
    }

    fn wait(&self, reached: impl Fn(Status) -> bool) -> Result {
        let start = Instant::<Monotonic>::now();
        loop {
            let status = self.read(regs::STATUS);
            if status == ABSENT {
                return Err(ENODEV);
            }
            if reached(Status::from_bits_truncate(status)) {
                return Ok(());
            }
            if start.elapsed() > TIMEOUT {
                return Err(ETIMEDOUT);
            }
            fsleep(POLL);
        }
    }
}
