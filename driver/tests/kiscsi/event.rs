// SPDX-License-Identifier: GPL-2.0
//! Completions of a stream queue pair in the iSCSI mode.

use crate::kclient::bindings as ib;

/// A completion.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A PDU has arrived.
    Received {
        /// The receive.
        index: usize,
        /// Bytes of the PDU in it; none at the end of the stream.
        len: usize,
        /// The command that the PDU belongs to.
        of: Option<Owner>,
    },
    /// The target has got a command.
    Sent {
        /// The command's place.
        index: usize,
        /// The command's task tag.
        tag: u32,
    },
    /// A command was refused, because a check of this number has failed.
    Refused {
        /// The command's place.
        index: usize,
        /// The number of the check that failed.
        check: u32,
    },
    /// A command did not leave, because one before it was refused.
    Flushed {
        /// The command's place.
        index: usize,
    },
    /// Another PDU has left.
    Left {
        /// The PDU's place.
        index: usize,
    },
    /// Another PDU did not leave, because a command before it was refused.
    Kept {
        /// The PDU's place.
        index: usize,
    },
    /// The stream has ended.
    Ended,
}

/// The command that a PDU belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    /// The Command ID.
    pub(crate) id: u32,
    /// True if the PDU has ended it.
    pub(crate) over: bool,
}

/// A request of a queue, as its completion names it.
#[derive(Clone, Copy)]
pub(super) enum Place {
    Receive(usize),
    Command(usize),
    Control(usize),
}

impl Place {
    /// Returns the name of the request in completions.
    pub(super) fn name(self) -> u64 {
        // CAST: to the wider type.
        match self {
            Self::Receive(index) => index as u64,
            Self::Command(index) => 1 << 32 | index as u64,
            Self::Control(index) => 2 << 32 | index as u64,
        }
    }

    fn of(name: u64) -> Option<Self> {
        let index = (name & 0xffff_ffff) as usize;
        match name >> 32 {
            0 => Some(Self::Receive(index)),
            1 => Some(Self::Command(index)),
            2 => Some(Self::Control(index)),
            _ => None,
        }
    }
}

/// Returns a completion in this module's form.
pub(super) fn event(wc: &ib::ib_wc) -> Event {
    // SAFETY: all views of the unions are numbers or a pointer of the same size.
    let (name, word) = unsafe { (*wc.__bindgen_anon_1.wr_id, *wc.ex.invalidate_rkey) };
    // CAST: a bit mask.
    let has = |flag: u32| wc.wc_flags as u32 & flag != 0;
    let is_ok = wc.status == ib::ib_wc_status_IB_WC_SUCCESS;
    let is_flushed = wc.status == ib::ib_wc_status_IB_WC_WR_FLUSH_ERR;
    match Place::of(name) {
        Some(Place::Receive(index)) if is_ok && wc.byte_len > 0 => {
            let owner = || Owner { id: word, over: has(ib::VRNIC_WC_ENDED) };
            // CAST: to the wider type.
            let (len, of) = (wc.byte_len as usize, has(ib::VRNIC_WC_EXECUTED).then(owner));
            Event::Received { index, len, of }
        }
        Some(Place::Command(index)) if is_ok => Event::Sent { index, tag: word },
        Some(Place::Command(index)) if wc.status == ib::ib_wc_status_IB_WC_MW_BIND_ERR => {
            Event::Refused { index, check: wc.vendor_err }
        }
        Some(Place::Command(index)) if is_flushed => Event::Flushed { index },
        Some(Place::Control(index)) if is_ok => Event::Left { index },
        Some(Place::Control(index)) if is_flushed => Event::Kept { index },
        _ => Event::Ended,
    }
}
