//! Random operations on the table and on its model. Both must give the same results.
//!
//! Shows: memory

use std::sync::Arc;

use vrnic_abi::admin::{MwType, Pages};
use vrnic_abi::qp::Access;
use vrnic_abi::sq::RegMrSeg;
use vrnic_abi::{Key, Pdn};
use vrnic_adapter::host::{GuestMemory, HeldMemory, Lane};
use vrnic_adapter::memory::pages::Run;
use vrnic_adapter::memory::tpt::{
    Binding, Bound, Buffer, CommandData, Message, Mr, Piece, Position, Refused, Registration,
    RemoteUse, Stream, Tpt, User, Window,
};
use vrnic_adapter::requests::wqe::Segment;
use vrnic_testdriver::memory::BASE;

use super::model::{Known, Model, Said, What};
use super::{range, run};
use crate::host::TestHost;

/// Address of page lists.
const LIST: u64 = BASE;
const LIST_LEN: u64 = 64;
/// Number of entries that the test tries to keep.
const ENTRIES: usize = 40;

/// A generator of random numbers (xorshift64*).
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.roll() >> 16) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

struct Bench {
    dice: Dice,
    host: TestHost,
    tpt: Tpt,
    model: Model,
    /// The results that were seen.
    seen: std::collections::BTreeMap<String, u64>,
}

impl Bench {
    fn user(&mut self) -> User {
        let (pdn, qpn): (u32, u32) = if self.dice.one_in(12) { (2, 8) } else { (1, 7) };
        let qpn = if self.dice.one_in(8) { 15 - qpn } else { qpn };
        User { pdn: pdn.into(), qpn: qpn.into(), ..User::default() }
    }

    /// Returns a key, which mostly exists.
    fn key(&mut self) -> Key {
        let entries = self.model.entries.len() as u64;
        if entries == 0 || self.dice.one_in(50) {
            return Key::new(self.dice.roll() as u32);
        }
        let key = self.model.entries[self.dice.below(entries) as usize].key;
        let wrong = if self.dice.one_in(12) { 1 << self.dice.below(11) } else { 0 };
        Key::new(key.get() ^ wrong)
    }

    fn region_key(&mut self) -> Key {
        let is = |entry: &&Known| matches!(entry.what, What::Region | What::Fast) && entry.valid;
        let keys: Vec<Key> = self.model.entries.iter().filter(is).map(|entry| entry.key).collect();
        if keys.is_empty() || self.dice.one_in(8) {
            return self.key();
        }
        keys[self.dice.below(keys.len() as u64) as usize]
    }

    fn said(&mut self) -> Said {
        let shift = 12 + self.dice.below(4) as u8;
        let addr = match self.dice.below(4) {
            0 => self.dice.below(100_000),
            1 => u64::MAX - 0x10_0000 + self.dice.below(0x1_0000),
            _ => self.dice.roll() >> 8,
        };
        let len = 1 + self.dice.below(5 << shift);
        let count = ((addr % (1 << shift)) + len).div_ceil(1 << shift);
        let gapless = self.dice.one_in(3);
        let first = self.dice.below(1 << 20) << shift;
        let pages = (0..count).map(|nth| match gapless {
            true => first + (nth << shift),
            false => self.dice.below(1 << 20) << shift,
        });
        let pages = pages.collect();
        let access = if self.dice.one_in(3) { self.dice.below(64) as u32 } else { 0x1f };
        let one_touch = self.dice.one_in(6);
        Said { access, addr, len, pages, shift, one_touch }
    }

    fn store_list(&self, pages: &[u64]) {
        let bytes: Vec<u8> = pages.iter().flat_map(|page| page.to_le_bytes()).collect();
        self.host.hold(Lane::SHARED).write(LIST.into(), &bytes).expect("list");
    }

    fn note(&mut self, what: &str, answer: impl std::fmt::Debug) {
        *self.seen.entry(format!("{what}: {answer:?}")).or_default() += 1;
    }

    /// Checks that a window leads to the bytes of an entry.
    fn compare(window: &Window<'_>, entry: &Known, addr: u64, len: u64) {
        let mut at = 0;
        while at < len {
            let Run { addr: guest, len: run } = window.resolve(at, len - at).expect("inside");
            assert!(run > 0 && at + run <= len);
            for byte in [0, run / 2, run - 1] {
                assert_eq!(guest.get() + byte, entry.byte(addr + at + byte));
            }
            at += run;
        }
    }

