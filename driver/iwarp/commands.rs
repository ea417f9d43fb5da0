// SPDX-License-Identifier: GPL-2.0
//! The admin commands about connections.

use abi::{
    Qpn,
    admin::{
        CloseConnection,
        CloseResult,
        ModifyQp,
        MoveConnection,
        OpenConnection,
        QueryConnection,
        StartRdma,
        command, //
    },
    connection::{
        Closed,
        Closing,
        Connection,
        ConnectionFlags,
        ConnectionStatus,
        Received,
        Role, //
    },
    qp::{Attr, AttrMask, State},
};
use kernel::{
    device,
    dma::Coherent,
    io::Io,
    new_mutex,
    prelude::*,
    sync::{
        Arc, Mutex,
        lock::{Guard, mutex::MutexBackend},
    },
};
use zerocopy::{FromZeros, IntoBytes};

use super::socket::{Macs, Snapshot};
use crate::{
    quiesce::Liveness,
    rdma::iwcm::{ConnParam, Depths},
};

/// The parameters of a connection that is handed over to the adapter.
pub(super) struct Opening<'a> {
    /// The queue pair.
    pub(super) qpn: Qpn,
    /// READs that are served at a time.
    pub(super) ird: u8,
    /// READs that are outstanding at a time.
    pub(super) ord: u8,
    /// The private data of our own start frame.
    pub(super) private: &'a [u8],
    /// The request of the peer, if this end is the responder.
    pub(super) request: Option<&'a [u8]>,
}

/// The beginning of messages on a connection that carries bytes.
pub(crate) struct Start<'a> {
    /// The queue pair that has the connection.
    pub(crate) from: Qpn,
    /// The queue pair that gets it.
    pub(crate) to: Qpn,
    /// READs that are served at a time.
    pub(crate) ird: u16,
    /// READs that are outstanding at a time.
    pub(crate) ord: u16,
    /// [`abi::connection::StartFlags`].
    pub(crate) flags: u32,
    /// Bytes that the program has received and that belong to messages.
    pub(crate) received: Option<&'a Coherent<[u8]>>,
}

/// The parameters that the owner of a connection has chosen.
pub(super) struct Wishes {
    /// The queue pair.
    pub(super) qpn: Qpn,
    /// READs that a connection may have.
    pub(super) depths: Depths,
    /// The private data of our own start frame.
    pub(super) private: KVec<u8>,
}

impl Wishes {
    /// Takes the parameters from `param`, with at most `max_depth` READs of either kind.
    pub(super) fn new(param: &ConnParam<'_>, max_depth: u8) -> Result<Self> {
        let depth = |depth: u32| u8::try_from(depth).unwrap_or(u8::MAX).min(max_depth);
        let mut private = KVec::new();
        private.extend_from_slice(param.private, GFP_KERNEL)?;
        let depths = Depths { ird: depth(param.ird), ord: depth(param.ord) };
        Ok(Self { qpn: param.qpn.into(), depths, private })
    }

    /// Returns the parameters of OPEN_CONNECTION. `request` is the peer's request if this end is
    /// the responder.
    pub(super) fn opening<'a>(&'a self, request: Option<&'a [u8]>) -> Opening<'a> {
        let Depths { ird, ord } = self.depths;
        Opening { qpn: self.qpn, ird, ord, private: &self.private, request }
    }
}

/// The memory that commands read their input from, and write their output to.
struct Buffers {
    connection: Coherent<[u8]>,
    /// A connection that carries bytes.
    stream: Coherent<[u8]>,
    status: Coherent<[u8]>,
    attr: Coherent<[u8]>,
}

/// Runs the commands about connections, one at a time.
#[pin_data]
pub(super) struct Commands {
    pub(super) liveness: Arc<Liveness>,
    #[pin]
    buffers: Mutex<Buffers>,
}

