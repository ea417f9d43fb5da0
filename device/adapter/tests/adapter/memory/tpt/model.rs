//! A slow, simple model of the table: a list of entries, searched one by one, with 128-bit
//! arithmetic.

use vrnic_abi::qp::Access;
use vrnic_abi::{Key, Pdn, Qpn};
use vrnic_adapter::memory::tpt::{Denied, Message, Position, RemoteUse, Stream, User};

const REMOTE: u32 = 0b1110;

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Region,
    Fast,
    Window1,
    Window2,
    Command,
}

/// An entry.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) what: What,
    /// The current key of the entry, or its last one.
    pub(super) key: Key,
    pub(super) pdn: Pdn,
    /// The only QP that may use it, if it has one.
    pub(super) qpn: Option<Qpn>,
    pub(super) valid: bool,
    pub(super) access: u32,
    pub(super) iova: u64,
    pub(super) len: u64,
    /// Guest address of each page.
    pub(super) pages: Vec<u64>,
    pub(super) shift: u8,
    pub(super) offset: u64,
    pub(super) one_touch: bool,
    bound_to: Option<Message>,
    touched: Option<Position>,
    /// Index of the region of a bound window.
    pub(super) region: Option<u32>,
}

/// The table.
#[derive(Default)]
pub(super) struct Model {
    pub(super) entries: Vec<Known>,
}

/// The parameters of a registration, a window or a command.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) access: u32,
    pub(super) addr: u64,
    pub(super) len: u64,
    pub(super) pages: Vec<u64>,
    pub(super) shift: u8,
    pub(super) one_touch: bool,
}

fn fits(entry: &Known, addr: u64, len: u64) -> bool {
    let (start, end) = (u128::from(entry.iova), u128::from(entry.iova) + u128::from(entry.len));
    let (from, to) = (u128::from(addr), u128::from(addr) + u128::from(len));
    start <= from && to <= end
}

impl Known {
    pub(super) fn new(what: What, key: Key, pdn: Pdn) -> Self {
        Self {
            what,
            key,
            pdn,
            qpn: None,
            valid: false,
            access: 0,
            iova: 0,
            len: 0,
            pages: Vec::new(),
            shift: 12,
            offset: 0,
            one_touch: false,
            bound_to: None,
            touched: None,
            region: None,
        }
    }

    pub(super) fn say(&mut self, key: Key, said: &Said) {
        self.key = key;
        self.valid = true;
        self.access = said.access;
        self.iova = if said.access & Access::ZERO_BASED.bits() != 0 { 0 } else { said.addr };
        self.len = said.len;
        self.offset = said.addr % (1 << said.shift);
        (self.pages, self.shift) = (said.pages.clone(), said.shift);
        self.one_touch = said.one_touch;
        (self.bound_to, self.touched) = (None, None);
    }

    /// Makes the entry invalid. If it was valid, no message has used it any more.
    fn end(&mut self) {
        if self.valid {
            (self.valid, self.bound_to, self.region) = (false, None, None);
        }
    }

    /// Returns the guest address of the byte at `addr`.
    pub(super) fn byte(&self, addr: u64) -> u64 {
        let at = self.offset + (addr - self.iova);
        self.pages[(at >> self.shift) as usize] + at % (1 << self.shift)
    }

    fn check(
        &self,
        key: Key,
        user: User,
        (addr, len): (u64, u64),
        need: u32,
    ) -> Result<(), Denied> {
        if self.pdn != user.pdn || self.qpn.is_some_and(|qpn| qpn != user.qpn) {
            return Err(Denied::Foreign);
        }
        if self.key != key {
            return Err(Denied::Stale);
        }
        if !fits(self, addr, len) {
            return Err(Denied::Bounds);
        }
        if self.access & need != need {
            return Err(Denied::Rights);
        }
        Ok(())
    }
}

impl Model {
    fn find(&self, key: Key) -> Option<&Known> {
        self.entries.iter().find(|entry| entry.key.index() == key.index())
    }

    fn find_mut(&mut self, key: Key) -> Option<&mut Known> {
        self.entries.iter_mut().find(|entry| entry.key.index() == key.index())
    }

