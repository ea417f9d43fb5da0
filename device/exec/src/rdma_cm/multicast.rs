//! Multicast groups. The program's queue pair becomes a member by verbs; here it gets the group's
//! address and key.

use std::net::SocketAddr;

use rustix::io::Errno;
use vrnic_cm::parameters::Path;

use super::attributes::address;
use super::events::datagram;
use super::files::Pending;
use super::ids::{Membership, Stage, UDP_QKEY};
use super::request::CmCommand;
use super::service::CmService;
use super::sockaddr::{decode, decode_sized, gid};
use super::wire::{DestroyId, EventResp, JoinAny, JoinIp, UdParam, event};
use crate::trap::task::FileId;

/// Length of an answer that is a number.
const NUMBER_LEN: usize = 4;
/// Maximum number of memberships.
const GROUPS_MAX: usize = 1 << 12;
/// The number of the queue pair of a group.
const GROUP_QPN: u32 = 0xff_ffff;
/// The hop limit of packets to a group.
const HOP_LIMIT: u8 = 64;
/// The largest of the flags of a membership: a member that only sends.
const SEND_ONLY: u16 = 1;

/// A request for a membership.
struct Join {
    response: u64,
    uid: u64,
    id: u32,
    group: SocketAddr,
}

impl<T> CmService<T> {
    /// Joins a group (`ucma_join_ip_multicast`).
    pub(super) fn join_ip(&mut self, file: FileId, command: &CmCommand<'_>) -> Result<(), Errno> {
        let JoinIp { response, uid, addr, id } = command.copy()?;
        command.check_room(NUMBER_LEN)?;
        let group = decode(&addr).map_err(|_| Errno::INVAL)?;
        self.join(file, command, &Join { response, uid, id, group })
    }

    /// Joins a group of any family (`ucma_join_multicast`).
    pub(super) fn join_any(&mut self, file: FileId, command: &CmCommand<'_>) -> Result<(), Errno> {
        let JoinAny { response, uid, id, addr_size, join_flags, addr } = command.copy()?;
        command.check_room(NUMBER_LEN)?;
        let group = decode_sized(&addr, addr_size).map_err(|_| Errno::INVAL)?;
        if join_flags > SEND_ONLY {
            return Err(Errno::INVAL);
        }
        self.join(file, command, &Join { response, uid, id, group })
    }

    /// Joins a group (`rdma_join_multicast`).
    fn join(&mut self, file: FileId, command: &CmCommand<'_>, join: &Join) -> Result<(), Errno> {
        let (id, _) = self.on_adapter(file, join.id)?;
        let ready = matches!(id.stage, Stage::AddrBound | Stage::AddrResolved);
        let attached = id.attached.ok_or(Errno::INVAL)?;
        if !ready || !id.kind.is_datagram() || join.group.ip().is_unspecified() {
            return Err(Errno::INVAL);
        }
        if join.group.is_ipv6() {
            return Err(Errno::OPNOTSUPP);
        }
        id.qkey = UDP_QKEY;
        if self.groups.len() >= GROUPS_MAX {
            return Err(Errno::NOMEM);
        }
        let number = self.number();
        command.respond(join.response, &number)?;
        let (source, dest) = (attached.gid, gid(join.group.ip()));
        let path = Path { source, dest, hop_limit: HOP_LIMIT, ..Path::default() };
        let param = UdParam {
            qp_num: GROUP_QPN,
            qkey: UDP_QKEY,
            ah_attr: address(&path, attached.gid_index),
            ..UdParam::default()
        };
        let (uid, id) = (join.uid, number);
        let resp = EventResp { uid, id, ..datagram(event::MULTICAST_JOIN, 0, &param) };
        let event = Pending { owner: join.id, group: Some(number), child: None, resp };
        if !self.files.get_mut(&file).ok_or(Errno::BADF)?.push(event) {
            return Err(Errno::NOMEM);
        }
        self.groups.insert(number, Membership { owner: join.id, events_reported: 0 });
        Ok(())
    }

    /// Ends a membership (`ucma_leave_multicast`).
    pub(super) fn leave_group(
        &mut self,
        file: FileId,
        command: &CmCommand<'_>,
    ) -> Result<(), Errno> {
        command.check_room(NUMBER_LEN)?;
        let DestroyId { response, id: number, .. } = command.copy()?;
        let owner = self.groups.get(&number).ok_or(Errno::NOENT)?.owner;
        let _own = self.id(file, owner)?;
        let events = self.groups.remove(&number).map_or(0, |group| group.events_reported);
        if let Some(file) = self.files.get_mut(&file) {
            let _unread = file.take_back(|event| event.group == Some(number));
        }
        command.respond(response, &events)
    }
}
