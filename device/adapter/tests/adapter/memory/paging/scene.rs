//! A pair of guests with regions whose pages come and go.

use vrnic_abi::admin::{
    MapFlags, MapPages, MrFlags, PageRequest, Pages, RegMr, UnmapPages, command,
};
use vrnic_abi::cq::Status;
use vrnic_abi::eq::Kind;
use vrnic_abi::qp::Attr;
use vrnic_abi::sq::Sge;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::cq::status;
use vrnic_testdriver::qp::{ALL, Setup};
use vrnic_testdriver::wr::Wr;
use zerocopy::IntoBytes;

use crate::bus::{Endpoint, Guest};
use crate::world::Pair;

/// The first address of the regions, which does not begin a page.
pub(super) const IOVA: u64 = 0x7f00_0000_0678;

pub(super) const PAGE: u64 = 4096;

/// A region of an endpoint, of which no page is present at first.
pub(super) struct Region {
    pub(super) guest: Guest,
    pub(super) key: u32,
    /// The memory of its pages, in order.
    pub(super) pages: Vec<u64>,
    pub(super) list: u64,
}

impl Region {
    pub(super) fn new(guest: &Guest, e: &Endpoint, pages: u64) -> Self {
        let length = pages * PAGE - (IOVA % PAGE);
        let mut params = RegMr::new(e.pdn, ALL, IOVA, length, Pages::new(0, 12, 0));
        params.flags = MrFlags::PAGED.bits().into();
        let key = guest.command::<command::RegMr>(&params).expect("REG_MR").get();
        let memory = guest.ram().alloc(pages * PAGE);
        // In reverse order, so that no two pages are contiguous.
        let pages: Vec<u64> = (0..pages).rev().map(|page| memory + page * PAGE).collect();
        Self { guest: guest.clone(), key, pages, list: guest.ram().alloc(PAGE) }
    }

    pub(super) fn command(
        &self,
        first: u64,
        count: u64,
        flags: MapFlags,
    ) -> Result<PageRequest, Refused> {
        let list = if flags.contains(MapFlags::FAILED) || count == 0 { 0 } else { self.list };
        let params = MapPages {
            key: self.key.into(),
            count: (count as u32).into(),
            first: first.into(),
            list: list.into(),
            flags: flags.bits().into(),
        };
        self.guest.command::<command::MapPages>(&params)
    }

    pub(super) fn map(&self, first: u64, count: u64, flags: MapFlags) -> PageRequest {
        let pages = &self.pages[first as usize..][..count as usize];
        self.guest.ram().write(self.list, pages.as_bytes());
        self.command(first, count, flags).expect("MAP_PAGES")
    }

    pub(super) fn unmap(&self, first: u64, count: u64) {
        let key = self.key.into();
        let params =
            UnmapPages { key, first: first.into(), count: count.into(), ..UnmapPages::default() };
        self.guest.command::<command::UnmapPages>(&params).expect("UNMAP_PAGES");
    }

    /// Returns whether the adapter has reported a request since the last call.
    pub(super) fn is_reported(&self) -> bool {
        let events = self.guest.drain_events();
        assert!(events.iter().all(|event| *event == (Kind::PageFault, self.key)), "{events:?}");
        assert!(events.len() < 2, "{events:?}");
        !events.is_empty()
    }

    /// Maps what was requested, or reports that it cannot be had. Returns the number of pages.
    pub(super) fn serve(&self, flags: MapFlags) -> u64 {
        let (mut done, mut next) = (0, self.map(0, 0, MapFlags::NEXT));
        while next.count.get() > 0 {
            let (first, count) = (next.first.get(), u64::from(next.count.get()));
            done += count;
            next = self.map(first, count, flags | MapFlags::NEXT);
        }
        done
    }

    pub(super) fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { addr: (IOVA + offset).into(), length: length.into(), lkey: self.key.into() }
    }

    /// Returns the memory of a byte.
    pub(super) fn at(&self, offset: u64) -> u64 {
        let at = IOVA % PAGE + offset;
        self.pages[(at / PAGE) as usize] + at % PAGE
    }

    pub(super) fn fill(&self, offset: u64, bytes: &[u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            self.guest.ram().write(self.at(at), &[*byte]);
        }
    }

    pub(super) fn bytes(&self, offset: u64, len: u64) -> Vec<u8> {
        (offset..offset + len).flat_map(|at| self.guest.ram().read(self.at(at), 1)).collect()
    }
}

/// Two connected QPs, and a region of each.
pub(super) struct Scene {
    pub(super) p: Pair,
    pub(super) a: Region,
    pub(super) b: Region,
}

/// Number of pages of each region.
pub(super) const PAGES: u64 = 600;

impl Scene {
    pub(super) fn new() -> Self {
        Self::with(Setup::default())
    }

    pub(super) fn with(setup: Setup) -> Self {
        // A responder over packets asks for a retry, which does not end with this number.
        let p = Pair::with(setup, |attr: &mut Attr| {
            attr.rnr_retry = 7;
            // 655 ms.
            attr.min_rnr_timer = 0;
        });
        let (a, b) = (Region::new(&p.ga, &p.a, PAGES), Region::new(&p.gb, &p.b, PAGES));
        Self { p, a, b }
    }

    /// Lets the adapters work for some time, in which no page request is answered.
    pub(super) fn wait(&self) {
        for _ in 0..40 {
            self.p.settle();
            self.p.world.advance(100_000);
        }
        self.p.settle();
    }

    /// Executes a work request, and serves what it needs. Returns its status, and the number of
    /// pages that were requested at A and at B.
    pub(super) fn run(&mut self, wr: &Wr) -> (Status, u64, u64) {
        self.p.a.post_send(wr);
        let (mut of_a, mut of_b) = (0, 0);
        for _ in 0..1000 {
            self.wait();
            if let Some(cqe) = self.p.sent() {
                return (status(&cqe), of_a, of_b);
            }
            if self.a.is_reported() {
                of_a += self.a.serve(MapFlags::empty());
            }
            if self.b.is_reported() {
                of_b += self.b.serve(MapFlags::empty());
            }
        }
        panic!("the request does not end");
    }
}

pub(super) fn pattern(len: u64) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ (at / PAGE) as u8).collect()
}

/// Length of each region.
pub(super) const WHOLE: u64 = PAGES * PAGE - 0x678;
