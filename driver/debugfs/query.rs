// SPDX-License-Identifier: GPL-2.0
//! Questions to the adapter about its objects (INSPECT).

use abi::admin::{
    INSPECT_LEN_MAX,
    Inspect,
    command,
    fields::Record, //
};
use kernel::{
    device, new_mutex,
    prelude::*,
    sync::{Arc, Mutex},
};

use crate::{
    hw::ring::{Ring, RingShape},
    quiesce::Liveness,
};

/// The reader of objects, which asks the adapter for some at a time.
pub(crate) struct Inspector {
    liveness: Arc<Liveness>,
    /// The buffer for answers; its lock lets one ask at a time.
    answer: Pin<KBox<Mutex<Ring>>>,
}

impl Inspector {
    /// Creates a query for an adapter that runs. It must not be dropped before the adapter is
    /// quiet.
    pub(crate) fn new(
        device: &device::Device<device::Bound>,
        liveness: Arc<Liveness>,
    ) -> Result<Arc<Self>> {
        // One entry, as long as the longest answer.
        // CAST: log2 of a u32.
        let log_stride = INSPECT_LEN_MAX.trailing_zeros() as u8;
        let answer = Ring::new(device, RingShape { log_size: 0, log_stride })?;
        let answer = KBox::pin_init(new_mutex!(answer, "vrnic::Inspector"), GFP_KERNEL)?;
        Ok(Arc::new(Self { liveness, answer }, GFP_KERNEL)?)
    }

    /// Passes objects from number `from` on to `each`, as many as one answer contains. Returns the
    /// number to continue from, or [`abi::admin::NONE`].
    ///
    /// # Errors
    ///
    /// `EIO` if the number to continue from does not increase.
    pub(crate) fn list<R: Record>(&self, from: u32, each: impl FnMut(R) -> Result) -> Result<u32> {
        match self.ask(from, INSPECT_LEN_MAX, each)? {
            next if next > from => Ok(next),
            _ => Err(EIO),
        }
    }

    /// Returns the object of this number, if it is there.
    pub(crate) fn one<R: Record>(&self, number: u32) -> Result<Option<R>> {
        let mut found = None;
        let length = u32::try_from(size_of::<R>())?;
        self.ask(number, length, |record: R| {
            found = Some(record).filter(|record| record.number() == number);
            Ok(())
        })?;
        Ok(found)
    }

    fn ask<R: Record>(
        &self,
        from: u32,
        length: u32,
        mut each: impl FnMut(R) -> Result,
    ) -> Result<u32> {
        let answer = self.answer.lock();
        let params = Inspect::new(R::KIND, from, answer.dma_address(), length);
        let result = self.liveness.execute::<command::Inspect>(&params)?;
        let capacity = length as usize / size_of::<R>();
        // The adapter's answer is not trusted.
        for nth in 0..capacity.min(result.count.get() as usize) {
            each(answer.read_at(nth * size_of::<R>())?)?;
        }
        Ok(result.next.get())
    }
}
