//! Shows: direct: memory behind the VMM: what is announced, handed over, refused, or never answered

use std::sync::atomic::AtomicU8;

use vrnic_abi::GuestAddr;
use vrnic_adapter::host::Transfers;

use super::wait::MAX_WAIT;
use super::*;

/// A VMM whose memory has another content at each read.
#[derive(Debug, Default)]
struct Vmm {
    content: AtomicU8,
    fails: Mutex<Option<Unanswered>>,
    written: Mutex<Vec<(u64, Vec<u8>)>>,
    /// The addresses of writes that it has not answered.
    owes: Mutex<Vec<u64>>,
}

impl Messages for Vmm {
    fn read(&self, _addr: u64, len: usize, _end: &End) -> Result<Vec<u8>, Unanswered> {
        let content = self.content.fetch_add(1, Ordering::SeqCst);
        self.fails.lock().map_or_else(|| Ok(vec![content; len]), Err)
    }

    fn write(&self, addr: u64, bytes: &[u8], end: &End) -> Result<(), Unanswered> {
        if end.is_set() {
            return Err(Unanswered::Ended);
        }
        self.written.lock().push((addr, bytes.to_vec()));
        self.fails.lock().map_or(Ok(()), Err)
    }

    fn is_owed(&self, addr: u64, len: u64) -> bool {
        self.owes.lock().iter().any(|at| (addr..addr + len).contains(at))
    }

    fn disconnect(&self) {}
}

fn connected() -> (ExternalMemory, Arc<Vmm>) {
    let (external, vmm) = (ExternalMemory::default(), Arc::new(Vmm::default()));
    external.connect(Arc::clone(&vmm) as Arc<dyn Messages>);
    (external, vmm)
}

/// Executes all transfers that wait, as the thread does. Returns their number.
fn work(external: &ExternalMemory) -> usize {
    let mut count = 0;
    loop {
        let job = external.state.lock().take();
        let Some(job) = job else { return count };
        external.finish(&job, job.run());
        count += 1;
    }
}

/// Reads two bytes at an address.
fn read(external: &ExternalMemory, asker: u64, addr: u64) -> Option<[u8; 2]> {
    let mut bytes = [0xff; 2];
    let len = external.read(asker, 0, addr, &mut bytes)?;
    assert_eq!(len, 2);
    Some(bytes)
}

#[test]
fn bytes_are_for_one_operation_of_one_asker() {
    let (external, _vmm) = connected();
    assert_eq!(read(&external, 1, 100), None);
    assert_eq!(external.awaited(1, 100, 2), Awaited::Soon);
    assert_eq!(work(&external), 1);
    assert_eq!(read(&external, 2, 100), None, "another asker");
    assert_eq!(read(&external, 1, 100), Some([0; 2]));
    assert_eq!(read(&external, 1, 100), Some([0; 2]), "the same operation again");
    external.settle(1);
    assert_eq!(external.awaited(1, 100, 2), Awaited::Nothing);
    assert_eq!(read(&external, 1, 100), None, "the next operation");
    assert_eq!(work(&external), 2);
    assert_eq!(read(&external, 2, 100), Some([1; 2]));
    assert_eq!(read(&external, 1, 100), Some([2; 2]));
}

#[test]
fn bytes_that_were_not_used_are_not_kept() {
    let (external, _vmm) = connected();
    assert_eq!(read(&external, 1, 0), None);
    work(&external);
    external.forget_reads(1);
    assert_eq!(read(&external, 1, 0), None, "the next message");
    work(&external);
    std::thread::sleep(MAX_AGE * 2);
    external.state.lock().remove_old();
    assert_eq!(read(&external, 1, 0), None, "some time later");
}

#[test]
fn a_write_is_done_when_these_bytes_have_arrived() {
    let (external, vmm) = connected();
    assert_eq!(external.write(1, 8, b"first"), None);
    assert_eq!(external.write(1, 8, b"first"), None, "it is on its way");
    assert_eq!(work(&external), 1, "it was not sent twice");
    assert_eq!(external.write(1, 8, b"other"), None);
    assert_eq!(external.write(1, 8, b"fir"), Some(3), "a shorter part");
    assert_eq!(external.write(1, 11, b"st"), Some(2), "the rest");
    work(&external);
    assert_eq!(external.write(1, 8, b"other"), Some(5));
    let written = [(8, b"first".to_vec()), (8, b"other".to_vec())];
    assert_eq!(*vmm.written.lock(), written);
    external.settle(1);
    assert_eq!(external.write(1, 8, b"other"), None, "another message");
}