    fn add(&mut self) {
        let User { pdn, .. } = self.user();
        match self.dice.below(4) {
            0 => self.add_region(pdn),
            1 => {
                let key = self.tpt.insert_fast(pdn, LIST_LEN as u32).expect("room");
                self.model.entries.push(Known::new(What::Fast, key, pdn));
            }
            2 => {
                let key = self.tpt.insert_window(pdn, MwType::Type1).expect("room");
                self.model.entries.push(Known::new(What::Window1, key, pdn));
            }
            _ => {
                let key = self.tpt.insert_window(pdn, MwType::Type2).expect("room");
                self.model.entries.push(Known::new(What::Window2, key, pdn));
            }
        }
    }

    fn add_region(&mut self, pdn: Pdn) {
        let said = self.said();
        self.store_list(&said.pages);
        let pages = Pages::new(LIST, said.shift, 1);
        let offset = said.addr % (1 << said.shift);
        let make = |key| {
            let table = self.tpt.mtt().load(&self.host, &pages, offset, said.len).expect("pages");
            let access = Access::from_bits_retain(said.access);
            let iova = if access.contains(Access::ZERO_BASED) { 0 } else { said.addr };
            let Said { len: length, one_touch, .. } = said;
            let mr = Mr { key, pdn, one_touch, access, iova, length, ..Mr::default() };
            Ok::<_, ()>(Mr { offset, table, ..mr })
        };
        let key = self.tpt.insert(make).expect("made").expect("room");
        let mut known = Known::new(What::Region, key, pdn);
        known.say(key, &said);
        self.model.entries.push(known);
    }

    fn remove(&mut self) {
        let key = self.key();
        let window = |entry: &Known| matches!(entry.what, What::Window1 | What::Window2);
        let known = self.model.entries.iter().find(|entry| entry.key == key);
        let region = known.is_none_or(|entry| !window(entry)) != self.dice.one_in(10);
        let host = &self.host;
        let drain = || host.drain();
        let got =
            if region { self.tpt.remove(key, drain) } else { self.tpt.remove_window(key, drain) };
        let expected = self.model.remove(key, region);
        let same = match (got, expected) {
            (Ok(a), Ok(b)) => a == b,
            (Err(Refused::NotFound), Err(false)) | (Err(Refused::Busy), Err(true)) => true,
            _ => false,
        };
        assert!(same, "{got:?} {expected:?}");
        self.note("remove", got);
    }

    fn revoke(&mut self) {
        let key = self.region_key();
        let got = self.tpt.revoke(key, || self.host.drain());
        assert_eq!(got.is_ok(), self.model.revoke(key));
        self.note("revoke", got);
    }

    fn access(&mut self) {
        let (key, user) = (self.key(), self.user());
        let entry = self.model.entries.iter().find(|entry| entry.key.index() == key.index());
        let (iova, len) = entry.map_or((0, 8), |entry| (entry.iova, entry.len));
        let addr = iova.wrapping_add(self.dice.below(len + 4)).wrapping_sub(self.dice.below(3));
        let size = match self.dice.below(12) {
            0 => self.dice.roll(),
            1 => len,
            _ => self.dice.below(len.min(20_000) + 1),
        };
        let need = if self.dice.one_in(2) { 0 } else { 1 << self.dice.below(4) };
        let rights = Access::from_bits_retain(need);
        let memory = self.host.hold(Lane::SHARED);
        if self.dice.one_in(3) {
            let got = self.tpt.check(&memory, key, user, range(addr, size), rights);
            let expected = self.model.local(key, user.pdn, (addr, size), need);
            assert_eq!(got.as_ref().err(), expected.as_ref().err());
            if let (Ok(window), Ok(entry)) = (&got, expected) {
                Self::compare(window, entry, addr, size);
            }
            let answer = got.map(|_| ());
            drop(memory);
            return self.note("local", answer);
        }
        let number = Some(self.dice.below(3)).filter(|_| !self.dice.one_in(3));
        let by = RemoteUse { need: rights, message: number, windows_only: self.dice.one_in(8) };
        let got = self.tpt.check_remote(&memory, key, user, range(addr, size), by);
        let expected = self.model.remote(key, user, (addr, size), by);
        assert_eq!(got.as_ref().err(), expected.as_ref().err());
        if let (Ok(window), Ok(entry)) = (&got, expected) {
            let whole = Piece { window: *window, len: size };
            match self.tpt.pieces(&memory, &whole, user, rights) {
                Some(pieces) => {
                    let mut at = addr;
                    for piece in pieces.map(|piece| piece.expect("physical")) {
                        Self::compare_physical(&piece.window, entry, at, piece.len);
                        at += piece.len;
                    }
                    assert_eq!(at, addr + size);
                }
                None => Self::compare(window, entry, addr, size),
            }
        }
        let ahead = got.as_ref().is_ok_and(|window| number.is_none() && window.one_touch());
        let answer = got.map(|_| ());
        drop(memory);
        if ahead {
            let (stream, last) = (Stream { qpn: user.qpn, life: 0 }, self.position(user));
            let last = Some(last).filter(|_| self.dice.one_in(2));
            let got = self.tpt.touch_ahead(key, stream, last);
            assert_eq!(got, self.model.touch_ahead(key, stream, last));
            self.note("ahead", got);
        }
        self.note("remote", answer);
    }

