//! One send work request, or a turn of a long one, executed against the peer's responder.

use parking_lot::MutexGuard;
use vrnic_abi::cq::Status;
use vrnic_abi::qp::{Access, Type};
use vrnic_abi::sq::Opcode;

use crate::datapath::memory_wr;
use crate::datapath::responder::{self, Refusal, There};
use crate::datapath::sgl::{Broken, Side, copy};
use crate::datapath::turn::Site;
use crate::datapath::wqe::{Segment, Send};
use crate::datapath::xrc;
use crate::host::{Host, Memory};
use crate::memory::tpt::{Denied, Message};
use crate::objects::qp::{Ended, Keys, Qp, Responder};
use crate::stats::Counter;

/// Who does what to whom.
pub(crate) struct Exchange<'e, 'a, H: Host> {
    /// The requester's function.
    pub here: &'e Site<'a, H>,
    /// The requester's QP.
    pub qp: &'e Qp<H>,
    /// The work request.
    pub send: &'e Send,
    /// Its WQE.
    pub raw: &'e [u8],
    /// The responder.
    pub there: &'e There<'a, H>,
    /// Bytes of the message that have been moved.
    pub from: u64,
    /// Up to where to move now.
    pub to: u64,
    /// The number of the message, as keys that are good for one know it.
    pub message: u64,
    /// READs and atomics that the requester may have outstanding.
    pub max_rd_atomic: u8,
    /// What the work request has done about keys so far.
    pub keys: Keys,
}

/// Why a work request could not be executed.
pub(crate) enum Stop {
    /// The requester's own fault: status and the check that failed.
    Local(Status, u32),
    /// The responder refuses.
    Remote(Refusal),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Remote(refusal)
    }
}

impl Stop {
    fn denied(denied: Denied) -> Self {
        Self::Local(denied.local_status(), denied as u32)
    }

    /// The fault of a copy whose `own` side is the requester's.
    fn broken(broken: Broken, own: Broken) -> Self {
        if broken == own {
            Self::denied(Denied::Memory)
        } else {
            Self::Remote(Refusal::Operational)
        }
    }
}

impl<'e, 'a, H: Host> Exchange<'e, 'a, H> {
    /// Moves the bytes, and completes the peer's receive with the last ones. If these have ended a key of the
    /// peer, the receive stays open: [`Self::arrive`] is due when the key's last use has ended.
    ///
    /// # Errors
    /// Who refuses, and why.
    #[inline]
    pub(crate) fn run(
        &self,
        responder: &mut MutexGuard<'_, Responder>,
    ) -> Result<Option<Ended>, Stop> {
        if self.qp.kind == Type::XrcIni {
            self.there.act(|| xrc::choose(self.there, responder, Send::xrc_srqn(self.raw)))?;
        }
        match self.send.opcode {
            Opcode::Send | Opcode::SendImm | Opcode::SendInv | Opcode::SendCmd => {
                return self.send(responder);
            }
            Opcode::Write | Opcode::WriteImm => self.write(responder)?,
            Opcode::Read => self.read(responder)?,
            Opcode::CmpSwp | Opcode::FetchAdd => self.atomic(responder)?,
            // They are not for a peer.
            Opcode::LocalInv | Opcode::RegMr | Opcode::BindMw => {
                return Err(Stop::Local(Status::LocQpOpErr, 0));
            }
        }
        Ok(None)
    }

    /// Completes the peer's receive of a message that has ended a key.
    ///
    /// # Errors
    /// When the peer's CQ takes no entry any more.
    pub(crate) fn arrive(&self, responder: &mut Responder) -> Result<(), Stop> {
        self.complete_receive(responder, self.keys.ended)
    }

    /// The requester's regions, as its QP may use them.
    fn own(&self) -> (&'e Site<'a, H>, u32) {
        (self.here, self.qp.pdn)
    }

    fn ends(&self) -> bool {
        self.to == self.send.length
    }