impl Commands {
    /// Allocates the memory of the commands.
    pub(super) fn new(
        device: &device::Device<device::Bound>,
        liveness: Arc<Liveness>,
    ) -> Result<impl PinInit<Self>> {
        let memory = |len| Coherent::<u8>::zeroed_slice(device, len, GFP_KERNEL);
        let buffers = Buffers {
            connection: memory(size_of::<Connection>())?,
            stream: memory(STREAM_LEN)?,
            status: memory(size_of::<ConnectionStatus>())?,
            attr: memory(size_of::<Attr>())?,
        };
        Ok(pin_init!(Self {
            liveness,
            buffers <- new_mutex!(buffers, "vrnic::iwarp::Commands"),
        }))
    }

    /// Hands a connection over to the adapter.
    pub(super) fn open(&self, opening: &Opening<'_>, snapshot: &Snapshot) -> Result {
        let connection = encode(opening, snapshot)?;
        let buffers = self.buffers.lock();
        (&buffers.connection).copy_from_slice(connection.as_bytes());
        let params = OpenConnection::new(opening.qpn, buffers.connection.dma_address());
        self.liveness.execute::<command::OpenConnection>(&params)
    }

    /// Prepares to hand a connection that carries bytes over to the adapter. Other commands about
    /// connections wait until the result is dropped.
    pub(super) fn stream(&self) -> Result<StreamOpening<'_>> {
        let connection = KBox::new(Connection::new_zeroed(), GFP_KERNEL)?;
        let bytes = KVec::with_capacity(STREAM_LEN, GFP_KERNEL)?;
        let buffers = self.buffers.lock();
        self.liveness.wait_while_stalled();
        Ok(StreamOpening { liveness: &self.liveness, buffers, connection, bytes })
    }

    /// Begins to move a connection that carries bytes to a QP with messages.
    pub(super) fn start(&self, start: &Start<'_>) -> Result {
        let received = match start.received {
            Some(bytes) => received(bytes, bytes.len())?,
            None => Received::default(),
        };
        let params = StartRdma {
            received,
            from: start.from,
            to: start.to,
            ird: start.ird.into(),
            ord: start.ord.into(),
            flags: start.flags.into(),
        };
        self.liveness.execute::<command::StartRdma>(&params)
    }

    /// Queries the state of a connection.
    pub(super) fn query(&self, qpn: Qpn) -> Result<KBox<ConnectionStatus>> {
        let buffers = self.buffers.lock();
        let params = QueryConnection::new(qpn, buffers.status.dma_address());
        self.liveness.execute::<command::QueryConnection>(&params)?;
        let status = (&buffers.status).try_cast::<ConnectionStatus>()?.copy_read();
        Ok(KBox::new(status, GFP_KERNEL)?)
    }

    /// Closes a connection, or ends it in another way. Returns how far that is.
    pub(super) fn close(&self, qpn: Qpn, how: Closing) -> Result<Closed> {
        let params = CloseConnection { qpn, how: how as u8, reserved: [0; 3] };
        let CloseResult { closed } = self.liveness.execute::<command::CloseConnection>(&params)?;
        Closed::from_raw(closed).ok_or(EIO)
    }

    /// Changes the MACs of the frames of a connection.
    pub(super) fn relocate(&self, qpn: Qpn, macs: Macs) -> Result {
        let params = MoveConnection::new(qpn, macs.own, macs.next_hop);
        self.liveness.execute::<command::MoveConnection>(&params)
    }

    /// Resets a connection.
    pub(super) fn abort(&self, qpn: Qpn) -> Result {
        let attr = Attr { state: State::Err as u8, ..Attr::default() };
        let buffers = self.buffers.lock();
        (&buffers.attr).copy_from_slice(attr.as_bytes());
        let params = ModifyQp::new(qpn, AttrMask::STATE.bits(), buffers.attr.dma_address());
        self.liveness.execute::<command::ModifyQp>(&params)?;
        Ok(())
    }
}

/// The memory for a connection that carries bytes.
const STREAM_LEN: usize = size_of::<Connection>() + size_of::<Received>();

/// Everything that handing over a connection that carries bytes needs.
pub(super) struct StreamOpening<'a> {
    liveness: &'a Liveness,
    buffers: Guard<'a, Buffers, MutexBackend>,
    connection: KBox<Connection>,
    bytes: KVec<u8>,
}