/// A guest that changes its bytes all the time cannot keep a peer's READ into such memory waiting.
#[test]
fn bytes_that_always_change_are_written_a_few_times() {
    let (external, vmm) = connected();
    let done = (0u8..100).position(|content| {
        let done = external.write(1, 8, &[content; 4]).is_some();
        work(&external);
        done
    });
    assert_eq!((done, vmm.written.lock().len()), (Some(MAX_CHANGES + 1), MAX_CHANGES + 1));
}

#[test]
fn a_failure_is_seen_once() {
    for why in [Unanswered::Refused(14), Unanswered::Wrong, Unanswered::Late, Unanswered::Closed] {
        let (external, vmm) = connected();
        assert_eq!(read(&external, 1, 0), None);
        *vmm.fails.lock() = Some(why);
        work(&external);
        assert_eq!(read(&external, 1, 0), None);
        assert_eq!(external.awaited(1, 0, 2), Awaited::Failed, "{why}");
        *vmm.fails.lock() = None;
        assert_eq!(read(&external, 1, 0), None);
        work(&external);
        assert!(read(&external, 1, 0).is_some(), "{why}: a later operation");
    }
}

/// Transfers that wait for one that is not answered would each wait as long.
#[test]
fn a_silent_vmm_fails_what_waits() {
    let (external, vmm) = connected();
    (1..=3).for_each(|asker| assert_eq!(read(&external, asker, 0), None));
    *vmm.fails.lock() = Some(Unanswered::Late);
    assert_eq!(work(&external), 1);
    for asker in 1..=3 {
        assert_eq!(external.awaited(asker, 0, 2), Awaited::Failed, "asker {asker}");
    }
    assert_eq!((external.counts().unanswered, external.counts().waiting), (1, 0));
}

#[test]
fn what_is_unmapped_fails_at_any_stage() {
    let (external, _vmm) = connected();
    for stage in 0..3 {
        assert_eq!(read(&external, 1, 4096), None);
        let job = (stage > 0).then(|| external.state.lock().take().expect("a job"));
        if let Some(job) = job.as_ref().filter(|_| stage == 2) {
            external.finish(job, job.run());
        }
        external.end_span(0, 4097);
        if let Some(job) = job.as_ref().filter(|_| stage == 1) {
            external.finish(job, job.run());
        }
        assert_eq!(read(&external, 1, 4096), None, "stage {stage}");
        assert_eq!(external.awaited(1, 4096, 2), Awaited::Failed, "stage {stage}");
    }
    assert_eq!(read(&external, 1, 4096), None);
    external.end_span(4098, 4096);
    assert_eq!(external.awaited(1, 4096, 2), Awaited::Soon, "another range");
}

#[test]
fn room_is_bounded() {
    let (external, _vmm) = connected();
    let mut piece = vec![0; MAX_TRANSFER];
    for nth in 0..100 {
        assert_eq!(external.read(1, 0, nth << 20, &mut piece), None);
    }
    assert_eq!(external.counts().waiting, (MAX_BYTES / MAX_TRANSFER) as u64, "one asker");
    assert_eq!(external.awaited(1, 99 << 20, 2), Awaited::Soon, "the others wait");
    for asker in 1..1000 {
        assert_eq!(read(&external, asker, 1 << 40), None);
    }
    assert_eq!(external.state.lock().askers.len(), MAX_ASKERS, "all askers");
    assert_eq!(external.awaited(999, 1 << 40, 2), Awaited::Soon, "the others wait");
    work(&external);
    std::thread::sleep(MAX_AGE * 2);
    assert_eq!(read(&external, 999, 1 << 40), None);
    work(&external);
    assert!(read(&external, 999, 1 << 40).is_some(), "what nothing has used makes room");
}

#[test]
fn a_wait_ends_with_the_write_or_a_reset() {
    let (external, _vmm) = connected();
    assert_eq!(external.write(1, 0, b"sent"), None);
    assert_eq!(external.write(2, 0, b"wait"), None);
    for ends in [false, true] {
        let job = external.state.lock().take().expect("a job");
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| external.wait_for_transfers(&Transfers::All));
            std::thread::sleep(Duration::from_millis(200));
            assert!(!waiter.is_finished(), "a write is with the VMM");
            if ends {
                external.end_all();
            } else {
                external.finish(&job, job.run());
            }
            assert!(waiter.join().expect("a result"));
        });
        assert!(external.state.lock().take().is_none(), "what waited was removed");
        assert_eq!(external.write(3, 0, b"next"), None);
    }
}

