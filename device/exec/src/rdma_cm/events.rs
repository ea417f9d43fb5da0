//! Commands about events, and their formats.

use rustix::io::Errno;
use zerocopy::{Immutable, IntoBytes};

use super::request::{CmCommand, Outcome};
use super::service::CmService;
use super::wire::{ConnParam, EventResp, UdParam, WriteCmEvent, event};
use crate::trap::task::FileId;

/// Length of an event without what old programs do not know.
const LEN: usize = std::mem::offset_of!(EventResp, reserved);

fn resp(event: u32, status: i32, param: &(impl IntoBytes + Immutable)) -> EventResp {
    let mut resp = EventResp { event, status, ..EventResp::default() };
    resp.param.iter_mut().zip(param.as_bytes()).for_each(|(to, from)| *to = *from);
    resp
}

/// Returns an event of a connection.
#[must_use]
pub fn connected(event: u32, status: i32, param: &ConnParam) -> EventResp {
    resp(event, status, param)
}

/// Returns an event of datagrams.
#[must_use]
pub fn datagram(event: u32, status: i32, param: &UdParam) -> EventResp {
    resp(event, status, param)
}

impl<T> CmService<T> {
    /// Answers with the next event (`ucma_get_event`). Without one, the thread waits.
    pub(super) fn get_event(
        &mut self,
        file: FileId,
        command: &CmCommand<'_>,
    ) -> Result<Outcome, Errno> {
        command.check_room(LEN)?;
        let response: u64 = command.copy()?;
        let opened = self.files.get_mut(&file).ok_or(Errno::BADF)?;
        let Some(event) = opened.first() else {
            return Ok(Outcome::Waits { response, room: command.room });
        };
        command.respond(response, &event.resp)?;
        if let Some(event) = opened.pop() {
            self.count(&event);
        }
        Ok(Outcome::Done)
    }

    /// Adds an event of the program itself (`ucma_write_cm_event`).
    pub(super) fn write_event(
        &mut self,
        file: FileId,
        command: &CmCommand<'_>,
    ) -> Result<(), Errno> {
        let WriteCmEvent { id: number, event: kind, status, arg, .. } = command.copy()?;
        if kind != event::USER && kind != event::INTERNAL {
            return Err(Errno::INVAL);
        }
        if self.id(file, number)?.uid == 0 {
            return Err(Errno::INVAL);
        }
        self.post(number, resp(kind, status, &arg))
    }
}
