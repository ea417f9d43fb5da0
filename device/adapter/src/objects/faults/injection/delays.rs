//! Events, interrupts and commands that rules delay or lose.

use std::sync::atomic::Ordering;

use vrnic_abi::eq::Kind;
use vrnic_abi::{Eqn, Qpn};
use vrnic_faults::{Action, Opcode, Site, Subject};
use vrnic_packet::Nanos;

use super::{Here, Injection, MAX_LATE};
use crate::objects::faults::trace::Step;

/// An event that is written later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DelayedEvent {
    due: Nanos,
    /// The event queue.
    pub(crate) eqn: Eqn,
    pub(crate) kind: Kind,
    pub(crate) id: u32,
}

/// An event queue, and its vector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventPlace {
    pub(crate) eqn: Eqn,
    pub(crate) vector: u16,
}

/// An interrupt that is raised later.
#[derive(Clone, Copy, Debug)]
pub(super) struct DelayedInterrupt {
    due: Nanos,
    vector: u16,
}

/// A command that is executed later.
#[derive(Clone, Copy, Debug)]
pub(super) struct DelayedCommand {
    index: u32,
    due: Nanos,
}

/// The fate of an admin command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandFate {
    /// The command is executed.
    Runs,
    /// The command is executed later.
    Waits,
    /// The command fails with this status.
    Fails(vrnic_abi::admin::Status),
    /// The command has no answer.
    Lost,
}

/// The things whose time has come.
#[derive(Debug, Default)]
pub(crate) struct Due {
    pub(crate) events: Vec<DelayedEvent>,
    /// The vectors of interrupts.
    pub(crate) vectors: Vec<u16>,
    /// True if an admin command is to be executed.
    pub(crate) command: bool,
    /// True if anything else waits.
    pub(crate) more: bool,
}

impl Injection {
    /// Returns whether an event is not written now.
    #[cold]
    pub(crate) fn takes_event(&self, here: Here<'_>, to: EventPlace, kind: Kind, id: u32) -> bool {
        let EventPlace { eqn, vector } = to;
        let qpn = Qpn::new(if kind.is_of_qp() { id } else { 0 });
        let (opcode, number) = (Some(Opcode::Event(kind)), kind.is_of_cq().then_some(id));
        let subject = Subject { opcode, number, ..here.of_qp(Site::Event, qpn) };
        let held = match self.hit(&subject, here.now) {
            Some(Action::DropEvent) => true,
            Some(Action::DelayEvent(by)) => {
                let event = DelayedEvent { due: here.now.plus(by), eqn, kind, id };
                self.wait(|waiting| push(&mut waiting.events, event));
                true
            }
            _ => false,
        };
        self.trace.event(here.now, Step::Event { kind, id, eqn, held }, vector);
        held
    }

    /// Returns whether an interrupt is not raised now.
    #[cold]
    pub(crate) fn takes_interrupt(&self, here: Here<'_>, vector: u16) -> bool {
        let number = Some(vector.into());
        let subject = Subject { number, ..here.subject(Site::Interrupt) };
        let held = match self.hit(&subject, here.now) {
            Some(Action::DropInterrupt) => true,
            Some(Action::DelayInterrupt(by)) => {
                let late = DelayedInterrupt { due: here.now.plus(by), vector };
                self.wait(|waiting| push(&mut waiting.interrupts, late));
                true
            }
            _ => false,
        };
        self.trace.interrupt(here.now, vector, held);
        held
    }

    /// Decides on the admin command with this index.
    #[cold]
    pub(crate) fn command(
        &self,
        here: Here<'_>,
        index: u32,
        opcode: vrnic_abi::admin::Opcode,
    ) -> CommandFate {
        let known = self.waiting.lock().command.filter(|known| known.index == index);
        if let Some(DelayedCommand { due, .. }) = known {
            return if here.now < due { CommandFate::Waits } else { self.run_late() };
        }
        let opcode = Some(Opcode::Command(opcode));
        let subject = Subject { opcode, ..here.subject(Site::Command) };
        match self.hit(&subject, here.now) {
            Some(Action::FailCommand(status)) => CommandFate::Fails(status),
            Some(Action::DropCommand) => CommandFate::Lost,
            Some(Action::DelayCommand(by)) => {
                let late = DelayedCommand { index, due: here.now.plus(by) };
                self.wait(|waiting| waiting.command = Some(late));
                CommandFate::Waits
            }
            _ => CommandFate::Runs,
        }
    }

    fn run_late(&self) -> CommandFate {
        self.waiting.lock().command = None;
        CommandFate::Runs
    }

    /// Forgets a command that was delayed, because it is executed.
    pub(crate) fn forget_command(&self) {
        if self.any.load(Ordering::Relaxed) {
            self.waiting.lock().command = None;
        }
    }

    /// Takes what is due.
    pub(crate) fn take_due(&self, now: Nanos) -> Due {
        if !self.any.load(Ordering::Relaxed) {
            return Due::default();
        }
        let mut waiting = self.waiting.lock();
        let mut due = Due::default();
        due.events.extend(waiting.events.extract_if(.., |event| event.due <= now));
        let interrupts = waiting.interrupts.extract_if(.., |late| late.due <= now);
        due.vectors.extend(interrupts.map(|late| late.vector));
        due.command = waiting.command.is_some_and(|late| late.due <= now);
        due.more = !waiting.events.is_empty()
            || !waiting.interrupts.is_empty()
            || waiting.command.is_some()
            || !waiting.pauses.is_empty();
        due
    }
}

/// Adds to a list unless it is full.
fn push<T>(list: &mut Vec<T>, item: T) {
    if list.len() < MAX_LATE {
        list.push(item);
    }
}
