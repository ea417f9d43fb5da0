//! The 4 KiB of configuration space: a type 0 header (PCI Local Bus 3.0 section 6.1), the list of
//! capabilities, and an empty extended space. VMMs keep their own copies of the BARs and of MSI-X.
//! What they forward is stored and answered as hardware does.

use vrnic_abi::pci::{
    BAR_REGS, BAR_REGS_LEN, BAR_UAR, BAR_UAR_LEN, BAR_WINDOW, BAR_WINDOW_LEN, CLASS_CODE,
    DEVICE_ID, SUBSYSTEM_ID, VENDOR_ID,
};

use super::capability::{self, DEVCTL_FLR, EXPRESS_DEVCTL};

/// Length of configuration space in bytes.
pub const CONFIG_LEN: usize = 4096;
/// Offset of the Command register.
pub const COMMAND: u16 = 0x04;
/// Command: the function may use DMA and interrupts.
pub const COMMAND_BUS_MASTER: u16 = 1 << 2;
/// Command: the function responds to accesses to its BARs.
pub const COMMAND_MEMORY: u16 = 1 << 1;

const STATUS: u16 = 0x06;
const STATUS_CAP_LIST: u16 = 1 << 4;
const REVISION_CLASS: u16 = 0x08;
const CACHE_LINE_SIZE: u16 = 0x0c;
const BAR_FIRST: u16 = 0x10;
/// The register after the BARs.
const CARDBUS: u16 = 0x28;
const SUBSYSTEM: u16 = 0x2c;
const CAP_POINTER: u16 = 0x34;
const INTERRUPT_LINE: u16 = 0x3c;

/// 64-bit memory BAR.
const COMMAND_WRITABLE: u16 = 0x0546;
/// Memory BAR of 64 bits.
const BAR_64: u64 = 0x4;
/// Prefetchable.
const BAR_PREFETCH: u64 = 0x8;

/// The effects of a write to configuration space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// The new value of the bus-master bit, if it has changed.
    pub bus_master: Option<bool>,
    /// The new bus address of BAR2, if it has changed; none if BAR2 does not respond.
    pub doorbells: Option<Option<u64>>,
    /// A function level reset was started.
    pub reset: bool,
}

/// The configuration space of a function.
#[derive(Debug)]
pub struct ConfigSpace {
    bytes: Box<[u8; CONFIG_LEN]>,
    writable: Box<[u8; CONFIG_LEN]>,
}

impl Default for ConfigSpace {
    fn default() -> Self {
        Self::new()
    }
}

impl ConfigSpace {
    /// Creates configuration space in its state after power-on.
    #[must_use]
    pub fn new() -> Self {
        let mut this =
            Self { bytes: Box::new([0; CONFIG_LEN]), writable: Box::new([0; CONFIG_LEN]) };
        this.put(0, &VENDOR_ID.to_le_bytes(), &[]);
        this.put(2, &DEVICE_ID.to_le_bytes(), &[]);
        this.put(COMMAND, &[0; 2], &COMMAND_WRITABLE.to_le_bytes());
        this.put(STATUS, &STATUS_CAP_LIST.to_le_bytes(), &[]);
        this.put(REVISION_CLASS, &(CLASS_CODE << 8).to_le_bytes(), &[]);
        this.put(CACHE_LINE_SIZE, &[0], &[0xff]);
        this.put(SUBSYSTEM, &VENDOR_ID.to_le_bytes(), &[]);
        this.put(SUBSYSTEM + 2, &SUBSYSTEM_ID.to_le_bytes(), &[]);
        this.put(INTERRUPT_LINE, &[0], &[0xff]);
        this.put_bar(BAR_REGS, BAR_REGS_LEN, 0);
        this.put_bar(BAR_UAR, BAR_UAR_LEN, BAR_PREFETCH);
        this.put_bar(BAR_WINDOW, BAR_WINDOW_LEN, BAR_PREFETCH);
        this.put_capabilities();
        this
    }

    /// Restores the state after power-on.
    pub fn reset(&mut self) {
        *self = Self::new();
    }

    /// Does the same for a function level reset (PCI Express Base 5.0, 6.6.2), but keeps the BARs.
    /// The guest reads the VMM's copies of them, which this reset does not change, and so a kernel
    /// that restores the addresses finds nothing to write.
    pub fn reset_function(&mut self) {
        let mut bars = [0; (CARDBUS - BAR_FIRST) as usize];
        self.read(BAR_FIRST.into(), &mut bars);
        self.reset();
        self.put(BAR_FIRST, &bars, &[]);
    }

