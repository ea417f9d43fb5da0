//! The line to the network of an interface that the host has, by a packet socket (packet(7)).

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::cmsg_space;
use nix::errno::Errno as NixErrno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use super::interface::{Interfaces, State, open_packet};
use super::offload::{HEADER, VlanTag};
use super::segments::arrival::take;
use super::segments::join::{Joined, cut_first};
use crate::net::frame::{FRAME_MAX, Frame};
use crate::net::line::{Change, Line, Log};
use crate::net::queue::SendQueue;
use crate::net::status::Reason;
use crate::net::turn::Turn;

/// Length of `struct tpacket_auxdata` (linux/if_packet.h).
const AUXDATA: usize = 20;

/// A packet socket.
pub struct Packet {
    name: String,
    interfaces: Interfaces,
    socket: Option<OwnedFd>,
    /// The last known state of the interface.
    state: State,
    /// True if frames may be joined.
    joins: bool,
    buffer: Vec<u8>,
}

/// Bytes that have been received.
struct Received {
    len: usize,
    tag: Option<VlanTag>,
}

impl Packet {
    /// Opens a socket on the interface of this name.
    ///
    /// # Errors
    /// Returns an error if there is no such interface, or if the daemon lacks CAP_NET_RAW.
    pub fn new(name: &str) -> io::Result<Self> {
        let interfaces = Interfaces::new()?;
        let state = interfaces.state(name)?;
        let socket = Some(open_packet(state.index)?);
        let buffer = vec![0; HEADER + FRAME_MAX + 1];
        Ok(Self { name: name.to_owned(), interfaces, socket, state, joins: true, buffer })
    }
}

impl Line for Packet {
    fn door(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn wire(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    fn is_up(&self) -> bool {
        self.socket.is_some() && self.state.up
    }

    fn mtu(&self) -> Option<u32> {
        Some(self.state.mtu)
    }

    fn joins(&self) -> bool {
        self.joins
    }

    fn wants_ticks(&self) -> bool {
        true
    }

    fn tick(&mut self, log: &Log<'_>) -> Change {
        let found = self.interfaces.state(&self.name).ok();
        let (Some(state), name) = (found, &self.name) else {
            if self.socket.is_none() {
                return Change::None;
            }
            log.line(|port| tracing::warn!(port, interface = self.name, "the interface is gone"));
            return Change::Gone;
        };
        let same = state.index == self.state.index && self.socket.is_some();
        self.state = state;
        if same {
            return Change::None;
        }
        match open_packet(state.index) {
            Ok(socket) => {
                log.line(|port| tracing::info!(port, interface = name, "the interface is back"));
                self.socket = Some(socket);
                Change::Connected
            }
            Err(error) => {
                log.line(|port| {
                    tracing::warn!(port, interface = name, %error, "the interface cannot be used");
                });
                Change::Gone
            }
        }
    }

    fn receive(&mut self, frames: &mut Vec<Frame>, turn: &mut Turn, log: &Log<'_>) -> Change {
        let Self { socket: Some(socket), buffer, .. } = self else { return Change::None };
        while !turn.is_over() {
            match receive(socket, buffer) {
                Ok(received) => {
                    turn.spend(1, received.len);
                    let bytes = buffer.get(..received.len).unwrap_or_default();
                    take(bytes, received.tag, frames, log);
                }
                Err(NixErrno::EAGAIN) => return Change::None,
                Err(NixErrno::EINTR) => {}
                // The next tick checks whether the interface still exists.
                Err(NixErrno::ENETDOWN) => return Change::None,
                Err(error) => {
                    log.line(|port| {
                        tracing::warn!(port, %error, "the packet socket is lost: reading failed");
                    });
                    return Change::Gone;
                }
            }
        }
        Change::None
    }

    fn flush(&mut self, queue: &mut SendQueue, turn: &mut Turn, log: &Log<'_>) -> io::Result<()> {
        let Some(socket) = &self.socket else { return Ok(()) };
        while !turn.is_over() {
            log.status.count_dropped(Reason::Offload, cut_first(queue, self.joins));
            let Some(([count, entries], sent)) = send(socket, queue, self.joins) else {
                return Ok(());
            };
            match sent {
                Ok(_) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(Errno::NETDOWN | Errno::NXIO) => {
                    log.status.count_dropped(Reason::NoLink, count);
                }
                Err(Errno::NOBUFS | Errno::NOMEM) => {
                    log.status.count_dropped(Reason::QueueFull, count);
                }
                // Kernels before 6.2 do not support joined frames.
                Err(Errno::INVAL) if count > 1 => {
                    self.joins = false;
                    continue;
                }
                Err(error @ (Errno::INVAL | Errno::MSGSIZE)) => {
                    log.dropped(Reason::TooLong, count, |port| {
                        tracing::warn!(port, %error, "the interface has refused a frame");
                    });
                }
                Err(error) => return Err(error.into()),
            }
            queue.remove(entries);
            turn.spend(count, 0);
        }
        Ok(())
    }

    fn close(&mut self) {
        self.socket = None;
    }
}

/// Sends the first frame of a queue, or several frames joined to one. Returns the number of frames
/// sent and of their entries in the queue, or none if no frame waits.
fn send(
    socket: &OwnedFd,
    queue: &SendQueue,
    join: bool,
) -> Option<([usize; 2], rustix::io::Result<usize>)> {
    let next = Joined::next(queue, join)?;
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = sendmsg(socket, &next.slices(true), &mut SendAncillaryBuffer::default(), flags);
    Some(([next.frames(), next.entries()], sent))
}

/// Receives a frame and what the kernel says about it.
fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> nix::Result<Received> {
    let mut control = cmsg_space!([u8; AUXDATA]);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags)?;
    let tag = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::Unknown(unknown)
            if unknown.cmsg_header.cmsg_level == libc::SOL_PACKET
                && unknown.cmsg_header.cmsg_type == libc::PACKET_AUXDATA =>
        {
            vlan_tag(&unknown.data_bytes)
        }
        _ => None,
    });
    Ok(Received { len: message.bytes, tag })
}

/// Returns the VLAN tag that the kernel has taken out of a frame (`struct tpacket_auxdata`).
fn vlan_tag(auxdata: &[u8]) -> Option<VlanTag> {
    let word = |at: usize| auxdata.get(at..)?.first_chunk().copied().map(u16::from_ne_bytes);
    let status = u32::from_ne_bytes(*auxdata.first_chunk()?);
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let named = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    // CAST: ETH_P_8021Q has 16 bits.
    let tpid = if named { word(18)? } else { libc::ETH_P_8021Q as u16 };
    Some(VlanTag { tpid, tci: word(16)? })
}
