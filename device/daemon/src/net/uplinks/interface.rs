//! Network interfaces of the host's kernel: TAP devices, packet sockets, MTU and state.
//!
//! The unsafe code here is the system calls that no crate wraps.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

/// `IFF_TAP` and `IFF_NO_PI` (linux/if_tun.h).
const TAP: libc::c_int = libc::IFF_TAP | libc::IFF_NO_PI;

/// Size in bytes of the receive buffer of a packet socket. The kernel's default is less than the
/// window of one TCP connection.
const PACKET_BUFFER: usize = 8 << 20;

/// Queries the kernel about interfaces.
#[derive(Debug)]
pub struct Interfaces(OwnedFd);

/// State of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Number of the interface.
    pub index: u32,
    /// Maximum length of an IP packet in bytes.
    pub mtu: u32,
    /// True if the interface is set up and has a carrier.
    pub up: bool,
}

impl Interfaces {
    /// Opens the socket for the queries.
    ///
    /// # Errors
    /// Returns an error if descriptors run out.
    pub fn new() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        Ok(Self(socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?))
    }

    /// Returns the state of an interface.
    ///
    /// # Errors
    /// Returns an error if no interface has this name.
    pub fn state(&self, name: &str) -> io::Result<State> {
        let index = netdevice::name_to_index(&self.0, name)?;
        let mut request = request(name)?;
        ioctl(self.0.as_fd(), libc::SIOCGIFMTU, &mut request)?;
        // SAFETY: SIOCGIFMTU has written this member, and any bytes are a number.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu };
        ioctl(self.0.as_fd(), libc::SIOCGIFFLAGS, &mut request)?;
        // SAFETY: SIOCGIFFLAGS has written this member, and any bytes are a number.
        let flags = libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags });
        const UP: libc::c_int = libc::IFF_UP | libc::IFF_RUNNING;
        Ok(State { index, mtu: u32::try_from(mtu).unwrap_or(0), up: flags & UP == UP })
    }
}

/// A TAP device that a file is attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapDevice {
    /// Name of the interface.
    pub name: String,
    /// True if frames at this device have a header ([`super::offload`]).
    pub headers: bool,
}

/// Attaches an open file of /dev/net/tun to the TAP device of this name. The device is created if
/// it does not exist and the process has the permission. With `headers`, frames have a header.
///
/// # Errors
/// Returns the kernel's error.
pub fn attach_tap(device: BorrowedFd<'_>, name: &str, headers: bool) -> io::Result<()> {
    let mut last = io::Error::from(io::ErrorKind::InvalidInput);
    // A device that already exists accepts only the flag that it was created with.
    for queues in [0, libc::IFF_MULTI_QUEUE] {
        let flags = TAP | queues | if headers { libc::IFF_VNET_HDR } else { 0 };
        let mut request = request(name)?;
        // CAST: the flags have 16 bits.
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        match ioctl(device, libc::TUNSETIFF, &mut request) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Returns the TAP device that `device` is attached to.
///
/// # Errors
/// Returns an error if it is not attached to a TAP device, or if frames have protocol information
/// there.
pub fn attached_tap(device: BorrowedFd<'_>) -> io::Result<TapDevice> {
    let mut request = request("")?;
    ioctl(device, libc::TUNGETIFF, &mut request)?;
    // SAFETY: TUNGETIFF has written this member, and any bytes are a number.
    let flags = libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags });
    if flags & TAP != TAP {
        let why = "it must be a TAP device with IFF_NO_PI";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    // CAST: characters of a name are bytes.
    let bytes = request.ifr_name.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0);
    let name = String::from_utf8(bytes.collect()).map_err(io::Error::other)?;
    Ok(TapDevice { name, headers: flags & libc::IFF_VNET_HDR != 0 })
}

/// Sets the length of the header of frames at a TAP device, and announces that checksums may be
/// incomplete and that frames of UDP and TCP may be joined ones. Returns whether the kernel
/// supports this (Linux 6.2), and therefore also cuts them itself.
///
/// # Errors
/// Returns an error if frames have no header at this device.
pub fn offload_tap(device: BorrowedFd<'_>) -> io::Result<bool> {
    let mut len = libc::c_int::try_from(super::offload::HEADER).map_err(io::Error::other)?;
    let number = device.as_raw_fd();
    // SAFETY: TUNSETVNETHDRSZ reads an int, which is alive.
    if unsafe { libc::ioctl(number, libc::TUNSETVNETHDRSZ, &raw mut len) } == -1 {
        return Err(io::Error::last_os_error());
    }
    let tcp = libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
    let offers = libc::TUN_F_CSUM | tcp | libc::TUN_F_USO4 | libc::TUN_F_USO6;
    // SAFETY: TUNSETOFFLOAD takes a number.
    Ok(unsafe { libc::ioctl(number, libc::TUNSETOFFLOAD, libc::c_ulong::from(offers)) } == 0)
}

