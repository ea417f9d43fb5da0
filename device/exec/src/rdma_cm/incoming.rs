//! The events of connections: what they mean for identifiers (`cma_ib_handler`,
//! `cma_ib_req_handler` and `cma_sidr_rep_handler` in drivers/infiniband/core/cma.c).

use std::net::SocketAddr;

use rustix::io::Errno;
use vrnic_cm::address::{Addresses, HEADER_LEN, port};
use vrnic_cm::manager::ConnectionId;
use vrnic_cm::parameters::{Ece, Path, Qp, Transport};
use vrnic_cm::state::{Event, Requested, sidr};

use super::attributes::address;
use super::events::{connected, datagram};
use super::files::Pending;
use super::ids::{Attached, CmId, QpKind, Stage};
use super::network::Happened;
use super::service::CmService;
use super::wire::{ConnParam, EceParam, EventResp, UdParam, event};

/// A request of a peer.
struct Asked<'a> {
    adapter: usize,
    connection: ConnectionId,
    service: u64,
    /// The type of queue pairs; none for datagrams.
    transport: Option<Transport>,
    path: Path,
    private: &'a [u8],
}

/// Returns the parameters of a connection.
fn param(qp: &Qp, private: &[u8]) -> ConnParam {
    let mut param = ConnParam {
        qp_num: qp.qpn,
        // CAST: the private data of all messages is shorter.
        private_data_len: private.len() as u8,
        srq: qp.srq.into(),
        // What the peer has outstanding is what this side serves.
        responder_resources: qp.initiator_depth,
        initiator_depth: qp.responder_resources,
        flow_control: qp.flow_control.into(),
        retry_count: qp.retry_count,
        rnr_retry_count: qp.rnr_retry_count,
        ..ConnParam::default()
    };
    param.private_data.iter_mut().zip(private).for_each(|(to, from)| *to = *from);
    param
}

/// Returns the parameters of datagrams.
fn datagrams(private: &[u8]) -> UdParam {
    // CAST: the private data of all messages is shorter.
    let mut param = UdParam { private_data_len: private.len() as u8, ..UdParam::default() };
    param.private_data.iter_mut().zip(private).for_each(|(to, from)| *to = *from);
    param
}

fn options(ece: Ece) -> EceParam {
    EceParam { vendor_id: ece.vendor, attr_mod: ece.options }
}

impl<T> CmService<T> {
    /// Handles what happened to a connection.
    pub(super) fn handle(&mut self, happened: Happened) {
        let Happened { adapter, connection, event } = happened;
        match event {
            Event::ReqReceived(requested) => {
                let Requested { service, transport, qp, path, private } = *requested;
                let (transport, private) = (Some(transport), &private[..]);
                let asked = Asked { adapter, connection, service, transport, path, private };
                let ece = options(qp.ece);
                self.asked(&asked, |private| EventResp {
                    ece,
                    ..connected(event::CONNECT_REQUEST, 0, &param(&qp, private))
                });
            }
            Event::SidrReqReceived { service, path, private } => {
                let (transport, private) = (None, &private[..]);
                let asked = Asked { adapter, connection, service, transport, path, private };
                self.asked(&asked, |private| {
                    datagram(event::CONNECT_REQUEST, 0, &datagrams(private))
                });
            }
            event => {
                if let Some(number) = self.connections.get(&(adapter, connection)).copied() {
                    self.happened(number, &event);
                }
            }
        }
    }

    /// Hands a request to the identifier that listens. Without one, the peer is told.
    fn asked(&mut self, asked: &Asked<'_>, resp: impl Fn(&[u8]) -> EventResp) {
        let now = self.now();
        let addresses = Addresses::decode(asked.private);
        let listener = addresses.and_then(|addresses| self.listener(asked, &addresses));
        let Some((number, addresses)) = listener.zip(addresses) else {
            if let Some(manager) = self.network.manager(asked.adapter) {
                manager.destroy(now, asked.connection);
            }
            return;
        };
        let resp = resp(asked.private.get(HEADER_LEN..).unwrap_or_default());
        if self.child(number, asked, &addresses, resp).is_none()
            && let Some(manager) = self.network.manager(asked.adapter)
        {
            // The peer asks again, when there may be room.
            manager.forget(asked.connection);
        }
    }