/// A command that removes a region waits for the read that is with the VMM. Later ones do not read
/// the region, so the wait ends even if there is always another one.
#[test]
fn a_wait_includes_the_read_that_is_with_the_vmm() {
    let (external, _vmm) = connected();
    assert_eq!(read(&external, 1, 100), None);
    let job = external.state.lock().take().expect("a job");
    assert_eq!(read(&external, 2, 100), None);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| external.wait_for_transfers(&Transfers::All));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiter.is_finished(), "a read is with the VMM");
        assert_eq!(external.awaited(2, 100, 2), Awaited::Nothing, "what waited was removed");
        assert_eq!(read(&external, 3, 100), None);
        let mut state = external.state.lock();
        state.running = None;
        let next = state.take().expect("another job");
        drop(state);
        external.changed.notify_all();
        assert!(waiter.join().expect("the wait has ended"));
        external.finish(&next, next.run());
    });
    drop(job);
}

#[test]
fn what_is_announced_is_read_for_that_message_alone() {
    let (external, _vmm) = connected();
    external.announce(1, 7, 100, 50);
    external.announce(1, 7, 100, 60);
    assert_eq!(work(&external), 2, "the second one reads what is missing");
    let mut bytes = [0xff; 60];
    assert_eq!(external.read(1, 8, 100, &mut bytes), None, "another message");
    assert_eq!(external.read(1, 7, 100, &mut bytes), Some(50));
    assert_eq!(external.read(1, 7, 150, &mut bytes[50..]), Some(10));
    assert_eq!((bytes[49], bytes[50]), (0, 1));
    external.announce(2, 7, 0, 1 << 30);
    assert_eq!(external.state.lock().bytes(2), MAX_BYTES - MAX_TRANSFER, "room is left");
}

/// Messages that were announced later leave room for the one that is sent first.
#[test]
fn what_is_announced_for_the_first_message_has_more_room() {
    let (external, _vmm) = connected();
    let len = MAX_ANNOUNCED / 2;
    for message in 7..12 {
        external.announce(1, message, message << 32, len);
    }
    assert_eq!(external.state.lock().bytes(1), MAX_ANNOUNCED, "two messages");
    external.announce(1, 6, 6 << 32, len);
    assert_eq!(external.state.lock().bytes(1), MAX_ANNOUNCED + len, "and the one before them");
}

#[test]
fn what_is_handed_over_is_written_in_long_pieces() {
    let (external, vmm) = connected();
    let progress = Arc::default();
    assert!(external.hand_over(1, 8, b"one", &progress));
    assert!(external.hand_over(1, 11, b"two", &progress));
    assert!(external.hand_over(1, 20, b"far", &progress));
    assert_eq!(progress.awaited(), Awaited::Soon);
    assert!(external.ends_in() >= external.state.lock().lasting);
    assert_eq!(work(&external), 2);
    assert_eq!(progress.awaited(), Awaited::Nothing);
    let written = [(8, b"onetwo".to_vec()), (20, b"far".to_vec())];
    assert_eq!(*vmm.written.lock(), written);
    assert!(external.state.lock().askers.is_empty());
    assert_eq!(external.ends_in(), Duration::ZERO);
    let piece = vec![0; MAX_TRANSFER];
    let taken = (0..100).filter(|nth| external.hand_over(1, nth << 20, &piece, &progress)).count();
    assert_eq!(taken, MAX_BYTES / MAX_TRANSFER);
}

/// The writer learns of each event that ends a transfer before its bytes are written.
#[test]
fn what_was_handed_over_and_not_written_has_failed() {
    type End = fn(&ExternalMemory, &Vmm);
    let ends: [End; 5] = [
        |external, _| external.end_span(8, 1),
        |external, _| external.end_all(),
        |external, _| external.disconnect(),
        |external, vmm| {
            *vmm.fails.lock() = Some(Unanswered::Refused(14));
            work(external);
        },
        |external, vmm| {
            assert_eq!(read(external, 2, 0), None);
            *vmm.fails.lock() = Some(Unanswered::Late);
            let job = external.state.lock().take().expect("a job");
            external.finish(&job, job.run());
        },
    ];
    for (nth, end) in ends.into_iter().enumerate() {
        let (external, vmm) = connected();
        let progress = Arc::default();
        assert!(external.hand_over(1, 8, b"bytes", &progress));
        end(&external, &vmm);
        assert_eq!(progress.awaited(), Awaited::Failed, "end {nth}");
        assert!(!external.state.lock().askers.contains_key(&1), "end {nth}");
    }
}