/// Returns a copy of a descriptor that the process was started with.
///
/// # Errors
/// Returns an error if the descriptor is not open.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the descriptor is only used for the duration of the call, which fails if it is not
    // open. The copy is another descriptor, which belongs to nobody else.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(rustix::io::fcntl_dupfd_cloexec(descriptor, 3)?)
}

/// Opens a socket that receives all frames of an interface, whatever their destination, except
/// those that the host itself sends. Checksums may be incomplete ([`super::offload`]).
///
/// # Errors
/// Returns an error if there is no such interface, or if the process lacks CAP_NET_RAW.
pub fn open_packet(index: u32) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // With protocol 0 it receives nothing before it is bound to the interface.
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
    // Without CAP_NET_ADMIN the buffer keeps the kernel's default length, and loses more frames.
    let _shorter = set_socket_recv_buffer_size_force(&socket, PACKET_BUFFER);
    let index = libc::c_int::try_from(index).map_err(io::Error::other)?;
    for option in [libc::PACKET_AUXDATA, libc::PACKET_VNET_HDR, libc::PACKET_IGNORE_OUTGOING] {
        set_packet_option(&socket, option, &1)?;
    }
    bind_packet(&socket, index)?;
    let promiscuous = libc::packet_mreq {
        mr_ifindex: index,
        // CAST: the number of the kind is small.
        mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_packet_option(&socket, libc::PACKET_ADD_MEMBERSHIP, &promiscuous)?;
    Ok(socket)
}

/// Types of the options of packet sockets.
trait PacketOption: Copy {}
impl PacketOption for libc::c_int {}
impl PacketOption for libc::packet_mreq {}

fn set_packet_option<T: PacketOption>(
    socket: &OwnedFd,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let len = libc::socklen_t::try_from(size_of::<T>()).map_err(io::Error::other)?;
    let (socket, value) = (socket.as_raw_fd(), std::ptr::from_ref(value).cast());
    // SAFETY: the kernel reads `len` bytes of `value`, which are initialised: a `PacketOption` has
    // no padding.
    let rc = unsafe { libc::setsockopt(socket, libc::SOL_PACKET, option, value, len) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn bind_packet(socket: &OwnedFd, index: libc::c_int) -> io::Result<()> {
    // CAST: the numbers are small.
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as libc::c_ushort,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let len = libc::socklen_t::try_from(size_of_val(&address)).map_err(io::Error::other)?;
    let pointer = (&raw const address).cast();
    // SAFETY: the kernel reads `len` bytes of `address`, which has no padding and is alive.
    let rc = unsafe { libc::bind(socket.as_raw_fd(), pointer, len) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns a request about the interface of this name.
fn request(name: &str) -> io::Result<libc::ifreq> {
    let mut ifr_name: [libc::c_char; libc::IFNAMSIZ] = [0; libc::IFNAMSIZ];
    if name.len() >= ifr_name.len() || name.contains(['/', '\0']) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no interface has such a name"));
    }
    for (to, from) in ifr_name.iter_mut().zip(name.bytes()) {
        // CAST: characters of a name are bytes.
        *to = from as libc::c_char;
    }
    let flags = libc::__c_anonymous_ifr_ifru { ifru_flags: 0 };
    Ok(libc::ifreq { ifr_name, ifr_ifru: flags })
}

fn ioctl(
    descriptor: BorrowedFd<'_>,
    number: libc::Ioctl,
    request: &mut libc::ifreq,
) -> io::Result<()> {
    // SAFETY: the numbers that this module uses all read and write one `ifreq`, which is alive and
    // not shared. Other files than TAP devices refuse the numbers of TAP devices without an effect.
    let rc = unsafe { libc::ioctl(descriptor.as_raw_fd(), number, std::ptr::from_mut(request)) };
    if rc == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_a_state() {
        let interfaces = Interfaces::new().expect("a socket");
        let state = interfaces.state("lo").expect("a state");
        assert!(state.index > 0 && state.mtu >= 1280, "{state:?}");
        assert!(interfaces.state("no-such-if").is_err());
        assert!(interfaces.state("a-name-that-is-too-long").is_err());
    }

    #[test]
    fn descriptors_that_are_not_taps_are_refused() {
        assert!(inherited(-1).is_err());
        assert!(inherited(1_000_000).is_err());
        let copy = inherited(0).expect("standard input");
        assert!(attached_tap(copy.as_fd()).is_err());
        assert!(offload_tap(copy.as_fd()).is_err());
    }
}
