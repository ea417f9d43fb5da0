//! The usual admin commands as methods of [`Guest`]. Each fails with [`Refused`].

use vrnic_abi::admin::{
    Command, Completion, CreateEq, CreateQp, DeviceCaps, ModifyQp, Opcode, OpenConnection,
    PARAMS_LEN, QueryConnection, QueryParams, QueryQp, RESULT_LEN, RegMr, SetGid, Stats, Status,
    command,
};
use vrnic_abi::connection::{Connection, ConnectionStatus, Received};
use vrnic_abi::qp::{Attr, AttrMask, NO_VLAN, State};
use vrnic_abi::regs;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::bus::Bus;
use crate::eq::EventQueue;
use crate::guest::Guest;
use crate::memory::Ram;
use crate::qp::link_local;
use crate::wait;

/// The adapter's reason to refuse a command: the status, and for [`Status::BadParam`] the byte
/// offset of the bad field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} (detail {1})")]
pub struct Refused(pub Status, pub u32);

/// Returns the parameters of a command, padded with zeroes.
#[must_use]
pub fn padded<P: IntoBytes + Immutable + ?Sized>(params: &P) -> [u8; PARAMS_LEN] {
    let mut bytes = [0; PARAMS_LEN];
    params.write_to_prefix(&mut bytes).expect("no parameters are longer");
    bytes
}

impl<B: Bus> Guest<B> {
    /// Runs a command whose parameters are bytes. Returns its completion.
    #[track_caller]
    pub fn raw_command(&self, opcode: u16, flags: u16, params: [u8; PARAMS_LEN]) -> Completion {
        self.with_admin(|queue| {
            let id = queue.post(opcode, flags, params);
            self.set_register(regs::ADMIN_SQ_PI, queue.producer());
            let completion = wait::until("admin completion", || queue.poll());
            assert_eq!((completion.id.get(), completion.opcode.get()), (id, opcode));
            completion
        })
    }

    /// Sets an entry of the GID table to the link-local address of a MAC.
    ///
    /// # Errors
    /// The adapter's refusal.
    #[track_caller]
    pub fn set_gid(&self, index: u16, mac: [u8; 6]) -> Result<(), Refused> {
        self.command::<command::SetGid>(&SetGid::set(index, link_local(mac), mac, NO_VLAN))
    }

    /// Gives the port its link-local address, which [`crate::qp::attributes`] use.
    #[track_caller]
    pub(crate) fn give_address(&self) {
        self.set_gid(0, self.mac()).expect("SET_GID");
    }

    #[track_caller]
    fn bytes_command<P: IntoBytes + Immutable>(
        &self,
        opcode: Opcode,
        params: &P,
    ) -> Result<[u8; RESULT_LEN], Refused> {
        let completion = self.raw_command(opcode as u16, 0, padded(params));
        match Status::from_raw(completion.status.get()).expect("a known status") {
            Status::Ok => Ok(completion.result),
            status => Err(Refused(status, completion.detail.get())),
        }
    }

    /// Runs a command.
    #[track_caller]
    pub fn command<C: Command>(&self, params: &C::Params) -> Result<C::Reply, Refused> {
        let result = self.bytes_command(C::OPCODE, params)?;
        Ok(C::Reply::read_from_prefix(&result).expect("length of a result").0)
    }

    /// Runs a command about an object, such as its destruction. Returns the number in the result,
    /// if there is one.
    #[track_caller]
    pub fn on_object(&self, opcode: Opcode, id: u32) -> Result<u32, Refused> {
        let result = self.bytes_command(opcode, &id.to_le_bytes())?;
        Ok(u32::read_from_prefix(&result).expect("length of a result").0)
    }

    /// Allocates a context. Returns its number.
    pub fn alloc_context(&self) -> Result<u32, Refused> {
        Ok(self.command::<command::AllocContext>(&())?.get())
    }

    /// Registers contiguous pages, which are addressed by guest address. Returns the key.
    pub fn reg_flat(&self, pdn: u32, access: u32, addr: u64, len: u64) -> Result<u32, Refused> {
        let params = RegMr::new(pdn, access, addr, len, Ram::pages(addr));
        Ok(self.command::<command::RegMr>(&params)?.get())
    }

    /// Creates an event queue of `1 << log` entries on `vector`. Also returns its number.
    pub fn create_eq(&self, vector: u16, log: u8) -> Result<(u32, EventQueue), Refused> {
        let mut queue = EventQueue::new(self.ram(), self.bar(), log, 0);
        let params = CreateEq::new(Ram::pages(queue.addr), vector, log);
        let result = self.command::<command::CreateEq>(&params)?;
        queue.slot = result.slot.get();
        Ok((result.eqn.get(), queue))
    }

