// SPDX-License-Identifier: GPL-2.0
//! The login: the exchange by which an iSCSI session begins (RFC 7143, 6.3 and 13). It takes place
//! on an ordinary socket, before the adapter has the connection.

use core::fmt::Write;

use kernel::{prelude::*, str::CStr};

use crate::{
    pdu::{self, FINAL, Header, at, request, response},
    settings::Settings,
    socket::Socket,
};

/// Requests without an end of the login, at most.
const MAX_ROUNDS: usize = 8;
/// Bytes of the text of a request or a response, at most.
const MAX_TEXT: usize = 8192;
/// The stage of operational parameters, and the one after the login, as flags.
const OPERATIONAL: u8 = 1 << 2;
const FULL: u8 = 3;
/// `MaxRecvDataSegmentLength` of this end.
const MAX_RECEIVE: u32 = 256 << 10;
/// `MaxBurstLength` that this end offers.
const MAX_BURST: u32 = 1 << 20;
/// `MaxRecvDataSegmentLength` of a target that names none.
const DEFAULT_MAX_SEND: u32 = 8192;
/// The task tag of the requests.
const TAG: u32 = 1;

/// The parameters that both ends have agreed on, and the numbers of the session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) max_receive: u32,
    pub(crate) max_send: u32,
    pub(crate) max_burst: u32,
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
    /// The number of the next command.
    pub(crate) cmd_sn: u32,
    /// The number of the last command that the target accepts now.
    pub(crate) max_cmd_sn: u32,
    /// The number of the next response.
    pub(crate) exp_stat_sn: u32,
}

/// A text of keys and values, each pair of which ends with a zero.
struct Text(KVec<u8>);

impl Text {
    fn add(&mut self, key: &str, value: core::fmt::Arguments<'_>) -> Result {
        write!(self, "{key}=").map_err(|_| ENOMEM)?;
        self.write_fmt(value).map_err(|_| ENOMEM)?;
        Ok(self.0.push(0, GFP_KERNEL)?)
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.0.extend_from_slice(text.as_bytes(), GFP_KERNEL).map_err(|_| core::fmt::Error)
    }
}

/// Logs in on a socket.
///
/// # Errors
///
/// `ECONNREFUSED` if the target refuses, `EPROTO` for an answer that is not one to a login.
pub(crate) fn login(socket: &mut Socket, settings: &Settings) -> Result<Terms> {
    let mut terms = Terms {
        max_receive: MAX_RECEIVE,
        max_send: DEFAULT_MAX_SEND,
        max_burst: MAX_BURST,
        header_digest: false,
        data_digest: false,
        cmd_sn: 1,
        max_cmd_sn: 1,
        exp_stat_sn: 0,
    };
    let mut text = keys(settings)?;
    for _ in 0..MAX_ROUNDS {
        send(socket, settings, &terms, &text.0)?;
        let (header, answer) = receive(socket)?;
        if header.0[36] != 0 {
            let (class, detail) = (header.0[36], header.0[37]);
            pr_err!("the target refuses the login: status {class:#x}, detail {detail:#x}\n");
            return Err(ECONNREFUSED);
        }
        answer.split(|byte| *byte == 0).for_each(|pair| agree(&mut terms, pair));
        terms.exp_stat_sn = header.word(at::NUMBER).wrapping_add(1);
        terms.max_cmd_sn = header.word(at::MAX);
        if header.flags() & (FINAL | FULL) == FINAL | FULL {
            return Ok(terms);
        }
        text.0.clear();
    }
    Err(EPROTO)
}

/// Returns what this end offers. Data leaves only when the target has asked for it.
fn keys(settings: &Settings) -> Result<Text> {
    let mut text = Text(KVec::new());
    let digest = |on: bool| if on { "CRC32C" } else { "None" };
    text.add("InitiatorName", format_args!("{}", name(settings.initiator)?))?;
    text.add("TargetName", format_args!("{}", name(settings.target)?))?;
    text.add("SessionType", format_args!("Normal"))?;
    text.add("HeaderDigest", format_args!("{}", digest(settings.header_digest)))?;
    text.add("DataDigest", format_args!("{}", digest(settings.data_digest)))?;
    text.add("MaxRecvDataSegmentLength", format_args!("{MAX_RECEIVE}"))?;
    text.add("MaxBurstLength", format_args!("{MAX_BURST}"))?;
    text.add("FirstBurstLength", format_args!("65536"))?;
    for (key, value) in [
        ("InitialR2T", "Yes"),
        ("ImmediateData", "No"),
        ("MaxOutstandingR2T", "1"),
        ("MaxConnections", "1"),
        ("DataPDUInOrder", "Yes"),
        ("DataSequenceInOrder", "Yes"),
        ("ErrorRecoveryLevel", "0"),
        ("DefaultTime2Wait", "2"),
        ("DefaultTime2Retain", "0"),
    ] {
        text.add(key, format_args!("{value}"))?;
    }
    Ok(text)
}

fn name(name: &CStr) -> Result<&str> {
    name.to_str().map_err(|_| EINVAL)
}

fn send(socket: &mut Socket, settings: &Settings, terms: &Terms, text: &[u8]) -> Result {
    let header = Header::new(request::LOGIN, FINAL | OPERATIONAL | FULL)
        .put_data_len(u32::try_from(text.len())?)
        .put(at::LUN, &settings.isid)
        .put_word(at::TASK_TAG, TAG)
        .put_word(at::NUMBER, terms.cmd_sn)
        .put_word(at::EXPECTED, terms.exp_stat_sn);
    let mut bytes = KVec::new();
    bytes.extend_from_slice(&header.0, GFP_KERNEL)?;
    bytes.extend_from_slice(text, GFP_KERNEL)?;
    bytes.resize(bytes.len().next_multiple_of(4), 0, GFP_KERNEL)?;
    socket.send(&bytes)
}

fn receive(socket: &mut Socket) -> Result<(Header, KVec<u8>)> {
    let mut header = Header([0; pdu::LEN]);
    socket.receive(&mut header.0)?;
    let len = usize::try_from(header.data_len())?;
    if header.opcode() != response::LOGIN || header.additional_len() != 0 || len > MAX_TEXT {
        return Err(EPROTO);
    }
    let mut text = KVec::from_elem(0, len.next_multiple_of(4), GFP_KERNEL)?;
    socket.receive(&mut text)?;
    text.truncate(len);
    Ok((header, text))
}

/// Takes a key and its value over.
fn agree(terms: &mut Terms, pair: &[u8]) {
    let Some((key, value)) = pair.iter().position(|byte| *byte == b'=').map(|at| pair.split_at(at))
    else {
        return;
    };
    let value = value.get(1..).unwrap_or_default();
    let number = || core::str::from_utf8(value).ok()?.parse::<u32>().ok();
    match key {
        b"HeaderDigest" => terms.header_digest = value == b"CRC32C",
        b"DataDigest" => terms.data_digest = value == b"CRC32C",
        b"MaxRecvDataSegmentLength" => terms.max_send = number().unwrap_or(terms.max_send),
        b"MaxBurstLength" => terms.max_burst = number().unwrap_or(terms.max_burst),
        _ => {}
    }
}
