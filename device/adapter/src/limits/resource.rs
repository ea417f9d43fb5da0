//! The resources of which an adapter has a limited number.

/// Declares the resources. Each has a name in settings and metrics.
macro_rules! resources {
    ($($(#[$about:meta])+ $resource:ident = $name:literal;)+) => {
        /// A resource of an adapter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Resource {
            $($(#[$about])+ $resource,)+
        }

        impl Resource {
            /// All resources.
            pub const ALL: &[Self] = &[$(Self::$resource),+];

            /// Returns its name in settings and metrics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$resource => $name,)+
                }
            }
        }
    };
}

resources! {
    /// User contexts.
    Contexts = "contexts";
    /// PDs.
    Pd = "pd";
    /// CQs.
    Cq = "cq";
    /// Entries of all CQs together.
    Cqe = "cqe";
    /// SRQs.
    Srq = "srq";
    /// QPs, without the general services QP.
    Qp = "qp";
    /// Entries of a send queue, a receive queue or an SRQ.
    Wr = "wr";
    /// Regions, windows and commands, which share the table of keys.
    Mr = "mr";
    /// Windows.
    Mw = "mw";
    /// Bytes of device memory.
    DeviceMemory = "device-memory";
    /// Address ranges of direct transfers.
    Ranges = "ranges";
    /// Multicast groups with members.
    Mcast = "mcast";
    /// Doorbell pages (UARs), including the kernel's page.
    Uar = "uar";
    /// Flow rules.
    Flows = "flows";
}

impl Resource {
    /// Returns the resource with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|known| known.name() == name)
    }

    /// Returns whether objects use it up. Otherwise its maximum concerns each object by itself.
    #[must_use]
    pub const fn is_used_up(self) -> bool {
        !matches!(self, Self::Wr)
    }
}
