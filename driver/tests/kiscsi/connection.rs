// SPDX-License-Identifier: GPL-2.0
//! A connection in the full feature phase: the commands that the target executes, and its PDUs.

use core::{mem, ptr::NonNull};

use kernel::{
    new_condvar, new_mutex, new_spinlock_irq,
    prelude::*,
    sync::{Arc, CondVar, Mutex, SpinLockIrq},
    time::Jiffies,
};

use crate::{
    bindings,
    event::{Event, Owner},
    link::{COMMANDS, CONTROLS, Link},
    login::Terms,
    pdu::{self, FINAL, Header, NO_TAG, UNDERFLOW, WITH_STATUS, at, is_before, request, response},
    scsi::{Command, End},
};

/// Longest time until the target has got a command, and until it has answered a request about one.
const TIMEOUT_MS: u32 = 10_000;
/// The bits of a SCSI Command for the direction of its data.
const READ: u8 = 0x40;
const WRITE: u8 = 0x20;
/// The attribute of a command that may be executed in any order.
const SIMPLE: u8 = 1;
/// The function ABORT TASK.
const ABORT_TASK: u8 = 1;
/// Answers to it: it was aborted, or the target does not have it.
const COMPLETE: u8 = 0;
const NO_TASK: u8 = 1;
/// A bit for each place of other PDUs.
const ALL_CONTROLS: u32 = (1 << CONTROLS) - 1;
/// The task tags of requests about tasks. A tag of the adapter has a smaller index.
const TASK_TAG: u32 = 0xffff_fff0;

/// The place of a command.
#[derive(Default)]
struct Slot {
    command: Option<Command>,
    /// The Command ID.
    id: u32,
    /// The number of the command.
    cmd_sn: u32,
    lun: [u8; 8],
    /// The task tag, when the target has got the command.
    tag: Option<u32>,
}

struct State {
    /// True if the link may be closed at any time.
    is_over: bool,
    cmd_sn: u32,
    max_cmd_sn: u32,
    exp_stat_sn: u32,
    slots: KVec<Slot>,
    /// True if a command was refused, so that the send queue executes nothing.
    is_stopped: bool,
    /// Places of other PDUs that are free, a bit each, and those that are not posted.
    free: u32,
    kept: u32,
    /// The answer to the request about a task.
    answer: Option<u8>,
    /// The target has answered the request to end the session.
    is_logged_out: bool,
}

#[pin_data]
pub(crate) struct Connection {
    link: Arc<Link>,
    #[pin]
    state: SpinLockIrq<State>,
    /// Something has changed for which a task may wait.
    #[pin]
    changed: CondVar,
    /// Held by the task whose request about a task is under way.
    #[pin]
    tasks: Mutex<()>,
    /// Held while completions are handled.
    #[pin]
    polling: Mutex<()>,
}

impl Connection {
    /// Returns the connection of a link, to which the socket was given.
    pub(crate) fn new(link: Arc<Link>, terms: &Terms) -> Result<Arc<Self>> {
        let mut slots = KVec::with_capacity(COMMANDS, GFP_KERNEL)?;
        for _ in 0..COMMANDS {
            slots.push(Slot::default(), GFP_KERNEL)?;
        }
        let state = State {
            is_over: false,
            cmd_sn: terms.cmd_sn,
            max_cmd_sn: terms.max_cmd_sn,
            exp_stat_sn: terms.exp_stat_sn,
            slots,
            is_stopped: false,
            free: ALL_CONTROLS,
            kept: 0,
            answer: None,
            is_logged_out: false,
        };
        Arc::pin_init(
            pin_init!(Self {
                link,
                state <- new_spinlock_irq!(state, "kiscsi::Connection"),
                changed <- new_condvar!("kiscsi::Connection"),
                tasks <- new_mutex!((), "kiscsi::Connection"),
                polling <- new_mutex!((), "kiscsi::Connection"),
            }),
            GFP_KERNEL,
        )
    }