    /// Returns whether the function may use DMA and interrupts.
    #[must_use]
    pub fn bus_master(&self) -> bool {
        self.word(COMMAND) & COMMAND_BUS_MASTER != 0
    }

    /// Returns the bus address of BAR2, if it responds.
    #[must_use]
    pub fn doorbells(&self) -> Option<u64> {
        let mut address = [0; 8];
        self.read(u64::from(bar_offset(BAR_UAR)), &mut address);
        let enabled = self.word(COMMAND) & COMMAND_MEMORY != 0;
        enabled.then_some(u64::from_le_bytes(address) & !(BAR_UAR_LEN - 1))
    }

    /// Reads bytes. Bytes beyond the end are 0xff.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        for (index, byte) in into.iter_mut().enumerate() {
            *byte = position(offset, index).map_or(0xff, |at| self.bytes[at]);
        }
    }

    /// Writes the writable bits, and returns the effects.
    pub fn write(&mut self, offset: u64, from: &[u8]) -> Effects {
        let (master, doorbells) = (self.bus_master(), self.doorbells());
        for (index, byte) in from.iter().enumerate() {
            let Some(at) = position(offset, index) else { break };
            let mask = self.writable[at];
            self.bytes[at] = (self.bytes[at] & !mask) | (byte & mask);
        }
        let flr = u64::from(EXPRESS_DEVCTL) + 1;
        let reset = flr
            .checked_sub(offset)
            .and_then(|at| from.get(usize::try_from(at).ok()?))
            .is_some_and(|byte| u16::from(*byte) << 8 & DEVCTL_FLR != 0);
        let now = self.bus_master();
        let place = self.doorbells();
        Effects {
            bus_master: (now != master).then_some(now),
            doorbells: (place != doorbells).then_some(place),
            reset,
        }
    }

    fn word(&self, offset: u16) -> u16 {
        let mut bytes = [0; 2];
        self.read(u64::from(offset), &mut bytes);
        u16::from_le_bytes(bytes)
    }

    /// Sets contents, and the writable bits, from the same offset on.
    fn put(&mut self, offset: u16, bytes: &[u8], writable: &[u8]) {
        let at = usize::from(offset);
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.writable[at..at + writable.len()].copy_from_slice(writable);
    }

    /// Adds a 64-bit memory BAR. Its address bits below its size stay zero, which tells software
    /// the size.
    fn put_bar(&mut self, index: u32, len: u64, flags: u64) {
        self.put(bar_offset(index), &(flags | BAR_64).to_le_bytes(), &(!(len - 1)).to_le_bytes());
    }

    fn put_capabilities(&mut self) {
        let mut link = CAP_POINTER;
        for cap in capability::all() {
            self.put(cap.offset, &cap.bytes, &cap.writable);
            let next = u8::try_from(cap.offset).expect("capabilities lie in the first 256 bytes");
            self.put(link, &[next], &[]);
            link = cap.offset + 1;
        }
    }
}

/// Returns the offset of a BAR, of which there are six.
fn bar_offset(index: u32) -> u16 {
    BAR_FIRST + u16::try_from(index * 4).expect("six BARs")
}

