//! Commands that find the way to a peer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::io::Errno;
use vrnic_cm::parameters::Path;

use super::ids::Stage;
use super::request::CmCommand;
use super::service::CmService;
use super::sockaddr::{decode, decode_optional, decode_sized};
use super::wire::{EventResp, ResolveAddr, ResolveIp, ResolveRoute, event};
use crate::trap::task::FileId;

/// The lifetime of packets, as an exponent (`CMA_IBOE_PACKET_LIFETIME`).
const LIFETIME: u8 = 16;
/// The hop limit of packets.
pub const HOP_LIMIT: u8 = 64;

impl<T> CmService<T> {
    /// Finds the adapter on the way to an address (`ucma_resolve_ip`).
    pub(super) fn resolve_ip(
        &mut self,
        file: FileId,
        command: &CmCommand<'_>,
    ) -> Result<(), Errno> {
        let ResolveIp { src_addr, dst_addr, id, .. } = command.copy()?;
        // The fields are too short for addresses of InfiniBand.
        let source = decode_optional(&src_addr).map_err(|_| Errno::INVAL)?;
        let dest = decode(&dst_addr).map_err(|_| Errno::INVAL)?;
        let _exists = self.id(file, id)?;
        self.resolve(id, source, dest)
    }

    /// Finds the adapter on the way to an address of any family (`ucma_resolve_addr`).
    pub(super) fn resolve_addr(
        &mut self,
        file: FileId,
        command: &CmCommand<'_>,
    ) -> Result<(), Errno> {
        let ResolveAddr { id, src_size, dst_size, reserved, src_addr, dst_addr, .. } =
            command.copy()?;
        if reserved != 0 {
            return Err(Errno::INVAL);
        }
        let source = match src_size {
            0 => None,
            size => Some(decode_sized(&src_addr, size)?),
        };
        let dest = decode_sized(&dst_addr, dst_size)?;
        let _exists = self.id(file, id)?;
        self.resolve(id, source, dest)
    }

    /// Finds the adapter on the way to an address (`rdma_resolve_addr`).
    fn resolve(
        &mut self,
        number: u32,
        source: Option<SocketAddr>,
        dest: SocketAddr,
    ) -> Result<(), Errno> {
        if !self.is_in(number, &[Stage::AddrBound]) {
            let any: IpAddr = match dest {
                SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            self.bind(number, source.unwrap_or((any, 0).into()), Some(dest))?;
        }
        let id = self.ids.get_mut(&number).ok_or(Errno::NOENT)?;
        let own = id.source.ok_or(Errno::INVAL)?;
        id.dest = Some(dest);
        if own.is_ipv4() != dest.is_ipv4() {
            return Err(Errno::INVAL);
        }
        let to = if dest.ip().is_unspecified() {
            self.network.source_for(dest.ip())
        } else {
            Some(dest.ip())
        };
        let known = to.and_then(|to| self.network.dest_gid(to));
        let from = match own.ip() {
            ip if ip.is_unspecified() => self.network.source_for(dest.ip()),
            ip => Some(ip),
        };
        let attached = from.and_then(|from| self.network.attached(from));
        let resp = match (known, from, attached) {
            (Some(_), Some(from), Some(attached)) => {
                id.attached = id.attached.or(Some(attached));
                id.source = Some(SocketAddr::new(from, own.port()));
                id.stage = Stage::AddrResolved;
                EventResp { event: event::ADDR_RESOLVED, ..EventResp::default() }
            }
            _ => EventResp {
                event: event::ADDR_ERROR,
                status: -Errno::NODEV.raw_os_error(),
                ..EventResp::default()
            },
        };
        self.tell_ports(number);
        self.post(number, resp)
    }

    /// Refuses to look for services of InfiniBand (`ucma_resolve_ib_service`), which no adapter
    /// for Ethernet has.
    pub(super) fn resolve_service(
        &mut self,
        file: FileId,
        command: &CmCommand<'_>,
    ) -> Result<(), Errno> {
        let number: u32 = command.copy()?;
        let id = self.id(file, number)?;
        let ready = id.attached.is_some() && id.stage == Stage::AddrBound;
        Err(if ready { Errno::OPNOTSUPP } else { Errno::INVAL })
    }

    /// Finds the way to the address of the peer (`ucma_resolve_route`).
    pub(super) fn resolve_route(
        &mut self,
        file: FileId,
        command: &CmCommand<'_>,
    ) -> Result<(), Errno> {
        let ResolveRoute { id: number, timeout_ms } = command.copy()?;
        let (id, _) = self.on_adapter(file, number)?;
        if timeout_ms == 0 || id.stage != Stage::AddrResolved {
            return Err(Errno::INVAL);
        }
        let path = self.path(number).ok_or(Errno::NODEV)?;
        if let Some(id) = self.ids.get_mut(&number) {
            id.path = Some(path);
            id.stage = Stage::RouteResolved;
        }
        self.post(number, EventResp { event: event::ROUTE_RESOLVED, ..EventResp::default() })
    }

    /// Returns the way of an identifier to its peer.
    fn path(&self, number: u32) -> Option<Path> {
        let id = self.ids.get(&number)?;
        let (attached, dest) = (id.attached?, id.dest?.ip());
        let dest = if dest.is_unspecified() { self.network.source_for(dest)? } else { dest };
        let lifetime = id.ack_timeout.filter(|timeout| *timeout != 0);
        Some(Path {
            source: attached.gid,
            dest: self.network.dest_gid(dest)?,
            flow_label: 0,
            traffic_class: id.tos,
            hop_limit: HOP_LIMIT,
            level: 0,
            mtu: self.network.device(attached.adapter)?.port().active_mtu,
            lifetime: lifetime.map_or(LIFETIME, |timeout| timeout - 1),
        })
    }
}
