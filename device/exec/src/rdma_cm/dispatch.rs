//! The choice of what a command does (`ucma_write`).

use rustix::io::Errno;
use zerocopy::{FromZeros, IntoBytes};

use super::request::{CmCommand, Outcome};
use super::service::CmService;
use super::wire::{CmdHeader, command};
use crate::trap::task::FileId;
use crate::uverbs::process::Process;

/// Length of the header in bytes.
const HEADER_LEN: u64 = size_of::<CmdHeader>() as u64;

impl<T> CmService<T> {
    /// Executes what a process has written to a file: `len` bytes at an address of the process.
    ///
    /// # Errors
    /// The kernel's errors.
    pub fn write(
        &mut self,
        file: FileId,
        process: &dyn Process,
        addr: u64,
        len: u64,
    ) -> Result<Outcome, Errno> {
        if len < HEADER_LEN {
            return Err(Errno::INVAL);
        }
        let mut header = CmdHeader::new_zeroed();
        process.read(addr, header.as_mut_bytes())?;
        let CmdHeader { cmd, in_len, out_len } = header;
        if cmd > command::WRITE_CM_EVENT || u64::from(in_len) + HEADER_LEN > len {
            return Err(Errno::INVAL);
        }
        let addr = addr.checked_add(HEADER_LEN).ok_or(Errno::FAULT)?;
        let (given, room) = (in_len.into(), out_len.into());
        let outcome = self.execute(file, cmd, &CmCommand { process, addr, given, room });
        self.settle();
        outcome
    }

    fn execute(
        &mut self,
        file: FileId,
        cmd: u32,
        command: &CmCommand<'_>,
    ) -> Result<Outcome, Errno> {
        let done = match cmd {
            command::GET_EVENT => return self.get_event(file, command),
            command::CREATE_ID => self.create_id(file, command),
            command::DESTROY_ID => self.destroy_id(file, command),
            command::MIGRATE_ID => self.migrate_id(file, command),
            command::BIND_IP => self.bind_ip(file, command),
            command::BIND => self.bind_any(file, command),
            command::LISTEN => self.listen(file, command),
            command::SET_OPTION => self.set_option(file, command),
            command::RESOLVE_IP => self.resolve_ip(file, command),
            command::RESOLVE_ADDR => self.resolve_addr(file, command),
            command::RESOLVE_ROUTE => self.resolve_route(file, command),
            command::QUERY_ROUTE => self.query_route(file, command),
            command::QUERY => self.query(file, command),
            command::CONNECT => self.connect(file, command),
            command::ACCEPT => self.accept(file, command),
            command::REJECT => self.reject(file, command),
            command::DISCONNECT => self.disconnect(file, command),
            command::INIT_QP_ATTR => self.init_qp_attr(file, command),
            command::NOTIFY => self.notify(file, command),
            command::JOIN_IP_MCAST => self.join_ip(file, command),
            command::JOIN_MCAST => self.join_any(file, command),
            command::LEAVE_MCAST => self.leave_group(file, command),
            command::WRITE_CM_EVENT => self.write_event(file, command),
            command::RESOLVE_IB_SERVICE => self.resolve_service(file, command),
            // Options that no kernel has.
            _ => Err(Errno::NOSYS),
        };
        done.map(|()| Outcome::Done)
    }
}