/// A command that removes a region waits for bytes that an acknowledged packet has brought.
#[test]
fn a_wait_includes_what_was_handed_over() {
    let (external, vmm) = connected();
    let progress = Arc::default();
    assert!(external.hand_over(1, 8, b"bytes", &progress));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| external.wait_for_transfers(&Transfers::All));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiter.is_finished());
        assert_eq!(work(&external), 1);
        assert!(waiter.join().expect("a result"));
    });
    assert_eq!((progress.awaited(), vmm.written.lock().len()), (Awaited::Nothing, 1));
}

/// A command of one process does not end the transfers of another one.
#[test]
fn a_wait_concerns_the_named_transfers_alone() {
    let (external, vmm) = connected();
    let part = |each: &mut dyn FnMut(GuestAddr, u64)| each(GuestAddr::new(0x2000), 4096);
    let names = [Transfers::Of([2, 7]), Transfers::In(&part)];
    for names in names {
        assert_eq!(read(&external, 1, 0x1000), None);
        let job = external.state.lock().take().expect("a job");
        let [first, second, third] = [(); 3].map(|()| Arc::default());
        assert!(external.hand_over(1, 0x1fff, b"1", &first));
        assert!(external.hand_over(2, 0x2ffe, b"2", &second));
        assert!(external.hand_over(3, 0x3000, b"3", &third));
        assert_eq!(external.write(2, 0x2008, b"again"), None);
        let begun = Instant::now();
        assert!(external.wait_for_transfers(&names), "another one is with the VMM");
        assert!(begun.elapsed() >= MAX_WAIT);
        assert_eq!(second.awaited(), Awaited::Failed);
        external.finish(&job, job.run());
        assert_eq!((work(&external), vmm.written.lock().len()), (2, 2));
        assert_eq!([first.awaited(), third.awaited()], [Awaited::Nothing; 2]);
        assert!(external.wait_for_transfers(&names), "nothing is left to wait for");
        vmm.written.lock().clear();
        external.forget_reads(1);
    }
}

/// The thread that serves the VMM waits for the end of a command, so its answer cannot come.
#[test]
fn a_wait_that_begins_during_a_reset_returns_at_once() {
    let (external, _vmm) = connected();
    assert_eq!(external.write(1, 0, b"sent"), None);
    let job = external.state.lock().take().expect("a job");
    external.let_wait(false);
    external.end_all();
    assert!(external.wait_for_transfers(&Transfers::All));
    external.let_wait(true);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| external.wait_for_transfers(&Transfers::All));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiter.is_finished());
        external.finish(&job, job.run());
        assert!(waiter.join().expect("a result"));
    });
}

/// After a reset nothing that was begun before it is written.
#[test]
fn after_its_end_a_transfer_sends_nothing() {
    type Ends = fn(&ExternalMemory);
    let ends: [Ends; 3] =
        [ExternalMemory::end_all, |external| external.end_span(9, 1), ExternalMemory::disconnect];
    for end in ends {
        let (external, vmm) = connected();
        assert_eq!(external.write(1, 8, b"bytes"), None);
        let job = external.state.lock().take().expect("a job");
        end(&external);
        external.finish(&job, job.run());
        assert!(vmm.written.lock().is_empty(), "the thread had not begun to send");
        assert!(external.is_quiet());
    }
}

#[test]
fn quiet_is_what_the_vmm_has_answered() {
    let (external, vmm) = connected();
    assert_eq!(external.write(1, 8, b"bytes"), None);
    let job = external.state.lock().take().expect("a job");
    external.end_all();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| external.is_quiet());
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiter.is_finished(), "the write is with the VMM");
        vmm.owes.lock().push(8);
        external.finish(&job, Err(Unanswered::Late));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiter.is_finished(), "the VMM may still execute it");
        vmm.owes.lock().clear();
        assert!(waiter.join().expect("a result"), "its late answer");
    });
    assert_eq!(external.write(1, 8, b"bytes"), None);
    let job = external.state.lock().take().expect("a job");
    vmm.owes.lock().push(8);
    external.finish(&job, Err(Unanswered::Late));
    assert!(!external.wait_for_transfers(&Transfers::All), "it never answers");
    external.disconnect();
    assert!(external.is_quiet(), "the VMM has gone");
}
