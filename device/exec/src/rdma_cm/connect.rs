//! Commands that make and end connections.

use rustix::io::Errno;
use vrnic_cm::address::{Addresses, service};
use vrnic_cm::manager::calls::Connect;
use vrnic_cm::parameters::{Ece, Qp};
use vrnic_cm::state::{Error, State, reason, sidr};

use super::ids::{QpKind, Stage, UDP_QKEY};
use super::request::CmCommand;
use super::service::CmService;
use super::wire::{AcceptId, ConnParam, ConnectId, EceParam, NotifyId, RejectId};
use crate::trap::task::FileId;

/// Length of the commands without enhanced connection establishment, in bytes.
const CONNECT_LEN: usize = std::mem::offset_of!(ConnectId, ece);
const ACCEPT_LEN: usize = std::mem::offset_of!(AcceptId, ece);
/// `IB_EVENT_COMM_EST`: data has arrived.
const COMM_EST: u32 = 4;

/// Returns the kernel's error.
fn errno(error: Error) -> Errno {
    if error == Error::NoRoom { Errno::NOMEM } else { Errno::INVAL }
}

/// Returns the private data of a command.
fn private(param: &ConnParam) -> &[u8] {
    let all = &param.private_data;
    all.get(..param.private_data_len.into()).unwrap_or(all)
}

/// Returns a queue pair, as the program describes it.
fn qp(param: &ConnParam, psn: u32, ece: Ece) -> Qp {
    Qp {
        qpn: param.qp_num & 0xff_ffff,
        psn,
        responder_resources: param.responder_resources,
        initiator_depth: param.initiator_depth,
        flow_control: param.flow_control != 0,
        retry_count: param.retry_count.min(7),
        rnr_retry_count: param.rnr_retry_count.min(7),
        srq: param.srq != 0,
        ece,
    }
}

fn options(ece: EceParam) -> Ece {
    Ece { vendor: ece.vendor_id, options: ece.attr_mod }
}

impl<T> CmService<T> {
    /// Requests a connection (`ucma_connect`).
    pub(super) fn connect(&mut self, file: FileId, command: &CmCommand<'_>) -> Result<(), Errno> {
        if command.given < CONNECT_LEN {
            return Err(Errno::INVAL);
        }
        let ConnectId { conn_param, id: number, ece, .. } = command.copy()?;
        if conn_param.valid == 0 {
            return Err(Errno::INVAL);
        }
        let now = self.now();
        let (id, manager) = self.on_adapter(file, number)?;
        let (Stage::RouteResolved, Some(attached), Some(path)) = (id.stage, id.attached, id.path)
        else {
            return Err(Errno::INVAL);
        };
        let (Some(source), Some(dest)) = (id.source, id.dest) else { return Err(Errno::INVAL) };
        let addresses = Addresses { port: source.port(), source: source.ip(), dest: dest.ip() };
        let private = [&addresses.encode()[..], private(&conn_param)].concat();
        let service = service(id.space, dest.port());
        id.ece = options(ece);
        let connection = match id.kind {
            QpKind::Datagram => manager.resolve(now, service, path, &private),
            QpKind::Connected(transport) => {
                let qp = qp(&conn_param, id.psn, id.ece);
                let private = &private;
                manager.connect(now, &Connect { service, path, transport, qp, private })
            }
            QpKind::Other => return Err(Errno::INVAL),
        };
        let connection = connection.map_err(errno)?;
        id.connection = Some(connection);
        id.stage = Stage::Connect;
        self.connections.insert((attached.adapter, connection), number);
        Ok(())
    }

    /// Accepts a requested connection, or a response (`ucma_accept`). If that fails, the peer is
    /// told.
    pub(super) fn accept(&mut self, file: FileId, command: &CmCommand<'_>) -> Result<(), Errno> {
        if command.given < ACCEPT_LEN {
            return Err(Errno::INVAL);
        }
        let AcceptId { uid, conn_param, id: number, ece, .. } = command.copy()?;
        let now = self.now();
        let (id, manager) = self.on_adapter(file, number)?;
        if id.stage != Stage::Connect {
            return Err(Errno::INVAL);
        }
        let connection = id.connection.ok_or(Errno::INVAL)?;
        id.ece = options(ece);
        let param = Some(conn_param).filter(|param| param.valid != 0);
        let accepted = match (id.kind, &param) {
            (QpKind::Datagram, param) => {
                id.qkey = UDP_QKEY;
                let qpn = param.map_or(0, |param| param.qp_num & 0xff_ffff);
                let private = param.as_ref().map_or(&[][..], private);
                manager.resolved(connection, sidr::SUCCESS, qpn, UDP_QKEY, private)
            }
            (_, Some(param)) => {
                manager.accept(now, connection, &qp(param, id.psn, id.ece), private(param))
            }
            (_, None) => manager.ready(connection),
        };
        match accepted {
            Ok(()) if param.is_some() => id.uid = uid,
            Ok(()) => {}
            Err(error) => {
                let _told = match id.kind {
                    QpKind::Datagram => manager.resolved(connection, sidr::REJECT, 0, 0, &[]),
                    _ => manager.reject(now, connection, reason::CONSUMER, &[]),
                };
                return Err(errno(error));
            }
        }
        Ok(())
    }

    /// Rejects a connection (`ucma_reject`).
    pub(super) fn reject(&mut self, file: FileId, command: &CmCommand<'_>) -> Result<(), Errno> {
        let reject: RejectId = command.copy()?;
        let why = match u16::from(reject.reason) {
            0 => reason::CONSUMER,
            why @ (reason::CONSUMER | reason::VENDOR_OPTION) => why,
            _ => return Err(Errno::INVAL),
        };
        let now = self.now();
        let (id, manager) = self.on_adapter(file, reject.id)?;
        let connection = id.connection.ok_or(Errno::INVAL)?;
        let all = &reject.private_data;
        let private = all.get(..reject.private_data_len.into()).unwrap_or(all);
        let rejected = match id.kind {
            QpKind::Datagram => manager.resolved(connection, sidr::REJECT, 0, 0, private),
            _ => manager.reject(now, connection, why, private),
        };
        rejected.map_err(errno)
    }

    /// Ends a connection, or agrees to its end (`ucma_disconnect`).
    pub(super) fn disconnect(
        &mut self,
        file: FileId,
        command: &CmCommand<'_>,
    ) -> Result<(), Errno> {
        let number: u32 = command.copy()?;
        let now = self.now();
        let (id, manager) = self.on_adapter(file, number)?;
        let connection = id.connection.ok_or(Errno::INVAL)?;
        // The kernel does not tell either that there is nothing to end.
        let _ended = manager.disconnect(now, connection);
        Ok(())
    }

    /// Handles an event of a queue pair that the program has seen (`ucma_notify`).
    pub(super) fn notify(&mut self, file: FileId, command: &CmCommand<'_>) -> Result<(), Errno> {
        let NotifyId { id: number, event } = command.copy()?;
        let (id, manager) = self.on_adapter(file, number)?;
        let connection = id.connection.ok_or(Errno::INVAL)?;
        let state = manager.get(connection).map(|connection| connection.state());
        match event {
            COMM_EST if state == Some(State::Established) => Err(Errno::ISCONN),
            COMM_EST => manager.establish(connection).map_err(errno),
            _ => Err(Errno::INVAL),
        }
    }
}