    /// Sends a command. Can be called in any context.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a command that is not possible; `EBUSY`, `ENOMEM` or `ENOTCONN` for one that is
    /// to be tried again.
    ///
    /// # Safety
    ///
    /// The host must have got the command just now.
    pub(crate) unsafe fn queue(&self, raw: NonNull<bindings::kiscsi_cmnd>, index: usize) -> Result {
        let mut state = self.state.lock();
        let state = &mut *state;
        if state.is_over {
            return Err(ENOTCONN);
        }
        if state.is_stopped || is_before(state.max_cmd_sn, state.cmd_sn) {
            return Err(EBUSY);
        }
        let slot = state.slots.get_mut(index).ok_or(EINVAL)?;
        if slot.command.is_some() {
            return Err(EBUSY);
        }
        // SAFETY: the caller promises that the host has got it just now; the place of the list is
        // free.
        let (command, io) = unsafe { Command::map(raw, self.link.list(index)?) }?;
        let direction = if io.reads { READ } else { 0 } | if io.writes { WRITE } else { 0 };
        let header = Header::new(request::SCSI_COMMAND, FINAL | direction | SIMPLE)
            .put(at::LUN, &io.lun)
            .put_word(at::SECOND_TAG, io.length)
            .put_word(at::NUMBER, state.cmd_sn)
            .put_word(at::EXPECTED, state.exp_stat_sn)
            .put(at::MAX, &io.cdb);
        // SAFETY: the link is open as long as `is_over` is false, which the lock protects. The
        // place is free, and the pages stay mapped as long as `command` is.
        let id = unsafe { self.link.command(index, &header, &io) }?;
        *slot = Slot { command: Some(command), id, cmd_sn: state.cmd_sn, lun: io.lun, tag: None };
        state.cmd_sn = state.cmd_sn.wrapping_add(1);
        Ok(())
    }

    /// Handles the completions that there are. Returns whether the connection is over.
    pub(crate) fn poll(&self) -> bool {
        let _polling = self.polling.lock();
        let mut is_over = false;
        self.link.poll(|event| match event {
            Event::Received { index, len, of } => {
                is_over |= self.take(index, len, of).is_err() || self.link.receive(index).is_err();
            }
            Event::Sent { index, tag } => {
                if let Some(slot) = self.state.lock().slots.get_mut(index) {
                    slot.tag = Some(tag);
                }
                self.changed.notify_all();
            }
            Event::Refused { index, check } => {
                pr_info!("the adapter has refused command {index}: check {check}\n");
                self.stop_behind(index);
                self.end_one(index, End::Error);
            }
            Event::Flushed { index } => self.end_one(index, End::Again),
            Event::Left { index } => self.state.lock().free |= 1 << index,
            Event::Kept { index } => self.state.lock().kept |= 1 << index,
            Event::Ended => is_over = true,
        });
        is_over || self.resume().is_err()
    }

    /// Stops sending, because the command of a place was refused. Its number, and those of the
    /// commands after it, are free again.
    fn stop_behind(&self, index: usize) {
        let mut state = self.state.lock();
        let Some(slot) = state.slots.get(index) else { return };
        state.cmd_sn = slot.cmd_sn;
        state.is_stopped = true;
    }

    /// Ends the command of a place.
    fn end_one(&self, index: usize, how: End<'_>) {
        let command =
            self.state.lock().slots.get_mut(index).and_then(|slot| mem::take(slot).command);
        self.changed.notify_all();
        if let Some(command) = command {
            command.end(how);
        }
    }

    /// Continues after a command that was refused, when nothing is posted that is to be flushed.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the connection is over, and those of the driver.
    fn resume(&self) -> Result {
        let mut state = self.state.lock();
        if state.is_over {
            return Err(ENOTCONN);
        }
        let is_posted = |slot: &Slot| slot.command.is_some() && slot.tag.is_none();
        let posted = !(state.free | state.kept) & ALL_CONTROLS;
        if !state.is_stopped || posted != 0 || state.slots.iter().any(is_posted) {
            return Ok(());
        }
        drop(state);
        self.link.resume()?;
        state = self.state.lock();
        state.is_stopped = false;
        let kept = mem::take(&mut state.kept);
        // SAFETY: the link is open as long as `is_over` is false, which the lock protects. The PDUs
        // are not posted.
        (0..CONTROLS)
            .filter(|place| kept & 1 << place != 0 && !state.is_over)
            .try_for_each(|place| unsafe { self.link.control(place) })
    }

