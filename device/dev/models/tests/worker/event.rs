//! The count that a worker waits for. In the daemon, the kernel keeps it.

use std::io;
use std::time::Duration;

use loom::sync::{Condvar, Mutex};

#[derive(Debug)]
pub struct Event {
    count: Mutex<u64>,
    stepped: Condvar,
}

impl Event {
    #[allow(clippy::unnecessary_wraps, reason = "the kernel's may fail")]
    pub fn new() -> io::Result<Self> {
        Ok(Self { count: Mutex::new(0), stepped: Condvar::new() })
    }

    pub fn step(&self) {
        *self.count.lock().expect("count") += 1;
        self.stepped.notify_all();
    }

    pub fn take(&self) {
        *self.count.lock().expect("count") = 0;
    }

    /// Waits for as long as it takes, unless the limit is zero.
    pub fn wait(&self, limit: Duration) -> bool {
        let mut count = self.count.lock().expect("count");
        while *count == 0 && !limit.is_zero() {
            count = self.stepped.wait(count).expect("count");
        }
        *count != 0
    }
}
