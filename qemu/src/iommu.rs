//! The IOMMU of a guest.

/// An IOMMU between a guest's adapter and its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Iommu {
    /// QEMU's model of Intel's IOMMU.
    Intel,
    /// The paravirtual IOMMU.
    Virtio,
}

impl Iommu {
    /// Returns QEMU's argument for its device, which must come before the adapter's.
    pub(crate) fn device(self) -> &'static str {
        match self {
            // QEMU sees what the guest maps only if the guest announces each change. KVM remaps
            // interrupts only with QEMU's interrupt controller.
            Self::Intel => "intel-iommu,caching-mode=on,intremap=off",
            Self::Virtio => "virtio-iommu-pci",
        }
    }

    /// Returns the parameters of the guest's kernel for it.
    pub(crate) fn kernel(self) -> &'static str {
        match self {
            Self::Intel => " intel_iommu=on",
            Self::Virtio => "",
        }
    }
}