    fn position(&mut self, user: User) -> Position {
        Position { stream: Stream { qpn: user.qpn, life: 0 }, at: self.dice.below(2) }
    }

    /// The last segment of a message has been placed in order, or the stream has come to a last
    /// segment that was placed before.
    fn last(&mut self) {
        let (key, user) = (self.key(), self.user());
        let last = self.position(user);
        if self.dice.one_in(2) {
            let got = self.tpt.touch_last(key, last);
            assert_eq!(got, self.model.touch_last(key, last));
            return self.note("last", got);
        }
        let message = Message { qpn: user.qpn, number: self.dice.below(3) };
        let got = self.tpt.reach(key, message, last);
        assert_eq!(got, self.model.reach(key, message, last));
        self.note("reach", got);
    }

    /// The pages of a command are segments, each as long as a page of the model: see
    /// [`Self::command`].
    fn compare_physical(window: &Window<'_>, entry: &Known, addr: u64, len: u64) {
        assert_eq!(window.resolve(0, len), Some(run(entry.byte(addr), len)));
    }

    fn end_message(&mut self) {
        let (key, user) = (self.key(), self.user());
        let message = Message { qpn: user.qpn, number: self.dice.below(3) };
        let got = self.tpt.end_message(key, message);
        assert_eq!(got, self.model.end_message(key, message));
        self.note("end of message", got);
    }

    fn register(&mut self) {
        let (key, user, said) = (self.key(), self.user(), self.said());
        let count = said.pages.len() as u32;
        self.store_list(&said.pages);
        let seg = RegMrSeg {
            length: said.len.into(),
            table: LIST.into(),
            access: said.access.into(),
            page_count: count.into(),
            page_shift: said.shift,
            flags: u8::from(said.one_touch),
            ..RegMrSeg::default()
        };
        let got = Registration::new(key, user, said.addr, &seg)
            .and_then(|wanted| self.tpt.register(&self.host.hold(Lane::SHARED), &wanted));
        assert_eq!(got, self.model.register(key, user.pdn, &said));
        self.note("register", got);
    }

    fn invalidate(&mut self) {
        let (key, user, remote) = (self.key(), self.user(), self.dice.one_in(2));
        let got = self.tpt.invalidate(key, user, remote);
        assert_eq!(got, self.model.invalidate(key, user, remote));
        self.note("invalidate", got);
    }

    fn bind(&mut self) {
        let (key, user, lkey) = (self.key(), self.user(), self.region_key());
        // Mostly with another instance of the key, as real users do.
        let key = Key::new(key.get() & !0xff | self.dice.below(256) as u32);
        let region = self.model.entries.iter().find(|entry| entry.key == lkey);
        let (iova, len) = region.map_or((0, 100), |region| (region.iova, region.len.max(1)));
        let mut said = self.said();
        said.addr = iova.wrapping_add(self.dice.below(len)).wrapping_sub(self.dice.below(2));
        said.len = self.dice.below(len + 10) * u64::from(!self.dice.one_in(6));
        let binding = Binding {
            lkey,
            addr: said.addr,
            length: said.len,
            access: Access::from_bits_retain(said.access),
            one_touch: said.one_touch,
            same_key: false,
        };
        let got = self.tpt.bind(key, user, &binding);
        let expected = self.model.bind(key, user, lkey, &said);
        assert_eq!(got.map(|bound| bound == Bound::Replaced), expected);
        self.note("bind", got);
    }

