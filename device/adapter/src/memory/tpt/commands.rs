//! Regions that live as long as a command. They consist of the data segments of a work request,
//! joined, and start at address zero.
//!
//! A segment stays as it was in the work request: a key with a range, or a guest address. The
//! region of the key is checked at each use. So a command does not delay the end of a region, and a
//! region that has ended cannot be accessed through a command. Data in pages has a table of pages,
//! as a region has.

use std::marker::PhantomData;

use vrnic_abi::qp::Access;
use vrnic_abi::{GuestAddr, Key};

use super::denied::Denied;
use super::entry::{ByteRange, Cold, Kind, Mr, Owner};
use super::{Tpt, Window};
use crate::domain::User;
use crate::host::HeldMemory;
use crate::limits::MAX_FAST_REG_PAGES;
use crate::memory::mtt::{Table, segments};
use crate::memory::pages::{PAGE_SHIFT_MIN, PageList};
use crate::requests::wqe::Segment;

/// The data of a command, and the rights of its peer.
#[derive(Clone, Debug)]
pub struct CommandData<I> {
    /// The segments or pages with the data.
    pub buffer: Buffer<I>,
    /// The rights of the peer.
    pub access: Access,
    /// True if the key is valid for a single message.
    pub one_touch: bool,
    /// The name that the consumer has for the command.
    pub id: u32,
    /// True if the command may have no data.
    pub may_be_empty: bool,
}

/// The place of the data of a command.
#[derive(Clone, Debug)]
pub enum Buffer<I> {
    /// Ranges that local keys name.
    Ranges(I),
    /// Ranges of guest addresses.
    Physical(I),
    /// Pages of 4 KiB.
    Pages(DataPages),
}

/// Data in pages of 4 KiB.
#[derive(Clone, Copy, Debug)]
pub struct DataPages {
    /// The list of the pages.
    pub list: PageList,
    /// The offset of the first byte in the first page.
    pub offset: u64,
    /// The number of bytes.
    pub len: u64,
}

impl DataPages {
    /// Returns the `len` bytes from `offset` in the first of the pages in the list at `addr`.
    ///
    /// # Errors
    /// [`Denied::Bounds`] if they do not begin in that page, or are in too many pages.
    pub fn new(addr: GuestAddr, offset: u64, len: u64) -> Result<Self, Denied> {
        let count = offset.saturating_add(len).div_ceil(PAGE);
        if offset >= PAGE || count > MAX_FAST_REG_PAGES.into() {
            return Err(Denied::Bounds);
        }
        Ok(Self { list: PageList { addr, count }, offset, len })
    }
}

/// Number of bytes of a page of [`DataPages`].
const PAGE: u64 = 1 << PAGE_SHIFT_MIN;

/// A command of a QP whose peer uses its data.
#[derive(Debug)]
pub struct Named<'a> {
    /// The range that is used. If it has segments, [`Tpt::pieces`] splits it.
    pub data: Piece<'a>,
    /// The name that the consumer has for the command.
    pub id: u32,
}

/// A part of a command's data, or all of it.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// The checked part of a key's entry that has the bytes.
    pub window: Window<'a>,
    /// Number of bytes, not zero.
    pub len: u64,
}

/// The parts of a range of a command's data, in order.
#[derive(Debug)]
pub struct Pieces<'a, 'm, M> {
    tpt: &'a Tpt,
    held: &'m M,
    table: Table,
    user: User,
    need: Access,
    /// Number of segments that were examined.
    at: u64,
    /// Number of bytes of the data that must still be skipped before the range.
    skip: u64,
    left: u64,
}

impl<'a, M> Iterator for Pieces<'a, 'a, M> {
    type Item = Result<Piece<'a>, Denied>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.left > 0 {
            let Some(segment) = self.tpt.mtt.segment(&self.table, self.at) else {
                return Some(Err(Denied::Bounds));
            };
            self.at += 1;
            let len = u64::from(segment.len);
            if self.skip >= len {
                self.skip -= len;
                continue;
            }
            let skip = std::mem::take(&mut self.skip);
            let len = (len - skip).min(self.left);
            self.left -= len;
            let Some(addr) = segment.addr.checked_add(skip) else {
                return Some(Err(Denied::Bounds));
            };
            let window = if self.table.depth == segments::PHYSICAL {
                Ok(Window::physical(GuestAddr::new(addr), &self.tpt.mtt))
            } else {
                let range = ByteRange { addr, len };
                self.tpt.check(self.held, segment.key, self.user, range, self.need)
            };
            return Some(window.map(|window| Piece { window, len }));
        }
        None
    }
}

impl Tpt {
    /// Adds a command's data. Returns its key.
    ///
    /// # Errors
    /// [`Denied::Full`] if the table is full, [`Denied::Bounds`] if there is no data or an address
    /// of a page is not aligned, [`Denied::Memory`] if the list of pages cannot be read, or the
    /// error of a segment.
    pub fn insert_command<M: HeldMemory>(
        &self,
        held: &M,
        user: User,
        data: CommandData<impl Iterator<Item = Segment> + Clone>,
    ) -> Result<Key, Denied> {
        let CommandData { buffer, access, one_touch, id, may_be_empty } = data;
        let (length, offset) = buffer.extent();
        if length == 0 && !may_be_empty {
            return Err(Denied::Bounds);
        }
        let access = access & (Access::REMOTE_READ | Access::REMOTE_WRITE);
        if let Buffer::Ranges(data) = &buffer {
            let mut filled = data.clone().filter(|segment| segment.len > 0);
            filled.try_for_each(|Segment { addr, len, key }| {
                let range = ByteRange { addr, len: len.into() };
                self.check(held, key, user, range, local(access)).map(|_| ())
            })?;
        }
        self.is_of(user)?;
        let Stored { blocks, table } = self.store_buffer(held, buffer)?;
        let Some(index) = self.take_index() else {
            self.mtt.free(&blocks);
            return Err(Denied::Full);
        };
        let key = self.new_key(index);
        let slot = self.slot(index).ok_or(Denied::Full)?;
        let User { pdn, qpn, .. } = user;
        let mut cold = slot.back.cold.lock();
        *cold = Cold {
            owner: Owner::Command,
            instance: cold.instance,
            key,
            pdn,
            qpn,
            command: id,
            table: blocks,
            ..Cold::default()
        };
        let kind = Kind::Command;
        slot.entry.store(&Mr {
            key,
            pdn,
            qpn,
            kind,
            one_touch,
            access,
            length,
            offset,
            table,
            ..Mr::default()
        });
        Ok(key)
    }

