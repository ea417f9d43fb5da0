//! The actions of rules, and the places in the adapter where they happen.

use std::time::Duration;

use vrnic_abi::admin;
use vrnic_abi::cq;

/// The place in the adapter at which a rule looks for things of one kind, which it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// Packets that leave an adapter.
    Packet,
    /// Work requests of send queues, before they begin.
    Request,
    /// Messages that are copied to another function of the daemon.
    Message,
    /// Messages that are copied, when their first bytes are moved.
    Copy,
    /// Messages that need a receive.
    Receive,
    /// Completions of work requests that have succeeded.
    Completion,
    /// Entries that are written to completion queues.
    Entry,
    /// Events that are written to event queues.
    Event,
    /// Interrupts of event queues and of the admin queue.
    Interrupt,
    /// Admin commands.
    Command,
    /// Turns of QPs with new work requests.
    Turn,
    /// The state of a port or of the whole device, which changes by time.
    State,
}

impl Site {
    /// Returns the bit of the site in a set of sites.
    #[must_use]
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }

    /// Returns whether the things counted here belong to a QP, by which rules can select them.
    pub(crate) const fn has_qp(self) -> bool {
        !matches!(self, Self::Interrupt | Self::Command | Self::State)
    }
}

/// An action of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The packet is lost.
    Drop,
    /// The packet arrives later by this time.
    Delay(Duration),
    /// The packet arrives twice.
    Duplicate,
    /// The packet arrives after this number of later packets.
    Reorder(u32),
    /// One of its bits is flipped.
    Corrupt(Crc),
    /// The work request begins later by this time.
    HoldRequest(Duration),
    /// The work request takes longer, as if memory had this many bytes per second.
    SlowMemory(u64),
    /// The work request is not executed, and completes with this status.
    FailRequest(cq::Status),
    /// The work request is not executed, and its QP moves to the error state.
    FailQp,
    /// A copied message is lost, and so is each answer to it.
    DropMessage,
    /// The bytes of a copied message become visible in another order, and not all at a time.
    Disorder,
    /// The message finds no receive.
    Rnr,
    /// The work request is executed, and completes with this status.
    FailCompletion(cq::Status),
    /// The completion queue has no room for the entry.
    FillCq,
    /// The event is lost.
    DropEvent,
    /// The event is written later by this time.
    DelayEvent(Duration),
    /// The interrupt is lost.
    DropInterrupt,
    /// The interrupt is raised later by this time.
    DelayInterrupt(Duration),
    /// The command is not executed, and fails with this status.
    FailCommand(admin::Status),
    /// The command and those after it are executed later by this time.
    DelayCommand(Duration),
    /// The command is not executed and has no answer.
    DropCommand,
    /// The worker does nothing for the function for this time.
    PauseWorker(Duration),
    /// The port has no link.
    PortDown(Pattern),
    /// The port carries no larger packets than this, as `enum ib_mtu`.
    LowerMtu(u8),
    /// The entry of the GID table with this index is not there.
    RemoveGid(u16),
    /// The port is in loopback mode: raw packets that it sends come back to it.
    LoopBack,
    /// The device fails, and works again after a reset.
    FailDevice(Pattern),
}

/// The times at which a state of an [`Action`] begins and ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pattern {
    /// The time for which the state lasts; without it, until the end of the rule.
    pub lasts: Option<Duration>,
    /// The time between two of them; without it, there is only one.
    pub pause: Option<Duration>,
}

/// The checks that a corrupt packet passes: the invariant CRC of RoCE, or the checksum of TCP and
/// the CRC of an FPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crc {
    /// All, so the receiver takes the packet. The CRC of an FPDU is right again if the segment
    /// begins with the FPDU, contains all of it, and has no markers.
    Right,
    /// Only the checksum of TCP, so that the CRC of the FPDU is wrong. A packet of RoCE passes
    /// none.
    Checksum,
    /// None, so the receiver drops the packet.
    Wrong,
}

impl Action {
    /// Returns the place where the rule looks.
    #[must_use]
    pub const fn site(self) -> Site {
        match self {
            Self::Drop | Self::Delay(_) | Self::Duplicate | Self::Reorder(_) | Self::Corrupt(_) => {
                Site::Packet
            }
            Self::HoldRequest(_) | Self::SlowMemory(_) | Self::FailRequest(_) | Self::FailQp => {
                Site::Request
            }
            Self::DropMessage => Site::Message,
            Self::Disorder => Site::Copy,
            Self::Rnr => Site::Receive,
            Self::FailCompletion(_) => Site::Completion,
            Self::FillCq => Site::Entry,
            Self::DropEvent | Self::DelayEvent(_) => Site::Event,
            Self::DropInterrupt | Self::DelayInterrupt(_) => Site::Interrupt,
            Self::FailCommand(_) | Self::DelayCommand(_) | Self::DropCommand => Site::Command,
            Self::PauseWorker(_) => Site::Turn,
            Self::PortDown(_)
            | Self::LowerMtu(_)
            | Self::RemoveGid(_)
            | Self::LoopBack
            | Self::FailDevice(_) => Site::State,
        }
    }

    /// Returns the name in the text of a rule.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Delay(_) => "delay",
            Self::Duplicate => "duplicate",
            Self::Reorder(_) => "reorder",
            Self::Corrupt(_) => "corrupt",
            Self::HoldRequest(_) => "hold-request",
            Self::SlowMemory(_) => "slow-memory",
            Self::FailRequest(_) => "fail-request",
            Self::FailQp => "fail-qp",
            Self::DropMessage => "drop-message",
            Self::Disorder => "disorder",
            Self::Rnr => "rnr",
            Self::FailCompletion(_) => "fail-completion",
            Self::FillCq => "fill-cq",
            Self::DropEvent => "drop-event",
            Self::DelayEvent(_) => "delay-event",
            Self::DropInterrupt => "drop-interrupt",
            Self::DelayInterrupt(_) => "delay-interrupt",
            Self::FailCommand(_) => "fail-command",
            Self::DelayCommand(_) => "delay-command",
            Self::DropCommand => "drop-command",
            Self::PauseWorker(_) => "pause-worker",
            Self::PortDown(_) => "port-down",
            Self::LowerMtu(_) => "lower-mtu",
            Self::RemoveGid(_) => "remove-gid",
            Self::LoopBack => "loop-back",
            Self::FailDevice(_) => "fail-device",
        }
    }
}