    fn windows(&self, key: Key) -> usize {
        self.entries.iter().filter(|entry| entry.region == Some(key.index())).count()
    }

    pub(super) fn local(
        &self,
        key: Key,
        pdn: Pdn,
        range: (u64, u64),
        need: u32,
    ) -> Result<&Known, Denied> {
        let entry = self.find(key).filter(|entry| entry.valid).ok_or(Denied::Invalid)?;
        if !matches!(entry.what, What::Region | What::Fast) {
            return Err(Denied::Kind);
        }
        entry.check(key, User { pdn, ..User::default() }, range, need).map(|()| entry)
    }

    pub(super) fn remote(
        &mut self,
        key: Key,
        user: User,
        range: (u64, u64),
        by: RemoteUse,
    ) -> Result<&Known, Denied> {
        let entry = self.find_mut(key).filter(|entry| entry.valid).ok_or(Denied::Invalid)?;
        if by.windows_only && matches!(entry.what, What::Region | What::Fast) {
            return Err(Denied::Kind);
        }
        entry.check(key, user, range, by.need.bits())?;
        if let Some(number) = by.message.filter(|_| entry.one_touch) {
            let message = Message { qpn: user.qpn, number };
            let ahead = entry.touched.is_some_and(|last| last.stream.qpn != user.qpn);
            if ahead || entry.bound_to.is_some_and(|by| by != message) {
                entry.end();
                return Err(Denied::Touched);
            }
            entry.bound_to = Some(message);
        }
        Ok(entry)
    }

    fn one_touch(&mut self, key: Key) -> Option<&mut Known> {
        self.find_mut(key).filter(|entry| entry.key == key && entry.one_touch)
    }

    pub(super) fn touch_ahead(&mut self, key: Key, by: Stream, last: Option<Position>) -> bool {
        let Some(entry) = self.one_touch(key).filter(|entry| entry.valid) else { return false };
        if entry.bound_to.is_some_and(|message| message.qpn != by.qpn) {
            return false;
        }
        let same = match (entry.touched, last) {
            (None, _) => true,
            (Some(known), None) => known.stream == by,
            (Some(known), Some(last)) => known == last,
        };
        if same && last.is_some() {
            entry.touched = last;
        }
        same
    }

    pub(super) fn touch_last(&mut self, key: Key, last: Position) -> Result<(), Denied> {
        let Some(entry) = self.one_touch(key) else { return Ok(()) };
        if entry.touched.is_none_or(|by| by == last) {
            return Ok(());
        }
        entry.end();
        Err(Denied::Touched)
    }

    pub(super) fn reach(
        &mut self,
        key: Key,
        message: Message,
        last: Position,
    ) -> Option<Result<(), Denied>> {
        let entry = self.one_touch(key).filter(|entry| entry.touched == Some(last))?;
        let twice = entry.bound_to.is_some_and(|by| by != message);
        entry.touched = None;
        entry.end();
        Some(if twice { Err(Denied::Touched) } else { Ok(()) })
    }

    pub(super) fn end_message(&mut self, key: Key, message: Message) -> bool {
        let found = self.find_mut(key);
        let Some(entry) = found.filter(|e| e.valid && e.key == key && e.bound_to == Some(message))
        else {
            return false;
        };
        entry.end();
        true
    }

    /// Removes a region (if `region` is true) or a window. Returns its PD, or whether it is busy.
    pub(super) fn remove(&mut self, key: Key, region: bool) -> Result<Pdn, bool> {
        let entry = self.find(key).ok_or(false)?;
        let found = match entry.what {
            What::Region => region && entry.key == key,
            What::Fast => region,
            What::Window1 | What::Window2 => !region,
            What::Command => false,
        };
        if !found {
            return Err(false);
        }
        if self.windows(key) > 0 {
            return Err(true);
        }
        let pdn = entry.pdn;
        self.entries.retain(|entry| entry.key.index() != key.index());
        Ok(pdn)
    }

    /// Revokes a region registered by command, and ends the bindings of its windows. Returns
    /// whether there is one.
    pub(super) fn revoke(&mut self, key: Key) -> bool {
        let region = self.find_mut(key).filter(|entry| entry.what == What::Region);
        let Some(region) = region.filter(|entry| entry.key == key) else { return false };
        region.end();
        let is_bound = |entry: &&mut Known| entry.region == Some(key.index());
        self.entries.iter_mut().filter(is_bound).for_each(Known::end);
        true
    }