    /// Returns the identifier that listens for a request (`cma_find_listener`).
    fn listener(&self, asked: &Asked<'_>, addresses: &Addresses) -> Option<u32> {
        let (space, number) = port(asked.service)?;
        let listens = |id: &CmId| {
            let Some(source) = id.source else { return false };
            let same_adapter = id.attached.is_none_or(|own| own.adapter == asked.adapter);
            let all = source.ip().is_unspecified();
            let same_family = source.is_ipv4() == addresses.dest.is_ipv4();
            let address =
                all && !id.is_one_family() || same_family && (all || source.ip() == addresses.dest);
            let kind = match (id.kind, asked.transport) {
                (QpKind::Connected(own), Some(transport)) => own == transport,
                (QpKind::Datagram, None) => true,
                _ => false,
            };
            id.stage == Stage::Listen && same_adapter && address && kind
        };
        self.ports.users(space, number).find(|user| self.ids.get(user).is_some_and(listens))
    }

    /// Adds the identifier of a requested connection, and the event of the listener. `None` without
    /// room.
    fn child(
        &mut self,
        listener: u32,
        asked: &Asked<'_>,
        addresses: &Addresses,
        resp: EventResp,
    ) -> Option<()> {
        let (_, own_port) = port(asked.service)?;
        let gids = self.network.device(asked.adapter)?.gids();
        let gid_index = gids.iter().position(|gid| *gid == asked.path.source)?;
        let gid_index = u8::try_from(gid_index).ok()?;
        let psn = self.psn();
        let parent = self.ids.get(&listener)?;
        let (file, uid) = (parent.file, parent.uid);
        let mut id = CmId::new(file, 0, parent.space, parent.kind, psn);
        id.stage = Stage::Connect;
        id.source = Some(SocketAddr::new(addresses.dest, own_port));
        id.dest = Some(SocketAddr::new(addresses.source, addresses.port));
        id.attached = Some(Attached { adapter: asked.adapter, gid_index, gid: asked.path.source });
        id.path = asked.transport.map(|_| asked.path);
        id.tos = parent.tos;
        id.connection = Some(asked.connection);
        self.check_ids(file).ok()?;
        let parent = self.ids.get_mut(&listener)?;
        parent.backlog = parent.backlog.checked_sub(1)?;
        let child = self.insert(id);
        let resp = EventResp { uid, id: child, ..resp };
        let event = Pending { owner: listener, group: None, child: Some(child), resp };
        if !self.files.get_mut(&file)?.push(event) {
            self.ids.get_mut(&child)?.connection = None;
            let _events = self.end(child);
            let parent = self.ids.get_mut(&listener)?;
            parent.backlog = parent.backlog.saturating_add(1);
            return None;
        }
        self.connections.insert((asked.adapter, asked.connection), child);
        Some(())
    }

    /// Handles an event of the connection of an identifier.
    fn happened(&mut self, number: u32, happened: &Event) {
        let Some(id) = self.ids.get_mut(&number) else { return };
        let stage = id.stage;
        let wanted = match happened {
            Event::TimeWaitExit => stage == Stage::Disconnect,
            _ => stage == Stage::Connect,
        };
        if !wanted {
            return;
        }
        let none = ConnParam::default();
        let timed_out = -Errno::TIMEDOUT.raw_os_error();
        let resp = match happened {
            Event::ReqError | Event::RepError => connected(event::UNREACHABLE, timed_out, &none),
            Event::SidrReqError => datagram(event::UNREACHABLE, timed_out, &UdParam::default()),
            Event::RepReceived { qp, private } => EventResp {
                ece: options(qp.ece),
                ..connected(event::CONNECT_RESPONSE, 0, &param(qp, private))
            },
            Event::RtuReceived => connected(event::ESTABLISHED, 0, &none),
            Event::DreqReceived | Event::DrepReceived => {
                id.stage = Stage::Disconnect;
                connected(event::DISCONNECTED, 0, &none)
            }
            Event::DreqError => {
                id.stage = Stage::Disconnect;
                connected(event::DISCONNECTED, timed_out, &none)
            }
            Event::TimeWaitExit => connected(event::TIMEWAIT_EXIT, 0, &none),
            Event::RejReceived { reason, private } => {
                connected(event::REJECTED, i32::from(*reason), &param(&Qp::default(), private))
            }
            Event::SidrRepReceived { status, qpn, qkey, private } => {
                resolved(id, *status, [*qpn, *qkey], private)
            }
            Event::ReqReceived(_) | Event::SidrReqReceived { .. } => return,
        };
        // Without room, the event is lost, as in a kernel without memory.
        let _lost = self.post(number, resp);
    }
}

/// Returns the event of an answer to a request for a service.
fn resolved(id: &CmId, status: u8, qp: [u32; 2], private: &[u8]) -> EventResp {
    let mut param = datagrams(private);
    if status != sidr::SUCCESS {
        return datagram(event::UNREACHABLE, status.into(), &param);
    }
    [param.qp_num, param.qkey] = qp;
    if let (Some(path), Some(attached)) = (&id.path, id.attached) {
        param.ah_attr = address(path, attached.gid_index);
    }
    datagram(event::ESTABLISHED, 0, &param)
}
