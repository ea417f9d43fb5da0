//! Memory that is plugged into a running guest, and returned.

/// MiB of such memory.
pub const PLUGGED_MEMORY: u32 = 2048;

/// The device of such memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryDevice {
    /// A memory module of 2 GiB, as for a slot of a mainboard.
    Module,
    /// virtio-mem: the device exists from the start, but without memory.
    Virtio,
}

impl MemoryDevice {
    /// Returns QEMU's arguments for the start of a machine.
    pub(crate) fn arguments(self) -> Vec<String> {
        match self {
            Self::Module => Vec::new(),
            Self::Virtio => vec![
                "-object".into(),
                format!("memory-backend-memfd,id=more,size={PLUGGED_MEMORY}M,share=on,reserve=off"),
                "-device".into(),
                "virtio-mem-pci,id=memory,memdev=more,requested-size=0".into(),
            ],
        }
    }

    /// Returns the commands of QEMU that plug in the memory.
    pub(crate) fn plug(self) -> Vec<String> {
        let size = u64::from(PLUGGED_MEMORY) << 20;
        match self {
            Self::Module => vec![
                format!(
                    r#"{{"execute":"object-add","arguments":{{"qom-type":"memory-backend-memfd","id":"more","size":{size},"share":true}}}}"#
                ),
                r#"{"execute":"device_add","arguments":{"driver":"pc-dimm","id":"memory","memdev":"more"}}"#.into(),
            ],
            Self::Virtio => vec![request(size)],
        }
    }

    /// Returns the command of QEMU that asks the guest to return the memory. The guest may refuse,
    /// or return a part.
    pub(crate) fn unplug(self) -> String {
        match self {
            Self::Module => r#"{"execute":"device_del","arguments":{"id":"memory"}}"#.into(),
            Self::Virtio => request(0),
        }
    }
}

/// Returns the command that asks a guest with virtio-mem to use this many bytes.
fn request(size: u64) -> String {
    format!(
        r#"{{"execute":"qom-set","arguments":{{"path":"/machine/peripheral/memory","property":"requested-size","value":{size}}}}}"#
    )
}