    /// Stores the place of the data of a command.
    fn store_buffer<M: HeldMemory>(
        &self,
        held: &M,
        buffer: Buffer<impl Iterator<Item = Segment>>,
    ) -> Result<Stored, Denied> {
        let (data, physical) = match buffer {
            Buffer::Ranges(data) => (data, false),
            Buffer::Physical(data) => (data, true),
            Buffer::Pages(DataPages { list, .. }) => {
                let blocks = self.mtt.reserve(list.count.max(1)).map_err(|_| Denied::Full)?;
                let table = self.mtt.refill(held, &blocks, PAGE_SHIFT_MIN, list);
                let table = table.inspect_err(|_| self.mtt.free(&blocks))?;
                return Ok(Stored { blocks, table });
            }
        };
        let table = self.mtt.store_segments(data, physical).map_err(|_| Denied::Full)?;
        Ok(Stored { blocks: table, table })
    }

    /// Returns the parts of a command's data for a window that a check has returned, with the
    /// rights `need`. Returns `None` if the window is not one of a command.
    pub fn pieces<'a, M>(
        &'a self,
        held: &'a M,
        data: &Piece<'_>,
        user: User,
        need: Access,
    ) -> Option<Pieces<'a, 'a, M>> {
        let Window { table, offset, .. } = data.window;
        segments::is(&table).then_some(Pieces {
            tpt: self,
            held,
            table,
            user,
            need: local(need),
            at: 0,
            skip: offset,
            left: data.len,
        })
    }

    /// Checks that a range is data of the command with this key, which belongs to `user`, and that
    /// the peer has the rights `need`.
    ///
    /// # Errors
    /// Returns the first check that failed.
    pub fn check_command<'a, M>(
        &'a self,
        _held: &'a M,
        key: Key,
        user: User,
        range: ByteRange,
        need: Access,
    ) -> Result<Named<'a>, Denied> {
        let slot = self.slot(key.index()).ok_or(Denied::Invalid)?;
        let mr = slot.entry.load().ok_or(Denied::Invalid)?;
        if mr.kind != Kind::Command {
            return Err(Denied::Kind);
        }
        let offset = mr.check(key, user, range, need)?;
        self.is_of(user)?;
        let id = slot.back.cold.lock().command;
        let (table, mtt) = (mr.table, &self.mtt);
        let (one_touch, relaxed) = (false, false);
        let window = Window { table, offset, one_touch, relaxed, mtt, held: PhantomData };
        Ok(Named { data: Piece { window, len: range.len }, id })
    }

    /// Ends the command of `user` with this key. Its last use ends when all threads that hold the
    /// guest's memory have released it; [`Self::finish_command`] must be called after that. Returns
    /// the name that the consumer has for it.
    ///
    /// # Errors
    /// Returns an error if there is no such command. Nothing has changed then.
    pub fn end_command(&self, key: Key, user: User) -> Result<u32, Denied> {
        let slot = self.slot(key.index()).ok_or(Denied::Invalid)?;
        let mut cold = slot.back.cold.lock();
        match cold.owner {
            Owner::Command => {}
            Owner::None | Owner::Leaving => return Err(Denied::Invalid),
            _ => return Err(Denied::Kind),
        }
        if cold.pdn != user.pdn || cold.qpn != user.qpn {
            return Err(Denied::Foreign);
        }
        if cold.key != key {
            return Err(Denied::Stale);
        }
        self.is_of(user)?;
        slot.entry.invalidate();
        cold.owner = Owner::Leaving;
        Ok(cold.command)
    }

    /// Frees the key of a command that has ended. No thread uses it any more.
    pub fn finish_command(&self, key: Key) {
        let named = self.slot(key.index()).is_some_and(|slot| slot.back.cold.lock().key == key);
        if named {
            self.finish(key.index());
        }
    }
}

impl<I: Iterator<Item = Segment> + Clone> Buffer<I> {
    /// Returns the number of bytes, and the offset of the first one in its page.
    fn extent(&self) -> (u64, u64) {
        match self {
            Self::Ranges(data) | Self::Physical(data) => {
                (data.clone().map(|segment| u64::from(segment.len)).sum(), 0)
            }
            Self::Pages(pages) => (pages.len, pages.offset),
        }
    }
}

/// The place of the data of a command in the table.
struct Stored {
    /// The blocks that are allocated for it.
    blocks: Table,
    /// The table by which look-ups find it.
    table: Table,
}

/// Returns the rights that a peer's access needs in the regions of a command.
fn local(access: Access) -> Access {
    if access.contains(Access::REMOTE_WRITE) { Access::LOCAL_WRITE } else { Access::empty() }
}
