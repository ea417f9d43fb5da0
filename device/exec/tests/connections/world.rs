//! A connection manager with two adapters, and a program that consists of memory.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::io::Errno;
use vrnic_abi::qp::{AddressVector, NO_VLAN};
use vrnic_cm::address::{Addresses, service};
use vrnic_cm::mad::Mad;
use vrnic_cm::manager::Manager;
use vrnic_cm::manager::calls::Connect;
use vrnic_cm::parameters::{Path, Qp, Transport};
use vrnic_exec::adapter::driver::Driver;
use vrnic_exec::adapter::host::{ProcessHost, system_clock};
use vrnic_exec::join::neighbors::Neighbors;
use vrnic_exec::memory::spaces::{Placement, Spaces};
use vrnic_exec::rdma_cm::ports::Ports;
use vrnic_exec::rdma_cm::request::Outcome;
use vrnic_exec::rdma_cm::service::CmService;
use vrnic_exec::rdma_cm::sockaddr::{encode, encode_storage};
use vrnic_exec::rdma_cm::wire::{
    AcceptId, BindIp, ConnParam, ConnectId, CreateId, DestroyId, EventResp, InitQpAttr, JoinIp,
    ListenId, PS_TCP, QpAttrs, RejectId, ResolveAddr, ResolveRoute, command,
};
use vrnic_exec::trap::task::FileId;
use vrnic_exec::trap::tree::{ipv4_gid, link_local_gid};
use vrnic_exec::uverbs::device::Device;
use vrnic_exec::uverbs::process::Process;
use vrnic_exec::uverbs::routes::Routes;
use vrnic_packet::{MacAddr, Nanos};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Number of bytes of memory of the program, from address zero on.
pub(crate) const MEMORY: usize = 16 << 10;
/// The address of answers.
pub(crate) const ANSWER: u64 = 8 << 10;

/// A program.
pub(crate) struct Program {
    pub(crate) memory: RefCell<Vec<u8>>,
    files: RefCell<HashMap<i32, FileId>>,
}

impl Program {
    fn range(addr: u64, len: usize) -> Result<std::ops::Range<usize>, Errno> {
        let start = usize::try_from(addr).map_err(|_| Errno::FAULT)?;
        let end = start.checked_add(len).filter(|end| *end <= MEMORY).ok_or(Errno::FAULT)?;
        Ok(start..end)
    }
}

impl Process for Program {
    fn read(&self, addr: u64, into: &mut [u8]) -> Result<(), Errno> {
        into.copy_from_slice(&self.memory.borrow()[Self::range(addr, into.len())?]);
        Ok(())
    }

    fn write(&self, addr: u64, from: &[u8]) -> Result<(), Errno> {
        self.memory.borrow_mut()[Self::range(addr, from.len())?].copy_from_slice(from);
        Ok(())
    }

    fn place(&self, _: u64, _: u64, _: bool) -> Result<Placement, Errno> {
        Err(Errno::FAULT)
    }

    fn file(&self, descriptor: i32) -> Result<FileId, Errno> {
        self.files.borrow().get(&descriptor).copied().ok_or(Errno::BADF)
    }

    fn give(&self, _: BorrowedFd<'_>) -> Result<RawFd, Errno> {
        Err(Errno::MFILE)
    }
}

/// The connection manager, and the program's descriptors.
pub(crate) struct World {
    pub(crate) service: CmService<u32>,
    pub(crate) program: Program,
    drivers: Arc<[Driver]>,
    folder: tempfile::TempDir,
    descriptors: HashMap<FileId, OwnedFd>,
    /// The program's number for the next identifier.
    uid: u64,
}

impl World {
    pub(crate) fn new() -> Self {
        let spaces = Arc::new(Spaces::default());
        let fabric = Arc::default();
        let mut drivers = Vec::new();
        let mut all = Vec::new();
        let mut neighbors = Vec::new();
        for last in 1..=2 {
            let host = ProcessHost::new(&spaces, &Arc::default(), system_clock()).expect("memory");
            let mac = [2, 0, 0, 0, 0, last];
            let driver = Driver::new("vrnic", MacAddr(mac), host, Driver::most(), &fabric);
            let driver = driver.expect("an adapter");
            let gids = vec![link_local_gid(mac), ipv4_gid([127, 0, 0, last].into())];
            for (index, gid) in (0..).zip(&gids) {
                driver.set_gid(index, *gid).expect("an address");
                neighbors.push((*gid, mac));
            }
            drivers.push(driver);
            all.push(gids);
        }
        let (drivers, neighbors): (Arc<[_]>, _) =
            (drivers.into(), Arc::new(neighbors.into_iter().collect::<Neighbors>()));
        let routes = Arc::new(Routes::default());
        let device =
            |(number, gids)| Arc::new(Device::new(&drivers, number, gids, &neighbors, &routes));
        let devices: Vec<_> = all.into_iter().enumerate().map(device).collect();
        let files = RefCell::default();
        Self {
            service: CmService::new(&devices, Ports::new(40000..=40099, false)),
            drivers,
            program: Program { memory: RefCell::new(vec![0; MEMORY]), files },
            folder: tempfile::tempdir().expect("a folder"),
            descriptors: HashMap::new(),
            uid: 100,
        }
    }

