//! Memory whose pages lie in no order, as the memory of programs in a guest does after some time.

use anyhow::anyhow;
use vrnic_abi::admin::{Pages, RegMr, command};
use vrnic_testdriver::qp::ALL;
use vrnic_testdriver::vmm::vfio::Endpoint;

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;

/// The pages of an endpoint's buffer in another order, with a key of their own.
pub(crate) struct Scattered {
    /// Offsets of the pages in the buffer.
    pub(crate) places: Vec<usize>,
    pub(crate) key: u32,
}

impl Scattered {
    /// Registers `len` bytes of the buffer at its own address with its pages in random order.
    ///
    /// # Errors
    /// When the adapter refuses.
    pub(crate) fn new(end: &Endpoint, len: usize, seed: u64) -> anyhow::Result<Self> {
        let mut places: Vec<usize> = (0..len).step_by(PAGE).collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut places);
        let page = |place: &usize| (end.buffer + *place as u64).to_le_bytes();
        let list: Vec<u8> = places.iter().flat_map(page).collect();
        let ram = end.guest.ram();
        let table = ram.alloc(list.len() as u64);
        ram.write(table, &list);
        let pages = Pages::new(table, 12, 1);
        let region = RegMr::new(end.pdn, ALL, end.buffer, len as u64, pages);
        let key = end.guest.command::<command::RegMr>(&region);
        let key = key.map_err(|refused| anyhow!("REG_MR of scattered pages: {refused:?}"))?;
        Ok(Self { places, key: key.get() })
    }
}
