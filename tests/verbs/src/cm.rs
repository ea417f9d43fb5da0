//! Connections by the RDMA connection manager, for QPs that were created without it. iWARP devices
//! have no other connections.

use std::io;
use std::mem;
use std::net::SocketAddrV4;
use std::os::raw::c_void;
use std::ptr::{self, NonNull};
use std::time::Duration;

use super::{check, ffi, object, readable};

/// Time limit of each step.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The same time limit for librdmacm, in milliseconds.
const TIMEOUT_MS: i32 = 30_000;

/// Number of ports that are tried before a listener fails.
const TRIES: usize = 8;

/// The parameters of one end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Wishes<'a> {
    /// The number of its QP, which must be in Init.
    pub qpn: u32,
    /// True if that QP has a shared receive queue.
    pub srq: bool,
    /// READs and atomics that may be outstanding, of either end.
    pub depth: u8,
    /// Data for the peer's program.
    pub private: &'a [u8],
}

impl Wishes<'_> {
    fn param(&self) -> io::Result<ffi::rdma_conn_param> {
        // SAFETY: all-zero is valid for this struct of integers and a null pointer.
        let mut param: ffi::rdma_conn_param = unsafe { mem::zeroed() };
        (param.qp_num, param.srq) = (self.qpn, self.srq.into());
        (param.responder_resources, param.initiator_depth) = (self.depth, self.depth);
        (param.private_data, param.private_data_len) = private(self.private)?;
        Ok(param)
    }
}

/// The events of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The connection is established.
    Established,
    /// The peer has rejected the request, with this private data, or no program listens.
    Rejected(Vec<u8>),
    /// The connection was not established for another reason.
    Failed,
    /// The connection has ended.
    Disconnected,
    /// The device is being removed.
    Removed,
}

/// An end that waits for a request of its peer.
pub struct Listener {
    id: Id,
}

/// A request for a connection.
pub struct Request {
    id: Id,
    private: Vec<u8>,
}

/// One end of a connection.
pub struct Connection {
    id: Id,
}

/// An identifier of librdmacm with its own event channel.
struct Id {
    raw: NonNull<ffi::rdma_cm_id>,
    channel: NonNull<ffi::rdma_event_channel>,
}

struct Event {
    kind: ffi::rdma_cm_event_type,
    status: i32,
    /// The identifier to which the event belongs.
    id: NonNull<ffi::rdma_cm_id>,
    private: Vec<u8>,
}

impl Listener {
    /// Listens at all addresses, on a port that the kernel chooses. On an iWARP device that can be
    /// a port that TCP has in use, because the kernel chooses it without asking TCP.
    pub fn new() -> io::Result<Self> {
        for _ in 0..TRIES {
            match Self::at(0, 1) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                made => return made,
            }
        }
        Self::at(0, 1)
    }

    /// Listens at all addresses, on this port. At most `backlog` requests may wait.
    pub fn at(port: u16, backlog: i32) -> io::Result<Self> {
        let id = Id::new()?;
        let mut any = address(SocketAddrV4::new([0; 4].into(), port));
        // SAFETY: the identifier is live, and the address is as long as its family says.
        check(unsafe { ffi::rdma_bind_addr(id.raw.as_ptr(), (&raw mut any).cast()) })?;
        // SAFETY: the identifier is live.
        check(unsafe { ffi::rdma_listen(id.raw.as_ptr(), backlog) })?;
        Ok(Self { id })
    }

    /// Returns the port of the listener.
    pub fn port(&self) -> u16 {
        // SAFETY: the identifier is live.
        u16::from_be(unsafe { ffi::rdma_get_src_port(self.id.raw.as_ptr()) })
    }

    /// Waits for a request. No further peer can connect then.
    pub fn request(self) -> io::Result<Request> {
        let event = self.id.event(ffi::RDMA_CM_EVENT_CONNECT_REQUEST)?;
        self.id.free()?;
        // The events of the connection arrive through the channel of its listener.
        let id = Id { raw: event.id, channel: self.id.channel };
        Ok(Request { id, private: event.private })
    }

    /// Waits for a request for this time, and goes on listening.
    pub fn next(&self, timeout: Duration) -> io::Result<Option<Request>> {
        let Some(event) = self.id.event_within(timeout)? else { return Ok(None) };
        if (event.kind, event.status) != (ffi::RDMA_CM_EVENT_CONNECT_REQUEST, 0) {
            return Err(event.is_not(ffi::RDMA_CM_EVENT_CONNECT_REQUEST));
        }
        let id = Id { raw: event.id, channel: channel()? };
        // SAFETY: both are live. The identifier has no events that were not acknowledged.
        check(unsafe { ffi::rdma_migrate_id(id.raw.as_ptr(), id.channel.as_ptr()) })?;
        Ok(Some(Request { id, private: event.private }))
    }

    /// Ends the listener.
    pub fn destroy(self) -> io::Result<()> {
        self.id.destroy()
    }
}

