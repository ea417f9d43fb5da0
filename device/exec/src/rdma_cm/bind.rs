//! Commands that bind identifiers to addresses and make them listen, and their options.

use std::net::{Ipv4Addr, SocketAddr};

use rustix::io::Errno;
use vrnic_cm::address::service;

use super::ids::{QpKind, Stage};
use super::ports::User;
use super::request::CmCommand;
use super::service::CmService;
use super::sockaddr::{decode, decode_sized};
use super::wire::{BindAny, BindIp, ListenId, SetOption};
use crate::trap::task::FileId;

/// Maximum number of requests that wait (`max_backlog` in drivers/infiniband/core/ucma.c).
const BACKLOG_MAX: u32 = 1024;
/// Levels of options.
const LEVEL_ID: u32 = 0;
const LEVEL_IB: u32 = 1;
/// Options of identifiers.
const TOS: u32 = 0;
const REUSE_ADDRESS: u32 = 1;
const ONE_FAMILY: u32 = 2;
const ACK_TIMEOUT: u32 = 3;
/// Length of a `struct ib_path_rec_data` in bytes.
const PATH_DATA_LEN: u32 = 72;

impl<T> CmService<T> {
    /// Binds an identifier to an address (`ucma_bind_ip`).
    pub(super) fn bind_ip(&mut self, file: FileId, command: &CmCommand<'_>) -> Result<(), Errno> {
        let BindIp { addr, id, .. } = command.copy()?;
        // The field is too short for addresses of InfiniBand.
        let address = decode(&addr).map_err(|_| Errno::INVAL)?;
        let _exists = self.id(file, id)?;
        self.bind(id, address, None)
    }

    /// Binds an identifier to an address of any family (`ucma_bind`).
    pub(super) fn bind_any(&mut self, file: FileId, command: &CmCommand<'_>) -> Result<(), Errno> {
        let BindAny { id, addr_size, reserved, addr } = command.copy()?;
        if reserved != 0 {
            return Err(Errno::INVAL);
        }
        let address = decode_sized(&addr, addr_size)?;
        let _exists = self.id(file, id)?;
        self.bind(id, address, None)
    }

    /// Binds an identifier to an address and a port (`rdma_bind_addr_dst`).
    pub(super) fn bind(
        &mut self,
        number: u32,
        mut source: SocketAddr,
        dest: Option<SocketAddr>,
    ) -> Result<(), Errno> {
        let attached = if source.ip().is_unspecified() {
            None
        } else {
            Some(self.network.attached(source.ip()).ok_or(Errno::NODEV)?)
        };
        let id = self.ids.get_mut(&number).ok_or(Errno::NOENT)?;
        if id.stage != Stage::Idle {
            return Err(Errno::INVAL);
        }
        let before = id.source.replace(source);
        let user = User {
            id: number,
            source,
            dest,
            reuses_address: id.reuses_address,
            one_family: id.is_one_family(),
        };
        match self.ports.take(id.space, user) {
            Ok(port) => source.set_port(port),
            Err(error) => {
                id.source = before;
                return Err(error);
            }
        }
        id.source = Some(source);
        id.dest = dest;
        id.attached = attached;
        id.holds_port = true;
        id.stage = Stage::AddrBound;
        Ok(())
    }

    /// Listens (`ucma_listen`). An identifier without an address gets a port of all adapters.
    pub(super) fn listen(&mut self, file: FileId, command: &CmCommand<'_>) -> Result<(), Errno> {
        let ListenId { id: number, backlog } = command.copy()?;
        let all = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        self.id(file, number)?.backlog =
            if backlog == 0 || backlog > BACKLOG_MAX { BACKLOG_MAX } else { backlog };
        if self.id(file, number)?.stage != Stage::AddrBound {
            self.bind(number, all, None)?;
        }
        let count = self.network.count();
        let id = self.ids.get_mut(&number).ok_or(Errno::NOENT)?;
        let source = id.source.ok_or(Errno::INVAL)?;
        if id.reuses_address {
            let user = User {
                id: number,
                source,
                dest: None,
                reuses_address: false,
                one_family: id.is_one_family(),
            };
            self.ports.claim(id.space, &user)?;
            id.reuses_address = false;
        }
        let wanted = service(id.space, source.port());
        let adapters = id.attached.map_or(0..count, |own| own.adapter..own.adapter + 1);
        id.listens = adapters.map(|adapter| (adapter, wanted)).collect();
        id.stage = Stage::Listen;
        for (adapter, service) in &id.listens {
            if let Some(manager) = self.network.manager(*adapter) {
                manager.listen(*service);
            }
        }
        Ok(())
    }

    /// Sets an option (`ucma_set_option`).
    pub(super) fn set_option(
        &mut self,
        file: FileId,
        command: &CmCommand<'_>,
    ) -> Result<(), Errno> {
        let SetOption { optval, id: number, level, optname, optlen } = command.copy()?;
        let _exists = self.id(file, number)?;
        if level == LEVEL_IB && optname == 1 {
            // Ways of InfiniBand, which an adapter for Ethernet does not have.
            let whole = optlen != 0 && optlen.is_multiple_of(PATH_DATA_LEN);
            return Err(if whole { Errno::OPNOTSUPP } else { Errno::INVAL });
        }
        if level != LEVEL_ID {
            return Err(Errno::NOSYS);
        }
        let mut value = [0; 4];
        let len = match optname {
            TOS | ACK_TIMEOUT => 1,
            REUSE_ADDRESS | ONE_FAMILY => 4,
            _ => return Err(Errno::NOSYS),
        };
        if optlen != len {
            return Err(Errno::INVAL);
        }
        let bytes = value.get_mut(..if len == 1 { 1 } else { 4 }).ok_or(Errno::INVAL)?;
        command.process.read(optval, bytes)?;
        let [first, ..] = value;
        let is_set = value != [0; 4];
        let id = self.id(file, number)?;
        match optname {
            TOS => id.tos = first,
            ACK_TIMEOUT if matches!(id.kind, QpKind::Connected(_)) => id.ack_timeout = Some(first),
            REUSE_ADDRESS if id.stage == Stage::Idle || is_set && id.stage != Stage::Listen => {
                id.reuses_address = is_set;
            }
            ONE_FAMILY if matches!(id.stage, Stage::Idle | Stage::AddrBound) => {
                id.one_family = Some(is_set);
            }
            _ => return Err(Errno::INVAL),
        }
        self.tell_ports(number);
        Ok(())
    }

    /// Tells the ports what has changed of an identifier.
    pub(super) fn tell_ports(&mut self, number: u32) {
        let Some(id) = self.ids.get(&number) else { return };
        if let (true, Some(source)) = (id.holds_port, id.source) {
            let (reuses, one_family, dest) = (id.reuses_address, id.is_one_family(), id.dest);
            self.ports.change(id.space, source.port(), number, |user| {
                user.reuses_address = reuses;
                user.one_family = one_family;
                user.source = source;
                user.dest = dest;
            });
        }
    }
}