    /// Creates a QP. Returns its number, its slot and the offset of a send queue in device memory.
    pub fn create_qp(&self, params: &CreateQp) -> Result<(u32, u32, u64), Refused> {
        let result = self.command::<command::CreateQp>(params)?;
        Ok((result.qpn.get(), result.slot.get(), result.sq_offset.get()))
    }

    /// Sets attributes of a QP.
    pub fn modify_qp(&self, qpn: u32, mask: AttrMask, attr: &Attr) -> Result<(), Refused> {
        let buffer = self.ram().alloc(size_of::<Attr>() as u64);
        self.ram().write(buffer, attr.as_bytes());
        self.command::<command::ModifyQp>(&ModifyQp::new(qpn, mask.bits(), buffer))
    }

    /// Gives a QP a TCP connection.
    ///
    /// # Errors
    /// If the adapter refuses it.
    pub fn open_connection(&self, qpn: u32, connection: &Connection) -> Result<(), Refused> {
        let buffer = self.ram().alloc(size_of::<Connection>() as u64);
        self.ram().write(buffer, connection.as_bytes());
        self.command::<command::OpenConnection>(&OpenConnection::new(qpn, buffer))
    }

    /// Passes a TCP connection that carries bytes to a TOE QP. The kernel has received these bytes.
    ///
    /// # Errors
    /// If the adapter refuses it.
    ///
    /// # Panics
    /// Never: the bytes are few.
    pub fn open_toe(
        &self,
        qpn: u32,
        connection: &Connection,
        received: &[u8],
    ) -> Result<(), Refused> {
        let early = self.ram().alloc(received.len().max(1) as u64);
        self.ram().write(early, received);
        let len = u32::try_from(received.len()).expect("few bytes").into();
        let received = Received { addr: early.into(), len, reserved: 0.into() };
        self.open_toe_raw(qpn, connection, &received)
    }

    /// Does the same as [`Self::open_toe`] with any description of the received bytes.
    ///
    /// # Errors
    /// If the adapter refuses it.
    pub fn open_toe_raw(
        &self,
        qpn: u32,
        connection: &Connection,
        received: &Received,
    ) -> Result<(), Refused> {
        let both = [connection.as_bytes(), received.as_bytes()].concat();
        let buffer = self.ram().alloc(both.len() as u64);
        self.ram().write(buffer, &both);
        self.command::<command::OpenConnection>(&OpenConnection::new(qpn, buffer))
    }

    /// Queries the state of the TCP connection of a QP.
    ///
    /// # Errors
    /// If the QP has had none since it left RESET.
    ///
    /// # Panics
    /// Never: any bytes are a state.
    pub fn query_connection(&self, qpn: u32) -> Result<ConnectionStatus, Refused> {
        let buffer = self.ram().alloc(size_of::<ConnectionStatus>() as u64);
        self.command::<command::QueryConnection>(&QueryConnection::new(qpn, buffer))?;
        let bytes = self.ram().read(buffer, size_of::<ConnectionStatus>());
        Ok(ConnectionStatus::read_from_bytes(&bytes).expect("its size"))
    }

    /// Takes a QP through states, each with the attributes of its mask.
    #[track_caller]
    pub fn take_through(&self, qpn: u32, mut attr: Attr, steps: &[(State, AttrMask)]) {
        for (state, mask) in steps {
            attr.state = *state as u8;
            let done = self.modify_qp(qpn, *mask, &attr);
            done.unwrap_or_else(|refused| panic!("to {state:?}: {refused}"));
        }
    }

    /// Reads the attributes of a QP.
    pub fn query_qp(&self, qpn: u32) -> Result<Attr, Refused> {
        let buffer = self.ram().alloc(size_of::<Attr>() as u64);
        self.command::<command::QueryQp>(&QueryQp::new(qpn, buffer))?;
        Ok(self.ram().fetch(buffer))
    }

    /// Returns the device's capabilities.
    #[must_use]
    pub fn caps(&self) -> DeviceCaps {
        self.query::<command::QueryDevice, _>()
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.query::<command::QueryStats, _>()
    }

    fn query<C: Command<Params = QueryParams>, T: FromBytes>(&self) -> T {
        let buffer = self.ram().alloc(size_of::<T>() as u64);
        self.command::<C>(&QueryParams::new(buffer, size_of::<T>() as u32)).expect("a query");
        self.ram().fetch(buffer)
    }
}