impl Request {
    /// Returns the private data of the peer.
    pub fn private(&self) -> &[u8] {
        &self.private
    }

    /// Accepts the request. The connection then needs [`Connection::established`].
    pub fn accept(self, wishes: Wishes<'_>) -> io::Result<Connection> {
        let mut param = wishes.param()?;
        // SAFETY: the identifier is live, and the struct complete.
        check(unsafe { ffi::rdma_accept(self.id.raw.as_ptr(), &raw mut param) })?;
        Ok(Connection { id: self.id })
    }

    /// Rejects the request, with data for the peer's program.
    pub fn reject(self, data: &[u8]) -> io::Result<()> {
        let (data, len) = private(data)?;
        // SAFETY: the identifier is live, and there are `len` bytes of data.
        check(unsafe { ffi::rdma_reject(self.id.raw.as_ptr(), data, len) })?;
        self.id.destroy()
    }

    /// Destroys the request without an answer of the program.
    pub fn destroy(self) -> io::Result<()> {
        self.id.destroy()
    }
}

impl Connection {
    /// Begins to connect to a listener.
    pub fn begin(to: SocketAddrV4, wishes: Wishes<'_>) -> io::Result<Self> {
        let connection = Self::resolved(to)?;
        connection.connect(wishes)?;
        Ok(connection)
    }

    /// Resolves the route to a listener. The connection then needs [`Connection::connect`].
    pub fn resolved(to: SocketAddrV4) -> io::Result<Self> {
        let id = Id::new()?;
        let raw = id.raw.as_ptr();
        let mut to = address(to);
        // SAFETY: the identifier is live, and the address is as long as its family says.
        check(unsafe {
            ffi::rdma_resolve_addr(raw, ptr::null_mut(), (&raw mut to).cast(), TIMEOUT_MS)
        })?;
        id.event(ffi::RDMA_CM_EVENT_ADDR_RESOLVED)?;
        // SAFETY: the identifier is live.
        check(unsafe { ffi::rdma_resolve_route(raw, TIMEOUT_MS) })?;
        id.event(ffi::RDMA_CM_EVENT_ROUTE_RESOLVED)?;
        Ok(Self { id })
    }

    /// Begins to connect.
    pub fn connect(&self, wishes: Wishes<'_>) -> io::Result<()> {
        let mut param = wishes.param()?;
        // SAFETY: the identifier is live and the struct complete.
        check(unsafe { ffi::rdma_connect(self.id.raw.as_ptr(), &raw mut param) })
    }

    /// Waits for the next event for this time.
    pub fn news(&self, timeout: Duration) -> io::Result<Option<News>> {
        let Some(event) = self.id.event_within(timeout)? else { return Ok(None) };
        Ok(Some(match event.kind {
            ffi::RDMA_CM_EVENT_ESTABLISHED => News::Established,
            ffi::RDMA_CM_EVENT_REJECTED => News::Rejected(event.private),
            ffi::RDMA_CM_EVENT_CONNECT_ERROR | ffi::RDMA_CM_EVENT_UNREACHABLE => News::Failed,
            ffi::RDMA_CM_EVENT_DISCONNECTED => News::Disconnected,
            ffi::RDMA_CM_EVENT_DEVICE_REMOVAL => News::Removed,
            _ => return Err(event.is_not(ffi::RDMA_CM_EVENT_ESTABLISHED)),
        }))
    }

    /// Waits until the connection is established. Returns the private data of the peer's reply,
    /// which a responder does not get.
    pub fn established(&self) -> io::Result<Vec<u8>> {
        self.id.event(ffi::RDMA_CM_EVENT_ESTABLISHED).map(|event| event.private)
    }

    /// Waits until the peer has rejected the request. Returns its private data.
    pub fn rejected(&self) -> io::Result<Vec<u8>> {
        let event = self.id.any_event()?;
        match event.kind {
            ffi::RDMA_CM_EVENT_REJECTED => Ok(event.private),
            _ => Err(event.is_not(ffi::RDMA_CM_EVENT_REJECTED)),
        }
    }

    /// Waits until the connection has ended.
    pub fn disconnected(&self) -> io::Result<()> {
        self.id.event(ffi::RDMA_CM_EVENT_DISCONNECTED).map(drop)
    }