    /// Takes a PDU.
    ///
    /// # Errors
    ///
    /// `EPROTO` if the target says that the session ends.
    fn take(&self, index: usize, len: usize, of: Option<Owner>) -> Result {
        let mut header = Header([0; pdu::LEN]);
        self.link.received(index, 0, &mut header.0)?;
        self.count(&header);
        match header.opcode() {
            response::SCSI_RESPONSE => self.respond(index, len, &header, of)?,
            response::DATA_IN if header.flags() & WITH_STATUS != 0 => {
                self.respond(index, len, &header, of)?;
            }
            response::DATA_IN | response::R2T => {}
            response::NOP_IN => self.answer_ping(&header)?,
            response::TASK_MANAGEMENT => {
                self.state.lock().answer = Some(header.0[2]);
                self.changed.notify_all();
            }
            response::LOGOUT => {
                self.state.lock().is_logged_out = true;
                self.changed.notify_all();
            }
            response::ASYNC => {
                pr_info!("the target sends event {}\n", header.0[36]);
                // From 1 to 3 the session or the connection ends.
                if matches!(header.0[36], 1..=3) {
                    return Err(EPROTO);
                }
            }
            other => pr_info!("an unknown PDU has arrived: {other:#x}\n"),
        }
        Ok(())
    }

    /// Takes the sequence numbers of a PDU.
    fn count(&self, header: &Header) {
        let has_number = match header.opcode() {
            response::DATA_IN => header.flags() & WITH_STATUS != 0,
            response::R2T => false,
            response::NOP_IN => header.word(at::TASK_TAG) != NO_TAG,
            _ => true,
        };
        let max = header.word(at::MAX);
        let mut state = self.state.lock();
        if has_number {
            state.exp_stat_sn = header.word(at::NUMBER).wrapping_add(1);
        }
        if is_before(state.max_cmd_sn, max) {
            state.max_cmd_sn = max;
        }
    }

    /// Ends the command of a response.
    fn respond(&self, index: usize, len: usize, header: &Header, of: Option<Owner>) -> Result {
        let Some(Owner { id, over: true }) = of else { return Ok(()) };
        let command = {
            let mut state = self.state.lock();
            let mut slots = state.slots.iter_mut();
            let slot = slots.find(|slot| slot.command.is_some() && slot.id == id);
            slot.and_then(|slot| mem::take(slot).command)
        };
        self.changed.notify_all();
        let Some(command) = command else { return Ok(()) };
        let is_response = header.opcode() == response::SCSI_RESPONSE;
        if is_response && header.0[2] != 0 {
            command.end(End::Error);
            return Ok(());
        }
        let mut bytes = [0; SENSE_MAX + 2];
        let start = pdu::LEN + header.additional_len();
        // The data of a Data-In is in the buffer of the command.
        let count = if is_response { len.saturating_sub(start).min(bytes.len()) } else { 0 };
        let data = bytes.get_mut(..count).ok_or(EINVAL)?;
        self.link.received(index, start, data)?;
        let residual = match header.flags() & UNDERFLOW {
            0 => 0,
            _ => header.word(at::RESIDUAL),
        };
        command.end(End::Response { status: header.0[3], residual, sense: sense(data) });
        Ok(())
    }

    /// Answers a PING of the target that wants an answer.
    fn answer_ping(&self, header: &Header) -> Result {
        let tag = header.word(at::SECOND_TAG);
        if tag == NO_TAG {
            return Ok(());
        }
        let lun = header.0.get(at::LUN..at::TASK_TAG).unwrap_or_default();
        let answer = Header::new(request::NOP_OUT, FINAL)
            .put(at::LUN, lun)
            .put_word(at::TASK_TAG, NO_TAG)
            .put_word(at::SECOND_TAG, tag);
        self.control(answer)
    }

    /// Sends another PDU, with the numbers that it needs.
    fn control(&self, header: Header) -> Result {
        let mut state = self.state.lock();
        if state.is_over {
            return Err(ENOTCONN);
        }
        let index = state.free.trailing_zeros();
        let place = usize::try_from(index)?;
        if place >= CONTROLS {
            return Err(EBUSY);
        }
        let header =
            header.put_word(at::NUMBER, state.cmd_sn).put_word(at::EXPECTED, state.exp_stat_sn);
        self.link.store(place, &header)?;
        state.free &= !(1 << index);
        if state.is_stopped {
            state.kept |= 1 << index;
            return Ok(());
        }
        // SAFETY: the link is open as long as `is_over` is false, which the lock protects. The
        // place was free.
        unsafe { self.link.control(place) }
    }

