//! Processes that fork while they use the device.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::child::{Child, Shared};
use crate::loopback::{LEN, Own};
use vrnic_verbs::context::Context;
use vrnic_verbs::device_memory::DeviceMemory;
use vrnic_verbs::memory::Mr;
use vrnic_verbs::memory::buffer::Buffer;
use vrnic_verbs::model::access;

/// Number of messages of each part.
const MESSAGES: u64 = 50;
/// Number of allocations of each thread.
const ROUNDS: u32 = 500;
/// Bytes of a page.
const PAGE: usize = 4096;
/// Time limit for a step of the child.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Stream of the bytes that the memory contains when the process forks.
const BEFORE: u64 = 7;
/// Stream of the bytes that the child writes.
const CHILDS: u64 = 8;

/// The steps that parent and child report to each other.
#[derive(Clone, Copy)]
struct Steps(Shared);

impl Steps {
    fn word(&self) -> &AtomicU64 {
        &self.0.words()[0]
    }

    fn reach(&self, step: u64) {
        self.word().store(step, Ordering::Release);
    }

    fn wait(&self, step: u64) -> io::Result<()> {
        let end = Instant::now() + TIMEOUT;
        while self.word().load(Ordering::Acquire) < step {
            if Instant::now() > end {
                return Err(io::Error::other(format!("step {step} is not reached")));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// Forks in several ways, and checks what parent and child see.
pub(crate) fn run() -> Result<()> {
    ensure!(
        !vrnic_verbs::context::fork_needs_care(),
        "the kernel does not copy pinned pages at fork"
    );
    memory_is_the_parents().context("memory of a region after fork")?;
    println!("ok a child has a copy, the device stays with the parent");
    memory_beside_is_the_childs().context("memory next to a region after fork")?;
    println!("ok a child has the memory next to a region, and the region stays the parent's");
    end_of_a_child().context("a child that ends")?;
    println!("ok the end of a child leaves the parent's objects");
    objects_of_a_child().context("objects of a child")?;
    println!("ok a child uses a context that was opened before");
    killed_child().context("a killed child")?;
    println!("ok the parent goes on when a child is killed at work");
    memory_of_the_device().context("device memory")?;
    println!("ok device memory that is freed can be had again at once");
    Ok(())
}

/// Tests to which process the pages belong after the process has forked, while both processes
/// write.
fn memory_is_the_parents() -> Result<()> {
    let context = Context::open(None)?;
    let info = context.info()?;
    let own = Own::new(&context, &info)?;
    own.write(BEFORE)?;
    let steps = Steps(Shared::new(1)?);
    let child = Child::fork(|| {
        // Both halves are unchanged in the child, while the parent writes to its own copy. The
        // child may write to them.
        own.expect(0, BEFORE)?;
        own.buffer.fill(0, LEN, CHILDS, 0)?;
        steps.reach(1);
        steps.wait(2)?;
        own.expect(0, CHILDS)?;
        own.expect(LEN, BEFORE)
    })?;
    // The device writes while the child does, into pages that the parent has written, and into
    // others.
    for seed in 100..100 + MESSAGES {
        own.write(seed)?;
    }
    steps.wait(1)?;
    for seed in 200..200 + MESSAGES {
        own.write(seed)?;
    }
    steps.reach(2);
    ensure!(child.wait()?.exit_status() == Some(0), "the child saw something else");
    Ok(own.destroy()?)
}

/// The region begins and ends within a page. A child has the whole pages, and writes to them, also
/// if the program has asked libibverbs to care for forks.
fn memory_beside_is_the_childs() -> Result<()> {
    vrnic_verbs::context::prepare_for_forks()?;
    let context = Context::open(None)?;
    let info = context.info()?;
    let own = Own::new(&context, &info)?;
    let memory = Buffer::new(3 * PAGE, 0)?;
    memory.fill(0, 3 * PAGE, BEFORE, 0)?;
    // From the middle of the first page to the middle of the third one.
    let half = PAGE / 2;
    let at = memory.addr() + half as u64;
    let mr = Mr::new(&own.pd, at, 2 * PAGE as u64, access::ALL)?;
    let child = Child::fork(|| {
        let is = |seed| memory.compare(0, 3 * PAGE, seed, 0).map(|wrong| wrong.is_none());
        let before = is(BEFORE)?;
        memory.fill(0, 3 * PAGE, CHILDS, 0)?;
        if before && is(CHILDS)? { Ok(()) } else { Err(io::Error::other("not its own memory")) }
    })?;
    ensure!(child.wait()?.exit_status() == Some(0), "the child has not the memory");
    // The device writes to the parent's pages, of which the child had copies.
    own.write_to(9, 2 * PAGE, (at, mr.keys().1))?;
    let wrong = memory.compare(half, 2 * PAGE, 9, 0)?;
    ensure!(wrong.is_none(), "the parent's region: {wrong:?}");
    let wrong = memory.compare(0, half, BEFORE, 0)?;
    ensure!(wrong.is_none(), "the parent's memory before the region: {wrong:?}");
    mr.destroy().map_err(|(_, error)| error)?;
    Ok(own.destroy()?)
}

/// When a child ends, in the usual way or after libibverbs has cleaned up, the inherited objects of
/// the parent stay.
fn end_of_a_child() -> Result<()> {
    let context = Context::open(None)?;
    let own = Own::new(&context, &context.info()?)?;
    for seed in 0..5 {
        let child = Child::fork(|| Ok(()))?;
        own.write(seed)?;
        ensure!(child.wait()?.exit_status() == Some(0), "the child failed");
        own.write(seed)?;
    }
    Ok(own.destroy()?)
}

/// A program may open the device and then fork, as daemons do.
fn objects_of_a_child() -> Result<()> {
    let context = Context::open(None)?;
    let info = context.info()?;
    let child = Child::fork(|| {
        let own = Own::new(&context, &info)?;
        (0..MESSAGES).try_for_each(|seed| own.write(seed))?;
        own.destroy()
    })?;
    ensure!(child.wait()?.exit_status() == Some(0), "the child failed");
    let own = Own::new(&context, &info)?;
    own.write(1)?;
    Ok(own.destroy()?)
}

/// A child is killed while it uses its own objects in the parent's context.
fn killed_child() -> Result<()> {
    let context = Context::open(None)?;
    let info = context.info()?;
    let own = Own::new(&context, &info)?;
    let steps = Steps(Shared::new(1)?);
    let child = Child::fork(|| {
        let own = Own::new(&context, &info)?;
        for seed in 0.. {
            own.write(seed)?;
            steps.reach(1);
        }
        Ok(())
    })?;
    steps.wait(1)?;
    (0..MESSAGES).try_for_each(|seed| own.write(seed))?;
    child.kill()?;
    ensure!(child.wait()?.terminating_signal() == Some(9), "the child ended by itself");
    (0..MESSAGES).try_for_each(|seed| own.write(seed))?;
    Ok(own.destroy()?)
}

/// Freed device memory can be allocated with the same handle, although a child was forked in the
/// meantime and still runs, or another thread has just freed the memory.
fn memory_of_the_device() -> Result<()> {
    let context = Context::open(None)?;
    let allocate = || DeviceMemory::new(&context, 4096, 0);
    let free = |memory: DeviceMemory| memory.destroy().map_err(|(_, error)| error);
    let memory = allocate()?;
    let steps = Steps(Shared::new(1)?);
    let child = Child::fork(|| steps.wait(1))?;
    free(memory)?;
    allocate().and_then(free).context("beside a child")?;
    steps.reach(1);
    ensure!(child.wait()?.exit_status() == Some(0), "the child failed");
    let rounds = || (0..ROUNDS).try_for_each(|_| allocate().and_then(free));
    let ended = thread::scope(|scope| {
        let threads = [(); 4].map(|()| scope.spawn(rounds));
        threads.map(|thread| thread.join().unwrap_or_else(|_| Err(io::Error::other("a panic"))))
    });
    ended.into_iter().collect::<io::Result<()>>().context("in several threads")
}
