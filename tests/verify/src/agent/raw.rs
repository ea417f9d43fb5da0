//! Raw packets: flows, and sockets of the kernel that frames are for.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::calls::calls;
use super::objects::Objects;
use crate::rpc::values::UdpInfo;
use vrnic_verbs::flow::Flow;
use vrnic_verbs::model::{FlowAttr, RawCaps};

/// Bytes of the longest datagram that a socket receives here.
const LONGEST: usize = 2048;

calls! { RawPackets:
    /// Returns what the device can do for raw packets.
    fn raw_caps(&mut self) -> io::Result<RawCaps> {
        self.context()?.raw_caps()
    }

    /// Creates a flow for a QP.
    fn create_flow(&mut self, qp: u32, attr: FlowAttr) -> io::Result<u32> {
        let flow = self.qps.get(qp)?.create_flow(&attr)?;
        Ok(self.flows.add(flow))
    }

    /// Ends a flow.
    fn destroy_flow(&mut self, flow: u32) -> io::Result<()> {
        self.flows.destroy(flow, Flow::destroy)
    }

    /// From now on, the agent may not use raw packets.
    fn renounce_raw_packets(&mut self) -> io::Result<()> {
        let mut sets = capabilities(None)?;
        sets.effective.remove(CapabilitySet::NET_RAW);
        Ok(set_capabilities(None, sets)?)
    }

    /// Opens a UDP socket of the kernel.
    fn open_udp(&mut self) -> io::Result<UdpInfo> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let port = socket.local_addr()?.port();
        Ok(UdpInfo { socket: self.sockets.add(socket), port })
    }

    /// Sends a datagram from a socket.
    fn send_udp(&mut self, socket: u32, to: SocketAddrV4, data: Vec<u8>) -> io::Result<()> {
        self.sockets.get(socket)?.send_to(&data, to).map(drop)
    }

    /// Returns the next datagram of a socket, or `None` if none comes in time.
    fn receive_udp(&mut self, socket: u32, timeout_ms: u64) -> io::Result<Option<Vec<u8>>> {
        let socket = self.sockets.get(socket)?;
        socket.set_read_timeout(Some(Duration::from_millis(timeout_ms)))?;
        let mut data = vec![0; LONGEST];
        match socket.recv(&mut data) {
            Ok(length) => {
                data.truncate(length);
                Ok(Some(data))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}