    /// The requester's own memory, to be read.
    fn add_source(&self, side: &mut Side<'e>) -> Result<(), Stop> {
        if let Some(data) = self.send.inline(self.raw) {
            side.set_inline(data);
            return Ok(());
        }
        let list = (&self.send.segments, self.raw);
        side.add_list(self.own(), list, Access::empty()).map_err(Stop::denied)
    }

    /// The requester's own memory, to be written.
    fn add_sink(&self, side: &mut Side<'e>) -> Result<(), Stop> {
        let list = (&self.send.segments, self.raw);
        side.add_list(self.own(), list, Access::LOCAL_WRITE).map_err(Stop::denied)
    }

    /// The responder's memory that the work request names.
    fn add_remote(
        &self,
        side: &mut Side<'e>,
        responder: &Responder,
        need: Access,
    ) -> Result<(), Stop> {
        if !responder.access.0.contains(need) {
            return Err(Refusal::Invalid.into());
        }
        let len = u32::try_from(self.send.length).map_err(|_| Refusal::Invalid)?;
        let segment = Segment { addr: self.send.raddr, len, key: self.send.rkey };
        let user = (&self.there.site, responder::user(self.there, responder));
        self.there
            .act(|| side.add_remote(user, &segment, need, self.message))
            .map_err(|denied| Stop::Remote(Refusal::Access(denied)))
    }

    /// The last bytes of the message have been placed, or taken, by the peer's key.
    #[inline]
    fn placed(&self, remote: &Side<'_>) {
        if remote.one_touch() && self.ends() {
            let message = Message { qpn: self.there.qp.qpn, number: self.message };
            // Nothing comes out of order here: the stream ends with the message.
            let tpt = &self.there.site.tpt;
            let _dead = self.there.act(|| tpt.placed(self.send.rkey, message, Some(0), 0));
        }
    }

    /// Copies from the requester to the responder.
    fn push(&self, source: &Side<'_>, target: &Side<'_>) -> Result<(), Stop> {
        let (here, there) = (&self.here.memory, &self.there.site.memory);
        copy::<H>((source, here), (target, there), self.from, self.to)
            .map_err(|broken| Stop::broken(broken, Broken::Source))?;
        let moved = self.to - self.from;
        self.there.site.moved(moved);
        self.here.moved(moved);
        Ok(())
    }

    fn complete_receive(
        &self,
        responder: &mut Responder,
        ended: Option<Ended>,
    ) -> Result<(), Stop> {
        let Self { there, send, .. } = self;
        Ok(there.act(|| responder::received(there, responder, send, self.qp.qpn, ended))?)
    }

    fn send(&self, responder: &mut MutexGuard<'_, Responder>) -> Result<Option<Ended>, Stop> {
        {
            let (mut source, mut target) = (Side::default(), Side::default());
            self.add_source(&mut source)?;
            let (there, length) = (self.there, self.send.length);
            there.act(|| responder::receive(there, responder, &mut target, length, self.from))?;
            self.push(&source, &target)?;
            if !self.ends() {
                return Ok(None);
            }
            let plain = matches!(self.send.opcode, Opcode::Send | Opcode::SendImm);
            if !plain || self.there.qp.tags.any() {
                let ended = self.carry_keys(&target)?;
                if ended.is_some() {
                    return Ok(ended);
                }
            }
        }
        self.complete_receive(responder, None)?;
        Ok(None)
    }

    /// What a message that has been placed does about keys.
    #[cold]
    fn carry_keys(&self, target: &Side<'_>) -> Result<Option<Ended>, Stop> {
        if let Some(key) = self.keys.command {
            self.insert_key(target, key)?;
        }
        self.there.act(|| self.end_key(target))
    }

    /// Stores the key of a command in the message that has been placed.
    fn insert_key(&self, target: &Side<'_>, key: u32) -> Result<(), Stop> {
        let place = Send::command(self.raw)
            .and_then(|(seg, _)| self.qp.tags.place(seg.tag_offset.get(), self.send.length));
        let at = place.ok_or(Stop::Local(Status::LocQpOpErr, Denied::Bounds as u32))?;
        target
            .write::<H>(&self.there.site.memory, at, &key.to_be_bytes())
            .map_err(|_| Stop::Remote(Refusal::Operational))
    }

