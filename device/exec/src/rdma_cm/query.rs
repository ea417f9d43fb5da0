//! Commands that ask for addresses and paths.

use rustix::io::Errno;
use vrnic_cm::address::service;
use vrnic_cm::parameters::Path;

use super::ids::CmId;
use super::request::CmCommand;
use super::service::CmService;
use super::sockaddr::{encode, encode_storage, gid, len};
use super::wire::{AddrResp, PathRecord, PathResp, Query, RouteResp, STORAGE_LEN};
use crate::trap::task::FileId;
use crate::trap::tree::guid;
use crate::uverbs::device::PORT;

/// What a query is about (`RDMA_USER_CM_QUERY_*`).
const ADDRESSES: u32 = 0;
const PATHS: u32 = 1;
const GIDS: u32 = 2;
const SERVICES: u32 = 3;
/// The partition key of all packets, in network byte order, which is the same.
const PKEY: u16 = 0xffff;
/// `IB_SA_EQ`: that a number of a path is the exact one.
const EXACTLY: u8 = 2;
/// The use of a path (`IB_PATH_GMP`, `IB_PATH_PRIMARY` and `IB_PATH_BIDIRECTIONAL`).
const BOTH_WAYS: u32 = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 5;
/// `AF_IB`, and the length of an address of this family in bytes.
const IB: u16 = 27;
const IB_LEN: u16 = 48;
/// Lengths of answers without the index of the device, which old programs do not know.
const ROUTE_LEN: usize = std::mem::offset_of!(RouteResp, ibdev_index);
const ADDR_LEN: usize = std::mem::offset_of!(AddrResp, ibdev_index);
/// Length of an answer with no path.
const NO_PATH_LEN: usize = 8;

/// Returns a path, as programs read it.
fn record(path: &Path) -> PathRecord {
    PathRecord {
        dgid: path.dest,
        sgid: path.source,
        flow_label: path.flow_label.to_be_bytes(),
        reversible: 1,
        mtu: path.mtu.into(),
        pkey: PKEY,
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        sl: path.level,
        mtu_selector: EXACTLY,
        rate_selector: EXACTLY,
        packet_life_time_selector: EXACTLY,
        packet_life_time: path.lifetime,
        ..PathRecord::default()
    }
}

/// Returns a path in the format of the subnet administration (15.2.5.16).
fn packed(path: &Path) -> [u8; 64] {
    let flow_hop = path.flow_label << 8 | u32::from(path.hop_limit);
    let parts = [
        &[0; 8][..],
        &path.dest,
        &path.source,
        &[0; 4],
        &flow_hop.to_be_bytes(),
        &[path.traffic_class, 0x80, 0xff, 0xff, 0, path.level],
        &[EXACTLY << 6 | path.mtu, EXACTLY << 6, EXACTLY << 6 | path.lifetime],
    ]
    .concat();
    let mut bytes = [0; 64];
    bytes.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
    bytes
}

/// Returns an address of InfiniBand (`struct sockaddr_ib`).
fn infiniband(gid: &[u8; 16], service: u64) -> [u8; STORAGE_LEN] {
    let mask = [0xff; 8];
    let family = [IB.to_ne_bytes(), PKEY.to_ne_bytes()].concat();
    let parts = [&family[..], &[0; 4], gid, &service.to_be_bytes(), &mask].concat();
    let mut bytes = [0; STORAGE_LEN];
    bytes.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
    bytes
}

impl<T> CmService<T> {
    /// Answers with the addresses and the way of an identifier (`ucma_query_route`).
    pub(super) fn query_route(
        &mut self,
        file: FileId,
        command: &CmCommand<'_>,
    ) -> Result<(), Errno> {
        command.check_room(ROUTE_LEN)?;
        let Query { response, id: number, .. } = command.copy()?;
        let id = self.id(file, number)?.clone();
        let mut resp = RouteResp {
            src_addr: encode(id.source.as_ref()),
            dst_addr: encode(id.dest.as_ref()),
            ..RouteResp::default()
        };
        if let Some((node_guid, ibdev_index)) = self.names(&id) {
            resp.node_guid = node_guid;
            resp.ibdev_index = ibdev_index;
            resp.port_num = PORT;
            resp.num_paths = id.path.is_some().into();
            let [sgid, dgid] = [id.source, id.dest]
                .map(|address| address.map_or([0; 16], |address| gid(address.ip())));
            let none = PathRecord { sgid, dgid, pkey: PKEY, ..PathRecord::default() };
            resp.ib_route = [id.path.as_ref().map_or(none, record), PathRecord::default()];
        }
        command.respond(response, &resp)
    }