    /// Ends a command that takes too long. On success the adapter does not use its data any more,
    /// and this module does not use the command.
    pub(crate) fn abort(&self, raw: NonNull<bindings::kiscsi_cmnd>, index: usize) -> Result {
        self.forget(raw, index)?;
        // A response may be about to end it.
        drop(self.polling.lock());
        Ok(())
    }

    /// Lets the target and the adapter forget a command.
    fn forget(&self, raw: NonNull<bindings::kiscsi_cmnd>, index: usize) -> Result {
        let _tasks = self.tasks.lock();
        let is_here = |state: &State| {
            let command = state.slots.get(index).and_then(|slot| slot.command.as_ref());
            command.is_some_and(|command| command.is(raw))
        };
        // The tag is known when the target has the command.
        let found = self.wait(|state| match state.slots.get(index) {
            Some(slot) if is_here(state) => slot.tag.map(|tag| Some((tag, slot.cmd_sn, slot.lun))),
            _ => Some(None),
        })?;
        // The command may have ended meanwhile.
        let Some((tag, cmd_sn, lun)) = found else { return Ok(()) };
        self.state.lock().answer = None;
        let header = Header::new(request::TASK_MANAGEMENT, FINAL | ABORT_TASK)
            .put(at::LUN, &lun)
            .put_word(at::TASK_TAG, TASK_TAG)
            .put_word(at::SECOND_TAG, tag)
            .put_word(at::MAX, cmd_sn);
        self.control(header)?;
        let answer = self.wait(|state| state.answer)?;
        pr_info!("the target answers {answer} to the abort of command {index}\n");
        if answer != COMPLETE && answer != NO_TASK {
            return Err(EIO);
        }
        match self.link.end_command(tag) {
            Ok(()) | Err(ENOENT) => {}
            Err(error) => return Err(error),
        }
        let mut state = self.state.lock();
        let command = match is_here(&state) {
            true => state.slots.get_mut(index).and_then(|slot| mem::take(slot).command),
            false => None,
        };
        drop(state);
        drop(command);
        Ok(())
    }

    /// Waits until `find` finds something.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT`; `ENOTCONN` if the connection is over.
    fn wait<R>(&self, find: impl Fn(&State) -> Option<R>) -> Result<R> {
        let mut left: Jiffies = kernel::time::msecs_to_jiffies(TIMEOUT_MS);
        let mut state = self.state.lock();
        loop {
            if let Some(found) = find(&state) {
                return Ok(found);
            }
            if state.is_over {
                return Err(ENOTCONN);
            }
            if left == 0 {
                return Err(ETIMEDOUT);
            }
            left = remaining(self.changed.wait_interruptible_timeout(&mut state, left))?;
        }
    }

    /// Ends the session: the target is asked to forget it.
    pub(crate) fn log_out(&self) {
        let header = Header::new(request::LOGOUT, FINAL).put_word(at::TASK_TAG, TASK_TAG);
        let asked = self.control(header);
        let _ = asked.and_then(|()| self.wait(|state| state.is_logged_out.then_some(())));
        self.link.report();
    }

    /// Ends the connection, and the commands that have not ended.
    pub(crate) fn end(&self, how: End<'_>) {
        self.state.lock().is_over = true;
        self.changed.notify_all();
        self.link.close();
        // From here on the adapter uses no data of commands.
        (0..COMMANDS).for_each(|index| self.end_one(index, how));
    }
}

/// Bytes of sense data.
const SENSE_MAX: usize = 96;

/// Returns the sense data in the data of a response, which begins with its length.
fn sense(data: &[u8]) -> &[u8] {
    let Some((len, rest)) = data.split_first_chunk() else { return &[] };
    let len = usize::from(u16::from_be_bytes(*len)).min(rest.len());
    rest.get(..len).unwrap_or_default()
}

fn remaining(result: kernel::sync::CondVarTimeoutResult) -> Result<Jiffies> {
    use kernel::sync::CondVarTimeoutResult::{Signal, Timeout, Woken};
    match result {
        Woken { jiffies } => Ok(jiffies),
        Timeout => Ok(0),
        Signal { .. } => Err(EINTR),
    }
}