    /// Ends the key of the peer that the message says, if it says one: a SEND_INV, or a response to a command.
    fn end_key(&self, target: &Side<'_>) -> Result<Option<Ended>, Stop> {
        let (there, qp) = (&self.there.site, self.there.qp);
        let refused = |denied| Stop::Remote(Refusal::Access(denied));
        if self.send.opcode == Opcode::SendInv {
            let key = self.send.rkey;
            there.tpt.invalidate(key, qp.user(), true).map_err(refused)?;
            there.step(Counter::RemoteInvalidations);
            return Ok(Some(Ended::Invalidated(key)));
        }
        let read = |at, into: &mut [u8]| target.read::<H>(&there.memory, at, into);
        let tag = qp.tags.response(self.send.length, read).map_err(|_| Refusal::Operational)?;
        let Some(key) = tag else { return Ok(None) };
        memory_wr::end_command(there, qp, key).map_err(refused)?;
        there.step(Counter::RemoteInvalidations);
        Ok(Some(Ended::Command(key)))
    }

    fn write(&self, responder: &mut MutexGuard<'_, Responder>) -> Result<(), Stop> {
        let immediate = self.send.imm().is_some();
        {
            let (mut source, mut target) = (Side::default(), Side::default());
            self.add_source(&mut source)?;
            self.add_remote(&mut target, responder, Access::REMOTE_WRITE)?;
            if immediate {
                // A receive must be there before anything lands.
                self.there.act(|| responder::take(self.there, responder, self.from))?;
            }
            self.push(&source, &target)?;
            self.placed(&target);
        }
        if immediate && self.ends() { self.complete_receive(responder, None) } else { Ok(()) }
    }

    fn read(&self, responder: &Responder) -> Result<(), Stop> {
        self.may_read(responder)?;
        let (mut source, mut target) = (Side::default(), Side::default());
        self.add_sink(&mut target)?;
        self.add_remote(&mut source, responder, Access::REMOTE_READ)?;
        let (here, there) = (&self.here.memory, &self.there.site.memory);
        copy::<H>((&source, there), (&target, here), self.from, self.to)
            .map_err(|broken| Stop::broken(broken, Broken::Target))?;
        self.here.moved(self.to - self.from);
        self.placed(&source);
        Ok(())
    }

    /// READs and atomics need room for one on both sides.
    fn may_read(&self, responder: &Responder) -> Result<(), Stop> {
        if self.max_rd_atomic == 0 {
            return Err(Stop::Local(Status::LocQpOpErr, 0));
        }
        if responder.max_dest_rd_atomic == 0 {
            return Err(Refusal::Invalid.into());
        }
        Ok(())
    }

    fn atomic(&self, responder: &Responder) -> Result<(), Stop> {
        self.may_read(responder)?;
        // The result's place first: once the word has changed there is no way back.
        let mut target = Side::default();
        self.add_sink(&mut target)?;
        let place = &self.here.memory;
        if !self.send.raddr.is_multiple_of(8) {
            return Err(Refusal::Invalid.into());
        }
        let mut word = Side::default();
        self.add_remote(&mut word, responder, Access::REMOTE_ATOMIC)?;
        let addr = word.word().ok_or(Refusal::Operational)?;
        let (value, compare) = self.send.operands;
        let memory = &self.there.site.memory;
        let old = self.there.act(|| match self.send.opcode {
            Opcode::FetchAdd => memory.fetch_add(addr, value),
            _ => memory.compare_swap(addr, compare, value),
        });
        let old = old.map_err(|_| Refusal::Operational)?.to_le_bytes();
        self.placed(&word);
        let mut result = Side::default();
        result.set_inline(&old);
        copy::<H>((&result, place), (&target, place), 0, 8)
            .map_err(|_| Stop::denied(Denied::Memory))
    }
}
