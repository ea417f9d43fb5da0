//! The two ends of a TCP connection of a QP, below TCP: addresses, and the claims to them.

use vrnic_abi::Qpn;
use vrnic_abi::qp::NO_VLAN;
use vrnic_packet::ethernet::vlan_of;
use vrnic_packet::ip::Addresses;
use vrnic_packet::{MacAddr, Nanos, ServiceFields, VlanMac};
use vrnic_tcp::connection::State as TcpState;
use vrnic_tcp::wire::frame::{HEADROOM, Path, build};
use vrnic_tcp::{Connection, Source, StreamPos, Undone};

use crate::ethernet::{Frame, Heading};
use crate::host::Host;
use crate::objects::network::addresses::Address;
use crate::objects::network::claims::{Claim, Tuple};
use crate::objects::qp::Route;

/// The ends of a connection.
#[derive(Debug)]
pub struct Ends<H: Host> {
    /// The headers below TCP.
    pub path: Path,
    /// Maximum number of TCP payload bytes in a frame.
    pub mss: u16,
    /// The identification of the last IPv4 packet.
    pub id: u16,
    /// Diverts the frames of the connection from the guest's network card until it has ended.
    claim: Option<Claim>,
    /// The claim to the MAC of this end, while TCP exists.
    address: Option<Address<H>>,
    /// The claim to an earlier MAC of this end, while TCP exists: that with which messages are
    /// copied, or else the last one. Peers may not know the present one yet.
    former: Option<Address<H>>,
}

impl<H: Host> Ends<H> {
    /// Creates the ends of a connection whose frames and whose MAC have been claimed.
    pub(crate) const fn new(path: Path, mss: u16, claim: Claim, address: Address<H>) -> Self {
        Self { path, mss, id: 0, claim: Some(claim), address: Some(address), former: None }
    }

    /// Returns the MAC to which frames are sent, in their VLAN.
    pub(crate) fn next_hop(&self) -> VlanMac {
        VlanMac::tagged(self.path.to, self.path.vlan)
    }

    /// Returns where frames go.
    pub(crate) fn heading(&self) -> Heading {
        let Path { vlan, traffic_class, .. } = self.path;
        let service = ServiceFields { traffic_class: Some(traffic_class), tag: vlan };
        Heading { to: self.next_hop(), service }
    }

    /// Returns the route of messages that are copied to the other end.
    pub(crate) fn route(&self) -> Option<Route> {
        let Path { from, to, vlan, source, destination, .. } = self.path;
        let addresses = Addresses::new(source.ip(), destination.ip())?;
        let vlan = vlan.and_then(vlan_of).unwrap_or(NO_VLAN);
        Some(Route { from, to, addresses, vlan })
    }

    /// Returns whether frames between these addresses are for this connection.
    pub(crate) fn is_between(&self, tuple: &Tuple) -> bool {
        self.claim.as_ref().is_some_and(|claim| claim.tuple() == tuple)
    }

    /// Returns whether frames with this destination MAC are accepted.
    pub(crate) fn is_at(&self, mac: MacAddr) -> bool {
        mac == self.path.from || self.former.as_ref().is_some_and(|former| former.mac() == mac)
    }

    /// Changes the MACs of the frames that are sent from now on: the MAC of this end, and that of
    /// the next hop. Messages that are copied keep `copied_from` as their source, if there are any.
    pub(crate) fn relocate(
        &mut self,
        address: Address<H>,
        to: MacAddr,
        copied_from: Option<MacAddr>,
    ) {
        let from = address.mac();
        if from != self.path.from {
            let old = self.address.replace(address);
            let needed = |former: &Address<H>| copied_from == Some(former.mac());
            self.former = self.former.take().filter(needed).or(old);
        }
        (self.path.from, self.path.to) = (from, to);
    }

    /// Assigns the frames of the connection to another QP.
    pub(crate) fn give_to(&self, qpn: Qpn) {
        if let Some(claim) = &self.claim {
            claim.give_to(qpn);
        }
    }

    /// Handles the end of TCP. Further frames go to the guest's network card.
    pub(crate) fn leave_frames(&mut self) {
        self.claim = None;
    }

    /// Gives up the MACs of a connection whose TCP has ended, when its last frame has been sent.
    pub(crate) fn leave_addresses(&mut self) {
        (self.address, self.former) = (None, None);
    }

    /// Ends `tcp` at once. Returns the frame that resets the peer's end, if that is still open.
    pub(crate) fn hang_up(&mut self, tcp: &mut Connection, now: Nanos) -> Option<Frame> {
        if tcp.state() == TcpState::TimeWait {
            return None;
        }
        tcp.abort();
        let reset = tcp.transmit(now, &mut Nothing, &mut [])?;
        self.id = self.id.wrapping_add(1);
        let mut buffer = [0; HEADROOM];
        let range = build(&self.path, self.id, &reset.header, &mut buffer, reset.len).ok()?;
        Some(Frame::copy(buffer.get(range)?))
    }
}

/// A source without bytes.
struct Nothing;

impl Source for Nothing {
    fn end(&self) -> StreamPos {
        StreamPos(0)
    }

    fn cut(&self, _at: StreamPos, limit: usize) -> usize {
        limit
    }

    fn read(&mut self, _at: StreamPos, _into: &mut [u8]) -> Result<(), Undone> {
        Err(Undone::Gone)
    }
}