    /// Answers a query (`ucma_query`).
    pub(super) fn query(&mut self, file: FileId, command: &CmCommand<'_>) -> Result<(), Errno> {
        let Query { response, id: number, option } = command.copy()?;
        let id = self.id(file, number)?.clone();
        match option {
            ADDRESSES => self.query_addresses(&id, response, command),
            PATHS => Self::query_paths(&id, response, command),
            GIDS => self.query_gids(&id, response, command),
            SERVICES => Err(Errno::NODATA),
            _ => Err(Errno::NOSYS),
        }
    }

    /// Returns the GUID and the number of the adapter of an identifier.
    fn names(&self, id: &CmId) -> Option<([u8; 8], u32)> {
        let adapter = id.attached?.adapter;
        let mac = self.network.device(adapter)?.driver().adapter().mac();
        Some((guid(mac.0), u32::try_from(adapter).ok()?))
    }

    /// Returns an answer that names the adapter.
    fn named(&self, id: &CmId) -> AddrResp {
        match self.names(id) {
            Some((node_guid, ibdev_index)) => AddrResp {
                node_guid,
                ibdev_index,
                port_num: PORT,
                pkey: PKEY,
                ..AddrResp::default()
            },
            None => AddrResp::default(),
        }
    }

    fn query_addresses(
        &self,
        id: &CmId,
        response: u64,
        command: &CmCommand<'_>,
    ) -> Result<(), Errno> {
        command.check_room(ADDR_LEN)?;
        let [src_size, dst_size] = [id.source, id.dest].map(|address| {
            // CAST: a small length.
            address.map_or(0, |address| len(&address) as u16)
        });
        let resp = AddrResp {
            src_size,
            dst_size,
            src_addr: encode_storage(id.source.as_ref()),
            dst_addr: encode_storage(id.dest.as_ref()),
            ..self.named(id)
        };
        command.respond(response, &resp)
    }

    fn query_paths(id: &CmId, response: u64, command: &CmCommand<'_>) -> Result<(), Errno> {
        command.check_room(NO_PATH_LEN)?;
        let Some(path) = &id.path else { return command.respond(response, &[0u32; 2]) };
        if command.room < size_of::<PathResp>() {
            return command.respond(response, &[1u32, 0]);
        }
        let (num_paths, flags, path) = (1, BOTH_WAYS, packed(path));
        command.respond(response, &PathResp { num_paths, flags, path, ..PathResp::default() })
    }

    fn query_gids(&self, id: &CmId, response: u64, command: &CmCommand<'_>) -> Result<(), Errno> {
        command.check_room(ADDR_LEN)?;
        let port = |address: Option<std::net::SocketAddr>| {
            service(id.space, address.map_or(0, |address| address.port()))
        };
        let own = id.attached.map_or([0; 16], |attached| attached.gid);
        let peer = id.dest.map_or([0; 16], |address| gid(address.ip()));
        let peer = id.path.map_or(peer, |path| path.dest);
        let resp = AddrResp {
            src_size: IB_LEN,
            dst_size: IB_LEN,
            src_addr: infiniband(&own, port(id.source)),
            dst_addr: infiniband(&peer, port(id.dest)),
            ..self.named(id)
        };
        command.respond(response, &resp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_the_formats_of_programs() {
        let (source, dest) = ([1; 16], [2; 16]);
        let path = Path { source, dest, hop_limit: 64, mtu: 5, lifetime: 16, ..Path::default() };
        let bytes = packed(&path);
        assert_eq!((bytes[8], bytes[24], bytes[47]), (2, 1, 64));
        assert_eq!(bytes[48..58], [0, 0x80, 0xff, 0xff, 0, 0, 0x85, 0x80, 0x90, 0]);
        assert_eq!(record(&path).mtu, 5);
        let address = infiniband(&dest, 0x106_1d2f);
        assert_eq!((address[0], address[8], address[31]), (27, 2, 0x2f));
    }
}
