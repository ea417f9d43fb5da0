//! The sleep of the worker, and what ends it. The worker waits for a change of one of several words
//! (`futex_waitv(2)`): one of this process, and the first word of the kick page of each device
//! file, which the plugin writes when it has rung a doorbell while the adapter sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::thread::futex;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::memory::guarded::Guarded;

/// The value of the own word while the worker is awake, and while it sleeps or is about to.
const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
/// The value of a kick page's word until the page is written. It is no number of a UAR.
const QUIET: u32 = u32::MAX;
/// Number of words for which the kernel lets a thread wait (`FUTEX_WAITV_MAX` in linux/futex.h).
const WORDS_MAX: usize = 128;
/// The sleep if there are pages for which the worker does not wait. It then looks at them as often.
const NAP: Duration = Duration::from_micros(50);

/// The kick page of a device file.
pub type Page = Arc<Guarded>;

/// What ends the worker's sleep.
#[derive(Debug, Default)]
pub struct Waker {
    own: AtomicU32,
    pages: Mutex<Vec<Page>>,
}

impl Waker {
    /// Adds a kick page. The worker must not sleep for long before it knows the page, so it is
    /// woken.
    pub fn add(&self, page: &Page) {
        self.pages.lock().push(Arc::clone(page));
        self.wake();
    }

    /// Removes a kick page.
    pub fn remove(&self, page: &Page) {
        self.pages.lock().retain(|other| !Arc::ptr_eq(other, page));
    }

    /// Wakes the worker, if it sleeps or is about to.
    pub fn wake(&self) {
        if self.own.load(Ordering::SeqCst) == ASLEEP
            && self.own.swap(AWAKE, Ordering::SeqCst) == ASLEEP
        {
            // It cannot fail: the word exists.
            let _woken = futex::wake(&self.own, futex::Flags::PRIVATE, 1);
        }
    }

    /// Begins to sleep. From now on, writes to kick pages and [`Self::wake`] end the sleep.
    /// Programs must be told afterwards that the adapters sleep, and then the caller looks for work
    /// once more.
    #[must_use]
    pub fn prepare(&self) -> Sleep<'_> {
        self.own.store(ASLEEP, Ordering::SeqCst);
        let pages = self.pages.lock().clone();
        for word in pages.iter().filter_map(|page| page.word32(0)) {
            word.store(QUIET, Ordering::SeqCst);
        }
        Sleep { waker: self, pages }
    }
}

/// A sleep that is about to begin. It ends when this is dropped.
#[derive(Debug)]
pub struct Sleep<'a> {
    waker: &'a Waker,
    pages: Vec<Page>,
}

impl Sleep<'_> {
    /// Sleeps until it is ended, or for this time.
    pub fn wait(&self, most: Duration) {
        let words = self.pages.iter().filter_map(|page| page.word32(0));
        let all: Vec<_> = [waiter(&self.waker.own, AWAKE ^ ASLEEP, futex::WaitFlags::PRIVATE)]
            .into_iter()
            .chain(words.map(|word| waiter(word, QUIET, futex::WaitFlags::empty())))
            .collect();
        let (known, most) = match all.get(..WORDS_MAX) {
            Some(first) if all.len() > WORDS_MAX => (first, most.min(NAP)),
            _ => (&all[..], most),
        };
        let none = futex::WaitvFlags::empty();
        let end = after(most);
        if futex::waitv(known, none, Some(&end), ClockId::Monotonic)
            == Err(rustix::io::Errno::NOSYS)
        {
            // Before Linux 5.16.
            std::thread::sleep(most.min(NAP));
        }
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        self.waker.own.store(AWAKE, Ordering::SeqCst);
    }
}

/// Returns a word to wait for as long as it has this value.
fn waiter(word: &AtomicU32, value: u32, flags: futex::WaitFlags) -> futex::Wait {
    let mut wait = futex::Wait::new();
    wait.val = value.into();
    wait.uaddr = futex::WaitPtr::new(word.as_ptr().cast());
    wait.flags = futex::WaitFlags::SIZE_U32 | flags;
    wait
}

/// Returns the time after this duration.
fn after(duration: Duration) -> Timespec {
    let now = clock_gettime(ClockId::Monotonic);
    Timespec::try_from(duration).ok().and_then(|later| now.checked_add(later)).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use vrnic_queues::mapping::Mapping;

    use super::*;

    const LONG: Duration = Duration::from_secs(100);

    fn page() -> Page {
        let page = Mapping::anonymous(4096).and_then(Guarded::new);
        Arc::new(page.expect("memory"))
    }

    #[test]
    fn a_wake_between_the_begin_of_the_sleep_and_the_wait_is_not_lost() {
        let waker = Waker::default();
        let sleep = waker.prepare();
        waker.wake();
        let start = Instant::now();
        sleep.wait(LONG);
        assert!(start.elapsed() < LONG);
    }

    #[test]
    fn the_same_kick_ends_each_sleep() {
        let (waker, page) = (Waker::default(), page());
        waker.add(&page);
        for _ in 0..3 {
            let (sleep, start) = (waker.prepare(), Instant::now());
            page.write_register(7);
            sleep.wait(LONG);
            assert!(start.elapsed() < LONG);
        }
    }

    #[test]
    fn a_kick_wakes_a_thread_that_sleeps() {
        let (waker, pages) = (Waker::default(), [page(), page()]);
        pages.iter().for_each(|page| waker.add(page));
        thread::scope(|scope| {
            let start = Instant::now();
            let sleeper = scope.spawn(|| waker.prepare().wait(LONG));
            let word = pages[1].word32(0).expect("inside");
            while !sleeper.is_finished() {
                word.store(3, Ordering::SeqCst);
                let _woken = futex::wake(word, futex::Flags::empty(), 1);
            }
            assert!(start.elapsed() < LONG);
        });
    }

    #[test]
    fn more_pages_than_the_kernel_waits_for_are_looked_at_often() {
        let waker = Waker::default();
        (0..WORDS_MAX).for_each(|_| waker.add(&page()));
        let start = Instant::now();
        waker.prepare().wait(LONG);
        assert!(start.elapsed() < LONG);
    }
}
