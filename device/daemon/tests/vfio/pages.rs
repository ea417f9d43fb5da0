//! Guest memory that is mapped page by page, as the VMM of a guest with an IOMMU maps it.
//!
//! Shows: memory

use std::fs::File;
use std::os::fd::AsRawFd;

use vrnic_abi::cq::Status;
use vrnic_abi::qp::State;
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::memory::{Memory, PAGE};
use vrnic_testdriver::qp::{ALL, Setup};
use vrnic_testdriver::vmm::daemon::Daemon;
use vrnic_testdriver::vmm::vfio::Guest;
use vrnic_testdriver::wait;
use vrnic_testdriver::wr::Wr;

use crate::common::{connected, pair, pattern, start};

/// First guest address of the pages.
const FIRST: u64 = 1 << 40;
/// Number of pages: 64 MiB.
const COUNT: u64 = 1 << 14;

/// Returns the page of the file for a page of the guest.
type Place = fn(u64) -> u64;

/// Pages that are adjacent in the file, too.
const IN_ORDER: Place = |page| page;
/// No page is adjacent in the file to the next one. The factor is odd, so each page of the file is
/// used once.
const SCATTERED: Place = |page| page * 10_007 % COUNT;

/// Maps all pages, one at a time.
fn map_pages(guest: &Guest, file: &File, place: Place) {
    for page in 0..COUNT {
        let (offset, addr) = (place(page) * PAGE, FIRST + page * PAGE);
        guest
            .with_client(|client| client.dma_map(offset, addr, PAGE, file.as_raw_fd()))
            .expect("DMA_MAP");
    }
}

/// Returns the `len` bytes of the file for the guest address [`FIRST`] + `at`.
fn held(memory: &Memory, place: Place, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let (mut at, mut rest) = (at, &mut bytes[..]);
    while !rest.is_empty() {
        let within = at % PAGE;
        let (now, later) = rest.split_at_mut(rest.len().min((PAGE - within) as usize));
        memory.read(place(at / PAGE) * PAGE + within, now).expect("inside");
        at += now.len() as u64;
        rest = later;
    }
    bytes
}

/// Returns the number of memory areas of the daemon's process.
fn areas(daemon: &Daemon) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", daemon.pid())).expect("maps");
    maps.lines().count()
}

#[test]
fn memory_may_be_mapped_page_by_page_in_any_order() {
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let [mut a, b] = connected(&guests, Setup::default());
    let memory = Memory::zeroed(COUNT * PAGE);
    let before = areas(&daemon);
    for place in [IN_ORDER, SCATTERED] {
        map_pages(&guests[1], memory.file().0, place);
        assert!(areas(&daemon) < before + 8, "{before} areas have become {}", areas(&daemon));
        let len = COUNT * PAGE;
        let key = guests[1].reg_flat(b.pdn, ALL, FIRST, len).expect("a region of all pages");
        for (at, len) in [(0, 1 << 20), (5 * PAGE - 3, 70_000), (len - (1 << 20), 1 << 20)] {
            let data = pattern(len, at as usize % 1000);
            a.fill(0, &data);
            let write = Wr::new(Opcode::Write, &[a.sge(0, len as u32)]).to(FIRST + at, key);
            a.run_expecting(&write, Status::Success);
            assert!(held(&memory, place, at, len) == data, "{len} bytes at {at:#x}");
        }
        guests[1].with_client(|client| client.dma_unmap(FIRST, len)).expect("DMA_UNMAP");
    }
    daemon.check();
}

/// A page is unmapped and later mapped to other memory. After the reply to the VMM, its old memory
/// does not change.
#[test]
fn a_page_may_be_withdrawn_in_mid_traffic() {
    const LEN: usize = 1 << 20;
    let mut daemon = start(2);
    let guests = pair(&daemon);
    let memory = Memory::zeroed(COUNT * PAGE);
    let file = memory.file().0;
    map_pages(&guests[1], file, IN_ORDER);
    for round in 1..6 {
        let [mut a, b] = connected(&guests, Setup { log_wqes: 6, ..Setup::default() });
        let key = guests[1].reg_flat(b.pdn, ALL, FIRST, LEN as u64).expect("a region");
        a.fill(0, &pattern(LEN, round));
        let write = Wr::new(Opcode::Write, &[a.sge(0, LEN as u32)]).to(FIRST, key);
        (0..8).for_each(|_| a.post_send(&write));
        let page = FIRST + 77 * PAGE;
        guests[1].with_client(|client| client.dma_unmap(page, PAGE)).expect("DMA_UNMAP");
        let before = held(&memory, IN_ORDER, 77 * PAGE, PAGE as usize);
        a.fill(0, &pattern(LEN, round + 100));
        (0..8).for_each(|_| a.post_send(&write));
        wait::until("failure of the requester", || (a.state() == State::Err).then_some(()));
        let after = held(&memory, IN_ORDER, 77 * PAGE, PAGE as usize);
        assert!(after == before, "a write after the unmap");
        // The address is mapped to another page of the file, and then to its own page again.
        let last = (COUNT - 1) * PAGE;
        let map = |offset| {
            let map = |client: &mut vfio_user::Client| {
                client.dma_map(offset, page, PAGE, file.as_raw_fd())
            };
            guests[1].with_client(map).expect("DMA_MAP");
        };
        map(last);
        let [mut a, b] = connected(&guests, Setup::default());
        let data = pattern(PAGE as usize, round + 50);
        a.fill(0, &data);
        let key = guests[1].reg_flat(b.pdn, ALL, FIRST, LEN as u64).expect("a region");
        let write = Wr::new(Opcode::Write, &[a.sge(0, PAGE as u32)]).to(page, key);
        a.run_expecting(&write, Status::Success);
        assert!(held(&memory, IN_ORDER, last, PAGE as usize) == data, "the new page");
        assert!(held(&memory, IN_ORDER, 77 * PAGE, PAGE as usize) == before, "the old page");
        guests[1].with_client(|client| client.dma_unmap(page, PAGE)).expect("DMA_UNMAP");
        map(77 * PAGE);
    }
    daemon.check();
}