    /// Registers by a work request. Page lists are always long enough, and not longer than
    /// `max_pages`.
    pub(super) fn register(&mut self, key: Key, pdn: Pdn, said: &Said) -> Result<(), Denied> {
        let writes = said.access & (2 | 8) != 0;
        if writes && said.access & 1 == 0 {
            return Err(Denied::Rights);
        }
        let entry = self.find_mut(key).ok_or(Denied::Invalid)?;
        if entry.what != What::Fast {
            return Err(Denied::Kind);
        }
        if entry.pdn != pdn {
            return Err(Denied::Foreign);
        }
        if entry.valid {
            return Err(Denied::InUse);
        }
        entry.say(key, said);
        Ok(())
    }

    pub(super) fn invalidate(&mut self, key: Key, user: User, remote: bool) -> Result<(), Denied> {
        let windows = self.windows(key);
        let entry = self.find_mut(key).filter(|entry| entry.valid).ok_or(Denied::Invalid)?;
        if !matches!(entry.what, What::Fast | What::Window2) {
            return Err(Denied::Kind);
        }
        entry.check(key, user, (entry.iova, 0), 0)?;
        if remote && entry.access & REMOTE == 0 {
            return Err(Denied::Rights);
        }
        if windows > 0 {
            return Err(Denied::InUse);
        }
        entry.end();
        entry.touched = None;
        Ok(())
    }

    /// Binds a window, or unbinds it if the length is zero. Returns whether it was bound before.
    pub(super) fn bind(
        &mut self,
        key: Key,
        user: User,
        lkey: Key,
        said: &Said,
    ) -> Result<bool, Denied> {
        let window = self.find(key).ok_or(Denied::Invalid)?;
        let (what, bound) = (window.what, window.valid);
        if !matches!(what, What::Window1 | What::Window2) {
            return Err(Denied::Kind);
        }
        if window.pdn != user.pdn {
            return Err(Denied::Foreign);
        }
        if what == What::Window2 && bound {
            return Err(Denied::InUse);
        }
        let mut region = None;
        if said.len > 0 {
            region = Some(self.bindable(user, lkey, said)?.clone());
        } else if what == What::Window2 {
            return Err(Denied::Bounds);
        }
        let window = self.find_mut(key).ok_or(Denied::Invalid)?;
        (window.key, window.valid, window.region) = (key, false, None);
        (window.bound_to, window.touched) = (None, None);
        if let Some(region) = region {
            let Known { pages, shift, .. } = region;
            let offset = region.offset + (said.addr - region.iova);
            let access = said.access & (REMOTE | Access::ZERO_BASED.bits());
            window.say(key, &Said { pages, shift, access, ..said.clone() });
            window.offset = offset;
            window.region = Some(lkey.index());
            window.qpn = (what == What::Window2).then_some(user.qpn);
        }
        Ok(bound)
    }

    fn bindable(&self, user: User, lkey: Key, said: &Said) -> Result<&Known, Denied> {
        let region = self.find(lkey).filter(|entry| entry.valid).ok_or(Denied::Invalid)?;
        if !matches!(region.what, What::Region | What::Fast) {
            return Err(Denied::Kind);
        }
        let need = u32::from(said.access & (2 | 8) != 0);
        region.check(lkey, user, (said.addr, said.len), need)?;
        if region.access & Access::MW_BIND.bits() == 0 || region.one_touch {
            return Err(Denied::NotBindable);
        }
        Ok(region)
    }

    pub(super) fn end_command(&mut self, key: Key, user: User) -> Result<(), Denied> {
        let entry = self.find(key).ok_or(Denied::Invalid)?;
        if entry.what != What::Command {
            return Err(Denied::Kind);
        }
        if entry.pdn != user.pdn || entry.qpn != Some(user.qpn) {
            return Err(Denied::Foreign);
        }
        if entry.key != key {
            return Err(Denied::Stale);
        }
        self.entries.retain(|entry| entry.key != key);
        Ok(())
    }
}