impl StreamOpening<'_> {
    /// Hands the connection over. The kernel had received the first `count` of these bytes.
    pub(super) fn run(
        mut self,
        qpn: Qpn,
        snapshot: &Snapshot,
        unread: &Coherent<[u8]>,
        count: usize,
    ) -> Result {
        describe(snapshot, &mut self.connection);
        self.connection.role = Role::Stream as u8;
        let received = match count {
            0 => Received::default(),
            _ => received(unread, count)?,
        };
        // The memory for them is allocated already.
        self.bytes.extend_from_slice(self.connection.as_bytes(), GFP_KERNEL)?;
        self.bytes.extend_from_slice(received.as_bytes(), GFP_KERNEL)?;
        (&self.buffers.stream).copy_from_slice(&self.bytes);
        let params = OpenConnection::new(qpn, self.buffers.stream.dma_address());
        self.liveness.execute::<command::OpenConnection>(&params)
    }
}

/// Returns the description of the first `count` received bytes in the adapter's form.
fn received(bytes: &Coherent<[u8]>, count: usize) -> Result<Received> {
    Ok(Received {
        addr: bytes.dma_address().into(),
        len: u32::try_from(count)?.into(),
        ..Received::default()
    })
}

/// Returns a connection in the adapter's form.
///
/// # Errors
///
/// `EINVAL` if there are too many private data.
fn encode(opening: &Opening<'_>, snapshot: &Snapshot) -> Result<KBox<Connection>> {
    let mut connection = KBox::new(Connection::new_zeroed(), GFP_KERNEL)?;
    describe(snapshot, &mut connection);
    let request = opening.request.unwrap_or_default();
    let role = if opening.request.is_some() { Role::Responder } else { Role::Initiator };
    connection.role = role as u8;
    connection.ird = u16::from(opening.ird).into();
    connection.ord = u16::from(opening.ord).into();
    connection.private_len = u16::try_from(opening.private.len())?.into();
    connection.request_len = u16::try_from(request.len())?.into();
    fill(&mut connection.private, opening.private)?;
    fill(&mut connection.request, request)?;
    Ok(connection)
}

/// Fills in the state of TCP in the adapter's form.
fn describe(snapshot: &Snapshot, connection: &mut Connection) {
    connection.flags = flags(snapshot).bits();
    connection.vlan = snapshot.vlan.into();
    connection.smac = snapshot.smac;
    connection.dmac = snapshot.dmac;
    connection.traffic_class = snapshot.traffic_class;
    connection.hop_limit = snapshot.hop_limit;
    connection.local = snapshot.local;
    connection.remote = snapshot.remote;
    connection.local_port = snapshot.local_port.into();
    connection.remote_port = snapshot.remote_port.into();
    connection.send_next = snapshot.send_next.into();
    connection.receive_next = snapshot.receive_next.into();
    connection.send_window = snapshot.send_window.into();
    connection.max_send_window = snapshot.max_send_window.into();
    connection.receive_window = snapshot.receive_window.into();
    connection.send_scale = snapshot.send_scale;
    connection.receive_scale = snapshot.receive_scale;
    connection.mss = snapshot.mss.into();
    connection.timestamp = snapshot.timestamp.into();
    connection.recent_timestamp = snapshot.recent_timestamp.into();
}

fn fill(room: &mut [u8], bytes: &[u8]) -> Result {
    room.get_mut(..bytes.len()).ok_or(EINVAL)?.copy_from_slice(bytes);
    Ok(())
}

fn flags(snapshot: &Snapshot) -> ConnectionFlags {
    let mut flags = ConnectionFlags::empty();
    flags.set(ConnectionFlags::IPV6, snapshot.ipv6);
    flags.set(ConnectionFlags::SACK, snapshot.sack);
    flags.set(ConnectionFlags::TIMESTAMPS, snapshot.timestamps);
    flags.set(ConnectionFlags::MICROSECONDS, snapshot.microseconds);
    flags.set(ConnectionFlags::VLAN, snapshot.tagged);
    flags.set(ConnectionFlags::PEER_CLOSED, snapshot.peer_closed);
    flags
}