/// Returns the position of byte `index` of an access at `offset`, or none if it is beyond the end.
fn position(offset: u64, index: usize) -> Option<usize> {
    let at = usize::try_from(offset).ok()?.checked_add(index)?;
    (at < CONFIG_LEN).then_some(at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn dword(config: &ConfigSpace, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        config.read(offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn identity_is_that_of_the_abi() {
        let config = ConfigSpace::new();
        assert_eq!(dword(&config, 0), 0x524e_1234);
        assert_eq!(dword(&config, 8), 0x0207_0000);
    }

    #[test]
    fn bars_are_sized_by_writing_ones() {
        let mut config = ConfigSpace::new();
        for (bar, len, flags) in
            [(0, BAR_REGS_LEN, 0x4), (2, BAR_UAR_LEN, 0xc), (4, BAR_WINDOW_LEN, 0xc)]
        {
            let at = 0x10 + bar * 4;
            config.write(at, &[0xff; 8]);
            let low = u64::from(dword(&config, at));
            let value = low | u64::from(dword(&config, at + 4)) << 32;
            assert_eq!(value & 0xf, flags, "type of BAR{bar}");
            assert_eq!(!(value & !0xf) + 1, len, "size of BAR{bar}");
        }
    }

    #[test]
    fn the_place_of_doorbells_is_told_while_they_answer() {
        let mut config = ConfigSpace::new();
        assert_eq!(config.write(0x18, &(3u64 << 40).to_le_bytes()), Effects::default());
        let place = |effects: Effects| effects.doorbells;
        assert_eq!(place(config.write(4, &[0x02, 0])), Some(Some(3 << 40)));
        assert_eq!(place(config.write(4, &[0x06, 0])), None, "no change");
        assert_eq!(place(config.write(0x1c, &[0, 2, 0, 0])), Some(Some(2 << 40)));
        assert_eq!(place(config.write(4, &[0x04, 0])), Some(None));
        config.reset_function();
        assert_eq!(config.doorbells(), None);
        assert_eq!(place(config.write(4, &[0x02, 0])), Some(Some(2 << 40)), "it was kept");
        config.reset();
        config.write(4, &[0x02, 0]);
        assert_eq!(config.doorbells(), Some(0));
    }

    #[test]
    fn capability_list_ends_and_names_msix_express_and_pm() {
        let config = ConfigSpace::new();
        let mut at = dword(&config, u64::from(CAP_POINTER)) & 0xff;
        let mut ids = Vec::new();
        while at != 0 {
            assert!(ids.len() < 8, "the list has a loop");
            let head = dword(&config, u64::from(at));
            ids.push(head & 0xff);
            at = head >> 8 & 0xff;
        }
        assert_eq!(ids, [0x01, 0x11, 0x10]);
    }

    #[test]
    fn bus_master_and_flr_are_reported_once() {
        let mut config = ConfigSpace::new();
        assert_eq!(config.write(4, &[0x06, 0]).bus_master, Some(true));
        assert_eq!(config.write(4, &[0x06, 0]).bus_master, None);
        assert_eq!(config.write(4, &[0x02, 0]).bus_master, Some(false));
        let flr = DEVCTL_FLR.to_le_bytes();
        assert!(config.write(u64::from(EXPRESS_DEVCTL), &flr).reset);
        let mut control = [0; 2];
        config.read(u64::from(EXPRESS_DEVCTL), &mut control);
        assert_eq!(control[1] & 0x80, 0, "the bit reads as zero");
        assert!(!config.write(u64::from(EXPRESS_DEVCTL), &[0xff]).reset);
    }

    #[test]
    fn accesses_beyond_the_end_are_harmless() {
        let mut config = ConfigSpace::new();
        let mut bytes = [0; 8];
        config.read(4092, &mut bytes);
        assert_eq!(bytes, [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
        config.read(u64::MAX - 2, &mut bytes);
        assert_eq!(config.write(u64::MAX - 2, &bytes), Effects::default());
    }

    proptest! {
        /// No write changes a field that a driver relies on, and the effects report each change.
        #[test]
        fn any_writes_leave_the_fixed_part_alone(
            writes in proptest::collection::vec(
                (prop_oneof![0u64..0x110, 4080u64..4200, any::<u64>()],
                 proptest::collection::vec(any::<u8>(), 0..20)), 0..40
            )
        ) {
            let fresh = ConfigSpace::new();
            let mut config = ConfigSpace::new();
            let (mut master, mut doorbells) = (false, None);
            for (offset, bytes) in writes {
                let effects = config.write(offset, &bytes);
                master = effects.bus_master.unwrap_or(master);
                prop_assert_eq!(master, config.bus_master());
                doorbells = effects.doorbells.unwrap_or(doorbells);
                prop_assert_eq!(doorbells, config.doorbells());
            }
            for (at, mask) in config.writable.iter().enumerate() {
                prop_assert_eq!((config.bytes[at] ^ fresh.bytes[at]) & !mask, 0, "byte {:#x}", at);
            }
        }
    }

    #[test]
    fn read_only_fields_stay() {
        let mut config = ConfigSpace::new();
        config.write(0, &[0xff; 4]);
        assert_eq!(dword(&config, 0), 0x524e_1234);
    }
}
