//! Commands that find the way to a peer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use rustix::io::Errno;
use vrnic_cm::parameters::Path;

use super::ids::Stage;
use super::request::CmCommand;
use super::resolving::{LOOK_INTERVAL, PeerWay, Resolving};
use super::service::CmService;
use super::sockaddr::{decode, decode_optional, decode_sized};
use super::wire::{EventResp, ResolveAddr, ResolveIp, ResolveRoute, event};
use crate::join::neighbors::Found;
use crate::trap::task::FileId;

/// The lifetime of packets, as an exponent (`CMA_IBOE_PACKET_LIFETIME`).
const LIFETIME: u8 = 16;
/// The hop limit of packets.
pub const HOP_LIMIT: u8 = 64;
/// Maximum number of identifiers that wait for addresses.
const RESOLVING_MAX: usize = 4096;

impl<T> CmService<T> {
    /// Finds the adapter on the way to an address (`ucma_resolve_ip`).
    pub(super) fn resolve_ip(
        &mut self,
        file: FileId,
        command: &CmCommand<'_>,
    ) -> Result<(), Errno> {
        let ResolveIp { src_addr, dst_addr, id, timeout_ms } = command.copy()?;
        // The fields are too short for addresses of InfiniBand.
        let source = decode_optional(&src_addr).map_err(|_| Errno::INVAL)?;
        let dest = decode(&dst_addr).map_err(|_| Errno::INVAL)?;
        let _exists = self.id(file, id)?;
        self.resolve(id, source, dest, timeout_ms)
    }

    /// Finds the adapter on the way to an address of any family (`ucma_resolve_addr`).
    pub(super) fn resolve_addr(
        &mut self,
        file: FileId,
        command: &CmCommand<'_>,
    ) -> Result<(), Errno> {
        let ResolveAddr { id, timeout_ms, src_size, dst_size, reserved, src_addr, dst_addr } =
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
        self.resolve(id, source, dest, timeout_ms)
    }

    /// Finds the adapter on the way to an address (`rdma_resolve_addr`).
    fn resolve(
        &mut self,
        number: u32,
        source: Option<SocketAddr>,
        dest: SocketAddr,
        timeout_ms: u32,
    ) -> Result<(), Errno> {
        let now = self.now();
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
        let from = match own.ip() {
            ip if ip.is_unspecified() => self.network.source_for(dest.ip()),
            ip => Some(ip),
        };
        let way = to.and_then(|to| self.network.dest_gid(to)).zip(from).and_then(|(gid, from)| {
            Some(PeerWay { gid, from, attached: self.network.attached(from)? })
        });
        let Some(way) = way else { return self.not_resolved(number, Errno::NODEV) };
        match self.network.find(&way.attached, &way.gid) {
            Found::Known(_) => self.resolved(number, &way),
            Found::Nowhere => self.not_resolved(number, Errno::NODEV),
            Found::Asked if self.resolving.len() >= RESOLVING_MAX => Err(Errno::NOMEM),
            Found::Asked => {
                id.stage = Stage::AddrQuery;
                let until = now.plus(Duration::from_millis(timeout_ms.into()));
                self.resolving.push(Resolving { id: number, way, until });
                Ok(())
            }
        }
    }

    /// Ends the search for an address that has been found.
    fn resolved(&mut self, number: u32, way: &PeerWay) -> Result<(), Errno> {
        let id = self.ids.get_mut(&number).ok_or(Errno::NOENT)?;
        let port = id.source.map_or(0, |own| own.port());
        id.attached = id.attached.or(Some(way.attached));
        id.source = Some(SocketAddr::new(way.from, port));
        id.stage = Stage::AddrResolved;
        self.tell_ports(number);
        self.post(number, EventResp { event: event::ADDR_RESOLVED, ..EventResp::default() })
    }

    /// Ends the search for an address that cannot be reached.
    fn not_resolved(&mut self, number: u32, error: Errno) -> Result<(), Errno> {
        let id = self.ids.get_mut(&number).ok_or(Errno::NOENT)?;
        id.stage = Stage::AddrBound;
        self.tell_ports(number);
        let status = -error.raw_os_error();
        self.post(number, EventResp { event: event::ADDR_ERROR, status, ..EventResp::default() })
    }

    /// Looks again for the addresses for which the network was asked.
    pub(super) fn look_again(&mut self) {
        let now = self.now();
        let generation = self.network.generation();
        if self.resolving.is_empty() || self.generation == generation && now < self.next_look {
            return;
        }
        (self.generation, self.next_look) = (generation, now.plus(LOOK_INTERVAL));
        for resolving in std::mem::take(&mut self.resolving) {
            let Resolving { id, way, until } = &resolving;
            if !self.is_in(*id, &[Stage::AddrQuery]) {
                continue;
            }
            // Without room, the event is lost, as in a kernel without memory.
            let _lost = match self.network.find(&way.attached, &way.gid) {
                Found::Known(_) => self.resolved(*id, way),
                Found::Asked if now < *until => {
                    self.resolving.push(resolving);
                    Ok(())
                }
                Found::Asked | Found::Nowhere => self.not_resolved(*id, Errno::TIMEDOUT),
            };
        }
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
