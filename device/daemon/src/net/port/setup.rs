//! The configuration of a port: its addresses, its line, and the adapter behind it.

use std::num::NonZeroI32;

use vrnic_adapter::ethernet::{self, Offered};
use vrnic_adapter::vlans::Vlans;
use vrnic_control_api::port_view::Kind;
use vrnic_control_api::source::SourceCheck;
use vrnic_control_api::storm::StormLimit;
use vrnic_packet::{MacAddr, VlanMac};

use crate::net::line::Line;

/// Is called with the state of the link when that changes.
pub type LinkListener = Box<dyn Fn(bool) + Send>;

/// The adapter behind a port.
pub trait FrameSink: Send {
    /// Takes a frame that is for the adapter, and gives back one that is not. The frame has a MAC
    /// of the adapter or a group as its destination.
    fn offer(&self, frame: ethernet::Frame) -> Offered;

    /// Returns whether a MAC other than the adapter's own one also belongs to the adapter, in its
    /// VLAN.
    fn has_address(&self, at: VlanMac) -> bool;

    /// Returns whether the driver has named a MAC to the adapter, in whatever VLAN, even if it
    /// belongs to another one.
    fn claims(&self, mac: MacAddr) -> bool;

    /// Returns a number that changes with each message that the adapter sends or receives.
    fn messages(&self) -> u64;

    /// Returns the process that runs the adapter's guest, if a VMM is connected.
    fn vmm(&self) -> Option<Vmm>;

    /// Returns whether a frame of the guest's network card is of a TCP connection that the adapter
    /// has taken over.
    fn has_taken_over(&self, frame: &[u8]) -> bool;

    /// Gives copies of a frame that the adapter is not offered to its sniffers.
    fn sniff(&self, frame: &ethernet::Frame);

    /// Returns the comment of captures on a frame for the adapter.
    fn note(&self, frame: &ethernet::Frame) -> Option<String>;

    /// Returns whether the adapter has room for the frames of a few messages of a trunk.
    fn has_room(&self) -> bool;
}

/// The number of a VMM's process. Functions to which one process is connected are of one guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vmm(pub NonZeroI32);

/// Configuration of a port.
pub struct PortSetup {
    /// Name in logs.
    pub name: String,
    /// The connection at its outer end.
    pub kind: Kind,
    /// The address of the adapter; no other port may use it.
    pub mac: Option<MacAddr>,
    /// More addresses of the guest that no other port may use.
    pub addresses: Vec<MacAddr>,
    /// The line of the port; a function without a netdev has none.
    pub line: Option<Box<dyn Line>>,
    /// The other addresses with which the guest may send.
    pub source: SourceCheck,
    /// Maximum number of frames per second from this port to all ports.
    pub storm: StormLimit,
    /// The VLANs of the guest.
    pub vlans: Vlans,
    /// True if frames from this uplink may leave by other uplinks for which this is true.
    pub transit: bool,
    /// True if the functions follow this uplink: they have a link only while at least one of the
    /// uplinks that they follow has one.
    pub followed: bool,
    /// Is called with the state of the link.
    pub link: LinkListener,
    /// The adapter behind the port.
    pub sink: Option<Box<dyn FrameSink>>,
}

impl PortSetup {
    /// Returns the configuration of a port without an adapter and a line. Its guest may use all
    /// addresses and VLANs.
    #[must_use]
    pub fn new(name: &str, kind: Kind) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            mac: None,
            addresses: Vec::new(),
            line: None,
            source: SourceCheck::Nested,
            storm: StormLimit(0),
            vlans: Vlans::All,
            transit: false,
            followed: false,
            link: Box::new(|_| ()),
            sink: None,
        }
    }
}
