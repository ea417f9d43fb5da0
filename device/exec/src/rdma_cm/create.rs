//! Commands that create, destroy and move identifiers.

use rustix::io::Errno;

use super::files::Pending;
use super::ids::{CmId, QpKind, Stage};
use super::request::CmCommand;
use super::service::CmService;
use super::wire::{CreateId, DestroyId, MigrateId};
use crate::trap::task::FileId;

/// Length of an answer that is a number.
const NUMBER_LEN: usize = 4;

impl<T> CmService<T> {
    /// Creates an identifier (`ucma_create_id`).
    pub(super) fn create_id(&mut self, file: FileId, command: &CmCommand<'_>) -> Result<(), Errno> {
        command.check_room(NUMBER_LEN)?;
        let CreateId { uid, response, ps, qp_type, .. } = command.copy()?;
        let kind = QpKind::of(ps, qp_type).ok_or(Errno::INVAL)?;
        self.check_ids(file)?;
        let id = CmId::new(file, uid, ps, kind, self.psn());
        let number = self.insert(id);
        command.respond(response, &number).inspect_err(|_| {
            let _events = self.end(number);
        })
    }

    /// Destroys an identifier (`ucma_destroy_id`).
    pub(super) fn destroy_id(
        &mut self,
        file: FileId,
        command: &CmCommand<'_>,
    ) -> Result<(), Errno> {
        command.check_room(NUMBER_LEN)?;
        let DestroyId { response, id: number, .. } = command.copy()?;
        let _exists = self.id(file, number)?;
        let events = self.end(number);
        command.respond(response, &events)
    }

    /// Ends an identifier, and those of requests that the program has not read. Returns the number
    /// of events that it has read.
    pub(super) fn end(&mut self, number: u32) -> u32 {
        self.groups.retain(|_, group| group.owner != number);
        self.end_without_groups(number)
    }

    /// Ends an identifier that is in no group. Returns the number of its events that the program
    /// has read.
    pub(super) fn end_without_groups(&mut self, number: u32) -> u32 {
        let Some(id) = self.ids.remove(&number) else { return 0 };
        self.leave(number, &id);
        let own = |event: &Pending| event.owner == number;
        let unread = match self.files.get_mut(&id.file) {
            Some(file) => {
                file.ids = file.ids.saturating_sub(1);
                file.take_back(own)
            }
            None => Vec::new(),
        };
        for child in unread.into_iter().filter_map(|event| event.child) {
            let _events = self.end_without_groups(child);
        }
        id.events_reported
    }

    /// Ends what an identifier has: its connection, its services and its port.
    fn leave(&mut self, number: u32, id: &CmId) {
        let now = self.now();
        for (adapter, service) in &id.listens {
            if let Some(manager) = self.network.manager(*adapter) {
                manager.unlisten(*service);
            }
        }
        if let (Some(attached), Some(connection)) = (id.attached, id.connection) {
            self.connections.remove(&(attached.adapter, connection));
            if let Some(manager) = self.network.manager(attached.adapter) {
                manager.destroy(now, connection);
            }
        }
        if let (true, Some(source)) = (id.holds_port, id.source) {
            self.ports.release(id.space, source.port(), number);
        }
    }

    /// Moves an identifier of another file to this one (`ucma_migrate_id`).
    pub(super) fn migrate_id(
        &mut self,
        file: FileId,
        command: &CmCommand<'_>,
    ) -> Result<(), Errno> {
        let MigrateId { response, id: number, fd } = command.copy()?;
        let descriptor = i32::try_from(fd).map_err(|_| Errno::NOENT)?;
        let from = command.process.file(descriptor).map_err(|_| Errno::NOENT)?;
        if !self.files.contains_key(&from) {
            return Err(Errno::INVAL);
        }
        if file != from {
            self.check_ids(file)?;
            let own = |event: &Pending| event.owner == number;
            let moving = self.files.get(&from).map_or(0, |from| from.count(own));
            let to = self.files.get(&file).ok_or(Errno::BADF)?;
            if !to.has_room(moving) {
                return Err(Errno::NOMEM);
            }
        }
        let id = self.id(from, number)?;
        id.file = file;
        let events = id.events_reported;
        let moved = match self.files.get_mut(&from) {
            Some(from) => {
                from.ids = from.ids.saturating_sub(1);
                from.take_back(|event| event.owner == number)
            }
            None => Vec::new(),
        };
        if let Some(to) = self.files.get_mut(&file) {
            to.ids += 1;
            for event in moved {
                // There is room, as was checked above.
                let _added = to.push(event);
            }
        }
        command.respond(response, &events)
    }

    /// Returns whether an identifier has one of these uses.
    pub(super) fn is_in(&self, number: u32, stages: &[Stage]) -> bool {
        self.ids.get(&number).is_some_and(|id| stages.contains(&id.stage))
    }
}