    fn command(&mut self) {
        let user = self.user();
        let is = |entry: &&Known| entry.what == What::Command;
        let open: Vec<Key> = self.model.entries.iter().filter(is).map(|entry| entry.key).collect();
        if open.len() > 4 || self.dice.one_in(2) {
            let mut key = self.key();
            if !open.is_empty() && !self.dice.one_in(3) {
                key = open[self.dice.below(open.len() as u64) as usize];
                key = Key::new(key.get() ^ u32::from(self.dice.one_in(8)));
            }
            let got = self.tpt.end_command(key, user).map(|_| ());
            if got.is_ok() {
                self.host.drain();
                self.tpt.finish_command(key);
            }
            assert_eq!(got, self.model.end_command(key, user));
            return self.note("end command", got);
        }
        // Segments of a page each, so that the model's pages are the segments.
        let mut said = self.said();
        said.pages.truncate(16);
        (said.addr, said.len) = (0, (said.pages.len() as u64) << said.shift);
        said.access &= 6;
        let len = 1u32 << said.shift;
        let segment = |addr: &u64| Segment { addr: *addr, len, key: Key::default() };
        let data = CommandData {
            buffer: Buffer::Physical(said.pages.iter().map(segment)),
            access: Access::from_bits_retain(said.access),
            one_touch: said.one_touch,
            id: 0,
            may_be_empty: false,
        };
        let held = self.host.hold(Lane::SHARED);
        let key = self.tpt.insert_command(&held, user, data).expect("room");
        drop(held);
        let mut known = Known::new(What::Command, key, user.pdn);
        known.say(key, &said);
        known.qpn = Some(user.qpn);
        self.model.entries.push(known);
    }

    fn step(&mut self) {
        let full = self.model.entries.len() >= ENTRIES;
        match self.dice.below(100) {
            0..10 if !full => self.add(),
            14 if self.dice.one_in(8) => self.revoke(),
            0..15 => self.remove(),
            15..55 => self.access(),
            55..59 => self.end_message(),
            59..62 => self.last(),
            62..74 => self.register(),
            74..80 => self.invalidate(),
            80..92 => self.bind(),
            _ => self.command(),
        }
    }
}

/// `VRNIC_TPT_STEPS` sets the number of operations. The default is what a debug build does in a few
/// seconds.
///
/// Shows: memory: random operations on the table of keys have the results of a simple model
#[test]
fn agrees_with_the_model() {
    let steps = std::env::var("VRNIC_TPT_STEPS").ok().and_then(|n| n.parse().ok());
    let steps: u64 = steps.unwrap_or(400_000);
    let mut bench = Bench {
        dice: Dice(0x5eed_0000_0000_0001),
        host: TestHost::new(&Arc::default()),
        tpt: Tpt::default(),
        model: Model::default(),
        seen: Default::default(),
    };
    (0..steps).for_each(|_| bench.step());
    // Each result of each operation must have been seen.
    let seen: Vec<String> = bench.seen.iter().map(|(what, n)| format!("{what} × {n}")).collect();
    let never = [
        "ahead: false",
        "ahead: true",
        "bind: Ok(Fresh)",
        "bind: Ok(Replaced)",
        "bind: Err(Bounds)",
        "bind: Err(Foreign)",
        "bind: Err(InUse)",
        "bind: Err(Invalid)",
        "bind: Err(Kind)",
        "bind: Err(NotBindable)",
        "bind: Err(Rights)",
        "bind: Err(Stale)",
        "end command: Ok(())",
        "end command: Err(Stale)",
        "invalidate: Ok(())",
        "invalidate: Err(Foreign)",
        "invalidate: Err(InUse)",
        "invalidate: Err(Kind)",
        "invalidate: Err(Rights)",
        "invalidate: Err(Stale)",
        "last: Err(Touched)",
        "local: Ok(())",
        "local: Err(Kind)",
        "reach: Some(Err(Touched))",
        "reach: Some(Ok(()))",
        "register: Ok(())",
        "register: Err(Foreign)",
        "register: Err(InUse)",
        "register: Err(Kind)",
        "register: Err(Rights)",
        "remote: Ok(())",
        "remote: Err(Bounds)",
        "remote: Err(Foreign)",
        "remote: Err(Invalid)",
        "remote: Err(Rights)",
        "remote: Err(Stale)",
        "remote: Err(Touched)",
        "remove: Err(Busy)",
        "revoke: Ok(())",
        "revoke: Err(NotFound)",
    ];
    for answer in never {
        assert!(bench.seen.contains_key(answer), "{answer} was never seen in {seen:#?}");
    }
}