    /// Opens a file, with this descriptor in the program.
    pub(crate) fn open(&mut self, descriptor: i32) -> FileId {
        let path: PathBuf = self.folder.path().join("pipe");
        let (file, theirs) = self.service.open(&path, true).expect("a file");
        self.descriptors.insert(file, theirs);
        self.program.files.borrow_mut().insert(descriptor, file);
        file
    }

    /// Writes a command with room for an answer.
    pub(crate) fn run(
        &mut self,
        file: FileId,
        cmd: u32,
        body: &(impl IntoBytes + Immutable),
        room: usize,
    ) -> Result<Outcome, Errno> {
        let bytes = body.as_bytes();
        let (len, room) = (bytes.len() as u16, room as u16);
        let header = [&cmd.to_le_bytes()[..], &len.to_le_bytes(), &room.to_le_bytes()].concat();
        let all = [&header[..], bytes].concat();
        self.program.write(0, &all).expect("memory");
        let outcome = self.service.write(file, &self.program, 0, all.len() as u64);
        self.settle();
        outcome
    }

    /// Closes a file.
    pub(crate) fn close(&mut self, file: FileId) {
        self.service.close(file);
        self.settle();
    }

    /// Returns the request of a foreign connection manager at the second adapter for a connection
    /// to 127.0.0.1:7471, with this number there.
    pub(crate) fn request(number: u32) -> Mad {
        let [source, dest] = [[127, 0, 0, 2], [127, 0, 0, 1]];
        let addresses = Addresses { port: 7, source: source.into(), dest: dest.into() };
        let [source, dest] = [source, dest].map(|address| ipv4_gid(address.into()));
        let connect = Connect {
            service: service(PS_TCP, 7471),
            path: Path { source, dest, mtu: 5, hop_limit: 64, ..Path::default() },
            transport: Transport::Rc,
            qp: Qp { qpn: number, ..Qp::default() },
            private: &addresses.encode(),
        };
        let mut manager = Manager::new(0x77, 1, number);
        manager.connect(Nanos::default(), &connect).expect("room");
        manager.message().expect("a request").mad
    }

    /// Sends a message from the second adapter to the first one.
    pub(crate) fn send(&mut self, mad: &Mad) {
        let [to, from] = &self.drivers[..] else { panic!("two adapters") };
        let way = AddressVector {
            dgid: ipv4_gid([127, 0, 0, 1].into()),
            dmac: to.adapter().mac().0,
            vlan: NO_VLAN.into(),
            sgid_index: 1.into(),
            hop_limit: 64,
            ..AddressVector::default()
        };
        assert!(from.gsi().has_room(from.host()));
        from.gsi().send(from.host(), &way, mad);
        self.settle();
    }

    /// Lets the adapters carry messages until there are none.
    pub(crate) fn settle(&mut self) {
        let works = |driver: &Driver| driver.adapter().poll(0).busy;
        let waits = |driver: &Driver| driver.gsi().has_received(driver.host());
        loop {
            while self.drivers.iter().any(works) {}
            if !self.drivers.iter().any(waits) {
                return;
            }
            let _more = self.service.advance();
        }
    }

    /// Writes a command without an answer.
    pub(crate) fn does(
        &mut self,
        file: FileId,
        cmd: u32,
        body: &(impl IntoBytes + Immutable),
    ) -> Result<(), Errno> {
        self.run(file, cmd, body, 0).map(|outcome| assert_eq!(outcome, Outcome::Done))
    }

    /// Returns the answer to the last command.
    pub(crate) fn answer<T: FromBytes + IntoBytes>(&self) -> T {
        let mut value = T::new_zeroed();
        self.program.read(ANSWER, value.as_mut_bytes()).expect("memory");
        value
    }

    /// Creates an identifier.
    pub(crate) fn create(&mut self, file: FileId, ps: u16) -> u32 {
        self.uid += 1;
        let create = CreateId { uid: self.uid, response: ANSWER, ps, ..CreateId::default() };
        self.run(file, command::CREATE_ID, &create, 4).expect("room");
        self.answer()
    }

    pub(crate) fn destroy(&mut self, file: FileId, id: u32) -> Result<u32, Errno> {
        let destroy = DestroyId { response: ANSWER, id, reserved: 0 };
        self.run(file, command::DESTROY_ID, &destroy, 4)?;
        Ok(self.answer())
    }

    pub(crate) fn bind(&mut self, file: FileId, id: u32, address: &str) -> Result<(), Errno> {
        let address: SocketAddr = address.parse().expect("an address");
        let bind = BindIp { response: 0, addr: encode(Some(&address)), id };
        self.does(file, command::BIND_IP, &bind)
    }

