//! Guest memory of huge pages, as QEMU provides it with `memory-backend-memfd,hugetlb=on`.
//!
//! Shows: memory

use std::fs::{self, File};

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use vrnic_adapter::host::Lane;
use vrnic_device::memory::dma::DmaTable;
use vrnic_device::memory::range::DmaRange;
use vrnic_device::memory::rules::MapRules;

/// Bytes of a huge page on x86-64.
const HUGE: u64 = 2 << 20;
/// The file with the number of the machine's huge pages.
const POOL: &str = "/proc/sys/vm/nr_hugepages";

/// Huge pages that this test adds to the machine's. It removes them at its end.
struct Pool {
    before: u64,
}

impl Pool {
    /// Adds `count` pages. Returns `None` if the machine has too few pages, or does not permit
    /// this.
    fn new(count: u64) -> Option<Self> {
        let before = size()?;
        fs::write(POOL, (before + count).to_string()).ok()?;
        let this = Self { before };
        (size()? >= before + count).then_some(this)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Err(error) = fs::write(POOL, self.before.to_string()) {
            println!("{POOL} keeps the pages of this test: {error}");
        }
    }
}

fn size() -> Option<u64> {
    fs::read_to_string(POOL).ok()?.trim().parse().ok()
}

/// Returns a table that maps the first `len` bytes of the file at address 0.
fn table(file: &File, len: u64) -> DmaTable {
    let table = DmaTable::new("huge", 1, MapRules::share(1));
    table.set_bus_master(true);
    let file = file.try_clone().expect("another descriptor");
    let range = DmaRange {
        iova: 0,
        size: len,
        offset: 0,
        readable: true,
        writable: true,
        file: Some(file),
    };
    table.map(range).expect("map");
    table
}

#[test]
fn huge_pages_are_guest_memory_and_their_loss_is_a_fault() {
    let Some(_pool) = Pool::new(4) else {
        println!("skipped: this machine gives this user no huge pages");
        return;
    };
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB;
    let file = File::from(memfd_create("huge", flags).expect("file of huge pages"));
    file.set_len(2 * HUGE).expect("length");
    let table = table(&file, 2 * HUGE);
    // Across the border of the two pages.
    let data: Vec<u8> = (0..HUGE).map(|at| (at % 251) as u8).collect();
    table.view(Lane::SHARED).write(HUGE / 2, &data).expect("write");
    let mut back = vec![0; data.len()];
    table.view(Lane::SHARED).read(HUGE / 2, &mut back).expect("read");
    assert!(back == data);
    // A page that was punched out of the file is empty when it is used again, as with other memory.
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, hole, HUGE, HUGE).expect("hole");
    table.view(Lane::SHARED).read(HUGE, &mut back[..8]).expect("a new page");
    assert_eq!(back[..8], [0; 8]);
    // Behind the end of the file no page can be allocated.
    file.set_len(HUGE).expect("truncate");
    table.view(Lane::SHARED).read(HUGE, &mut back[..8]).expect_err("a read behind the file's end");
    assert!(table.has_lost());
}