    /// Closes the connection in the usual way.
    pub fn disconnect(&self) -> io::Result<()> {
        // SAFETY: the identifier is live.
        check(unsafe { ffi::rdma_disconnect(self.id.raw.as_ptr()) })
    }

    /// Ends the connection if it exists.
    pub fn destroy(self) -> Result<(), (Self, io::Error)> {
        self.id.destroy().map_err(|error| (self, error))
    }

    /// Closes the file of the connection, as the end of the process does. The kernel then ends the
    /// connection.
    pub fn close(self) {
        // SAFETY: the channel is live, and the identifier that uses it is not used any more.
        unsafe { ffi::rdma_destroy_event_channel(self.id.channel.as_ptr()) };
    }
}

impl Id {
    fn new() -> io::Result<Self> {
        let channel = channel()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the channel is live, and the call writes the identifier to `raw`.
        check(unsafe {
            let user = ptr::null_mut();
            ffi::rdma_create_id(channel.as_ptr(), &raw mut raw, user, ffi::RDMA_PS_TCP)
        })?;
        Ok(Self { raw: object(raw)?, channel })
    }

    /// Waits for an event, which must be of this kind and a success.
    fn event(&self, wanted: ffi::rdma_cm_event_type) -> io::Result<Event> {
        let event = self.any_event()?;
        match (event.kind, event.status) == (wanted, 0) {
            true => Ok(event),
            false => Err(event.is_not(wanted)),
        }
    }

    /// Waits for an event.
    fn any_event(&self) -> io::Result<Event> {
        let event = self.event_within(TIMEOUT)?;
        event.ok_or_else(|| io::Error::other("a connection had no event in time"))
    }

    /// Waits for an event for this time.
    fn event_within(&self, timeout: Duration) -> io::Result<Option<Event>> {
        let channel = self.channel.as_ptr();
        // SAFETY: the channel is live.
        if !readable(unsafe { (*channel).fd }, timeout)? {
            return Ok(None);
        }
        let mut raw = ptr::null_mut();
        // SAFETY: the channel is live, and the call writes the event to `raw`.
        check(unsafe { ffi::rdma_get_cm_event(channel, &raw mut raw) })?;
        // SAFETY: the call has succeeded, so the event exists until it is acknowledged.
        let event = unsafe { &*raw };
        // SAFETY: the identifiers are connected, so this is the part of the union that is used.
        let param = unsafe { event.param.conn };
        let private = match (param.private_data.is_null(), param.private_data_len) {
            (true, _) | (_, 0) => Vec::new(),
            // SAFETY: the event has this many bytes there until it is acknowledged.
            (false, len) => unsafe {
                std::slice::from_raw_parts(param.private_data.cast(), len.into()).to_vec()
            },
        };
        let (kind, status, id) = (event.event, event.status, object(event.id));
        // SAFETY: the event is acknowledged once, and not used any more.
        check(unsafe { ffi::rdma_ack_cm_event(raw) })?;
        Ok(Some(Event { kind, status, id: id?, private }))
    }

    /// Frees the identifier, but not its channel.
    fn free(&self) -> io::Result<()> {
        // SAFETY: the identifier is live, all its events were acknowledged, and it is not used
        // again if this succeeds.
        check(unsafe { ffi::rdma_destroy_id(self.raw.as_ptr()) })
    }

    /// Frees the identifier and its channel.
    fn destroy(&self) -> io::Result<()> {
        self.free()?;
        // SAFETY: no identifier uses the channel any more.
        unsafe { ffi::rdma_destroy_event_channel(self.channel.as_ptr()) };
        Ok(())
    }
}

impl Event {
    fn is_not(&self, wanted: ffi::rdma_cm_event_type) -> io::Error {
        let Self { kind, status, .. } = self;
        io::Error::other(format!("a connection had event {kind} (status {status}), not {wanted}"))
    }
}

/// Returns a new event channel.
fn channel() -> io::Result<NonNull<ffi::rdma_event_channel>> {
    // SAFETY: no preconditions.
    object(unsafe { ffi::rdma_create_event_channel() })
}

/// Returns private data in the form of C.
fn private(data: &[u8]) -> io::Result<(*const c_void, u8)> {
    let len = u8::try_from(data.len()).map_err(io::Error::other)?;
    Ok((data.as_ptr().cast(), len))
}

/// Returns an address in the form of C.
fn address(of: SocketAddrV4) -> ffi::sockaddr_in {
    // SAFETY: all-zero is valid for this struct of integers.
    let mut raw: ffi::sockaddr_in = unsafe { mem::zeroed() };
    raw.sin_family = libc::AF_INET as u16;
    raw.sin_port = of.port().to_be();
    raw.sin_addr.s_addr = u32::from(*of.ip()).to_be();
    raw
}