    /// Returns an identifier that listens.
    pub(crate) fn listener(&mut self, file: FileId, ps: u16, address: &str, backlog: u32) -> u32 {
        let id = self.create(file, ps);
        self.bind(file, id, address).expect("a free address");
        self.does(file, command::LISTEN, &ListenId { id, backlog }).expect("an address");
        id
    }

    /// Returns the next event. `None` if there is none.
    pub(crate) fn event(&mut self, file: FileId) -> Option<EventResp> {
        let room = size_of::<EventResp>();
        match self.run(file, command::GET_EVENT, &ANSWER, room).expect("a file") {
            Outcome::Done => Some(self.answer()),
            Outcome::Waits { .. } => None,
        }
    }

    /// Returns the number of the next event.
    pub(crate) fn kind(&mut self, file: FileId) -> Option<u32> {
        self.event(file).map(|event| event.event)
    }

    /// Returns an identifier with a way to an address.
    pub(crate) fn resolved(&mut self, file: FileId, ps: u16, address: &str) -> u32 {
        let id = self.create(file, ps);
        self.resolve(file, id, address);
        let resolve = ResolveRoute { id, timeout_ms: 1000 };
        self.does(file, command::RESOLVE_ROUTE, &resolve).expect("an address");
        assert_eq!(self.kind(file), Some(2));
        id
    }

    /// Resolves an address for an identifier.
    pub(crate) fn resolve(&mut self, file: FileId, id: u32, address: &str) {
        let dest: SocketAddr = address.parse().expect("an address");
        let resolve = ResolveAddr {
            id,
            timeout_ms: 1000,
            dst_size: if dest.is_ipv4() { 16 } else { 28 },
            dst_addr: encode_storage(Some(&dest)),
            ..ResolveAddr::default()
        };
        self.does(file, command::RESOLVE_ADDR, &resolve).expect("an identifier");
        assert_eq!(self.kind(file), Some(0));
    }

    /// Requests a connection.
    pub(crate) fn connect(
        &mut self,
        file: FileId,
        id: u32,
        qpn: u32,
        data: &[u8],
    ) -> Result<(), Errno> {
        let conn_param = param(qpn, data);
        let connect = ConnectId { conn_param, id, ..ConnectId::default() };
        self.does(file, command::CONNECT, &connect)
    }

    /// Accepts a connection for a queue pair, or a response without one.
    pub(crate) fn accept(&mut self, file: FileId, id: u32, qpn: Option<u32>) -> Result<(), Errno> {
        self.uid += 1;
        let conn_param = qpn.map_or_else(ConnParam::default, |qpn| param(qpn, b"yes"));
        let accept = AcceptId { uid: self.uid, conn_param, id, ..AcceptId::default() };
        self.does(file, command::ACCEPT, &accept)
    }

    pub(crate) fn reject(&mut self, file: FileId, id: u32) -> Result<(), Errno> {
        let mut reject = RejectId { id, private_data_len: 2, ..RejectId::default() };
        reject.private_data[..2].copy_from_slice(b"no");
        self.does(file, command::REJECT, &reject)
    }

    pub(crate) fn attributes(
        &mut self,
        file: FileId,
        id: u32,
        qp_state: u32,
    ) -> Result<QpAttrs, Errno> {
        let init = InitQpAttr { response: ANSWER, id, qp_state };
        self.run(file, command::INIT_QP_ATTR, &init, size_of::<QpAttrs>())?;
        Ok(self.answer())
    }

    pub(crate) fn join(&mut self, file: FileId, id: u32, group: &str) -> Result<u32, Errno> {
        let group: SocketAddr = group.parse().expect("an address");
        let join = JoinIp { response: ANSWER, uid: 7, addr: encode(Some(&group)), id };
        self.run(file, command::JOIN_IP_MCAST, &join, 4)?;
        Ok(self.answer())
    }

    /// Returns a connection of two files to a listener, at both ends.
    pub(crate) fn established(&mut self, files: [FileId; 2], address: &str) -> [u32; 2] {
        let [server, client] = files;
        let id = self.resolved(client, PS_TCP, address);
        self.connect(client, id, 5, b"hello").expect("a way");
        let request = self.event(server).expect("a request");
        self.accept(server, request.id, Some(6)).expect("a request");
        assert_eq!(self.kind(client), Some(5));
        self.accept(client, id, None).expect("a response");
        assert_eq!(self.kind(server), Some(9));
        [request.id, id]
    }
}

/// Returns the parameters of a queue pair.
fn param(qp_num: u32, data: &[u8]) -> ConnParam {
    let mut param = ConnParam {
        qp_num,
        private_data_len: data.len() as u8,
        responder_resources: 1,
        initiator_depth: 2,
        retry_count: 7,
        rnr_retry_count: 7,
        valid: 1,
        ..ConnParam::default()
    };
    param.private_data[..data.len()].copy_from_slice(data);
    param
}
