//! The register file: the state that trapped accesses leave for the control thread.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use vrnic_abi::GuestAddr;
use vrnic_abi::regs::{self, Control, FatalCode, Status};

/// Ring registers and flags.
#[derive(Debug, Default)]
pub struct Registers {
    rings: Mutex<Rings>,
    status: AtomicU32,
    fatal: AtomicU32,
    reset: AtomicBool,
    enable: AtomicBool,
    admin_pi: AtomicU32,
    /// The number of the [`FatalCode`] with which the adapter is to fail, or zero.
    stop: AtomicU32,
    /// True if the driver has not been notified of a failure.
    is_untold: AtomicBool,
    /// True if the VMM resets the adapter.
    is_interrupted: AtomicBool,
}

/// Addresses of the rings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rings {
    /// The admin submission ring.
    pub admin_sq: GuestAddr,
    /// The admin completion ring.
    pub admin_cq: GuestAddr,
    /// log2 of the number of entries of each.
    pub admin_log_size: u32,
    /// The asynchronous event queue.
    pub async_eq: GuestAddr,
    /// log2 of the number of its entries.
    pub async_eq_log_size: u32,
}

impl Registers {
    /// Writes a register. Returns true if there is work for the control thread.
    ///
    /// # Errors
    /// Returns the reason for which the write is ignored.
    pub fn write(&self, offset: u32, value: u32) -> Result<bool, &'static str> {
        let status = self.status();
        if status.contains(Status::RESETTING) {
            return Err("a reset is in progress");
        }
        match offset {
            regs::CONTROL => return self.control(value),
            regs::ADMIN_SQ_PI => {
                self.admin_pi.store(value, Ordering::Release);
                return Ok(status.contains(Status::ENABLED));
            }
            _ if status.contains(Status::ENABLED) => return Err("the adapter is enabled"),
            _ => {}
        }
        let mut rings = self.rings.lock();
        match offset {
            regs::ADMIN_SQ_LO => set_low(&mut rings.admin_sq, value),
            regs::ADMIN_SQ_HI => set_high(&mut rings.admin_sq, value),
            regs::ADMIN_CQ_LO => set_low(&mut rings.admin_cq, value),
            regs::ADMIN_CQ_HI => set_high(&mut rings.admin_cq, value),
            regs::ADMIN_LOG_SIZE => rings.admin_log_size = value,
            regs::ASYNC_EQ_LO => set_low(&mut rings.async_eq, value),
            regs::ASYNC_EQ_HI => set_high(&mut rings.async_eq, value),
            regs::ASYNC_EQ_LOG_SIZE => rings.async_eq_log_size = value,
            _ => return Err("there is no such register"),
        }
        Ok(false)
    }

    fn control(&self, value: u32) -> Result<bool, &'static str> {
        match Control::from_bits(value) {
            Some(control) if control.contains(Control::RESET) => {
                self.status.fetch_or(Status::RESETTING.bits(), Ordering::AcqRel);
                self.reset.store(true, Ordering::Release);
                Ok(true)
            }
            Some(Control::ENABLE) => {
                self.enable.store(true, Ordering::Release);
                Ok(true)
            }
            _ => Err("it sets unknown bits"),
        }
    }

    /// Returns the register STATUS, without the link.
    #[must_use]
    pub fn status(&self) -> Status {
        Status::from_bits_truncate(self.status.load(Ordering::Acquire))
    }

    /// Returns the register FATAL_CODE.
    #[must_use]
    pub fn fatal_code(&self) -> u32 {
        self.fatal.load(Ordering::Acquire)
    }

    /// Sets the register FATAL_CODE. The adapter does nothing more until the next reset.
    pub fn set_fatal(&self, code: FatalCode) {
        self.fatal.store(code as u32, Ordering::Release);
        self.status.fetch_or(Status::FATAL.bits(), Ordering::AcqRel);
        self.is_untold.store(true, Ordering::Release);
    }

    /// Returns the code of a failure of which the driver has not been notified, once.
    pub fn take_untold(&self) -> Option<u32> {
        self.is_untold.swap(false, Ordering::AcqRel).then(|| self.fatal_code())
    }

    /// Asks the control thread to let the adapter fail.
    pub fn ask_stop(&self, code: FatalCode) {
        self.stop.store(code as u32, Ordering::Release);
    }

    /// Returns whether the adapter is to fail.
    pub fn is_stop_asked(&self) -> bool {
        self.stop.load(Ordering::Acquire) != 0
    }

    /// Returns the code with which the adapter is to fail, once.
    pub fn take_stop(&self) -> Option<FatalCode> {
        let code = FatalCode::from_raw(self.stop.swap(0, Ordering::AcqRel));
        code.filter(|code| *code != FatalCode::None)
    }

    /// Records that the VMM resets the adapter.
    pub fn interrupt(&self) {
        self.is_interrupted.store(true, Ordering::Release);
    }

    /// Returns whether a reset has been requested, by the driver or by the VMM, and has not begun.
    pub fn is_interrupted(&self) -> bool {
        self.is_interrupted.load(Ordering::Acquire) || self.status().contains(Status::RESETTING)
    }

    /// Records that the admin queue runs.
    pub fn set_enabled(&self) {
        self.status.fetch_or(Status::ENABLED.bits(), Ordering::AcqRel);
    }

    /// Returns the ring registers.
    #[must_use]
    pub fn rings(&self) -> Rings {
        *self.rings.lock()
    }

    /// Returns the admin producer index.
    #[must_use]
    pub fn admin_pi(&self) -> u32 {
        self.admin_pi.load(Ordering::Acquire)
    }

    /// Returns whether a reset was requested since the last call.
    pub fn take_reset(&self) -> bool {
        self.reset.swap(false, Ordering::AcqRel)
    }

    /// Returns whether ENABLE was written since the last call.
    pub fn take_enable(&self) -> bool {
        self.enable.swap(false, Ordering::AcqRel)
    }

    /// Restores the state after power-on, except that a reset in progress stays so.
    pub fn clear(&self) {
        *self.rings.lock() = Rings::default();
        self.enable.store(false, Ordering::Release);
        self.admin_pi.store(0, Ordering::Release);
        self.fatal.store(0, Ordering::Release);
        self.stop.store(0, Ordering::Release);
        self.is_untold.store(false, Ordering::Release);
        self.is_interrupted.store(false, Ordering::Release);
        self.status.fetch_and(Status::RESETTING.bits(), Ordering::AcqRel);
    }

    /// Records that the reset has ended.
    pub fn reset_done(&self) {
        self.status.fetch_and(!Status::RESETTING.bits(), Ordering::AcqRel);
    }
}

fn set_low(addr: &mut GuestAddr, low: u32) {
    *addr = GuestAddr::new(addr.get() & !u64::from(u32::MAX) | u64::from(low));
}

fn set_high(addr: &mut GuestAddr, high: u32) {
    *addr = GuestAddr::new(addr.get() & u64::from(u32::MAX) | u64::from(high) << 32);
}
