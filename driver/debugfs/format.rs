// SPDX-License-Identifier: GPL-2.0
//! Lines of names and values.

use abi::{
    admin::{
        RingRecord,
        fields::{Field, Show, Value}, //
    },
    qp::Access,
};
use kernel::{
    fmt::{self, Write},
    prelude::*,
    str::Formatter,
};

/// A line that is being written.
pub(super) struct Line<'a, 'b> {
    to: &'a mut Formatter<'b>,
    started: bool,
}

impl<'a, 'b> Line<'a, 'b> {
    pub(super) fn new(to: &'a mut Formatter<'b>) -> Self {
        Self { to, started: false }
    }

    pub(super) fn end(self) -> fmt::Result {
        self.to.write_str("\n")
    }

    /// Writes the numbers of a queue and what they mean; `name` and `_` stand before each name.
    fn ring(&mut self, name: &str, ring: &RingRecord) -> fmt::Result {
        let (size, produced, consumed) = (ring.size.get(), ring.posted.get(), ring.next.get());
        let line = if name.is_empty() { "" } else { "_" };
        let waiting = produced.wrapping_sub(consumed);
        let numbers = [
            ("size", size),
            ("producer", produced),
            ("consumer", consumed),
            ("waiting", waiting),
            ("credits", size.wrapping_sub(waiting)),
        ];
        numbers
            .iter()
            .try_for_each(|(of, number)| self.to.write_fmt(fmt!(" {name}{line}{of} {number}")))
    }

    /// Writes an address as the kernel does, and its port after it if there is one.
    fn address(&mut self, ipv6: bool, address: &[u8; 16], port: u16) -> fmt::Result {
        let [.., a, b, c, d] = *address;
        if ipv6 {
            self.to.write_str("[")?;
            for (nth, pair) in address.chunks_exact(2).enumerate() {
                let colon = if nth == 0 { "" } else { ":" };
                let group = pair.iter().fold(0, |group, byte| group << 8 | u16::from(*byte));
                self.to.write_fmt(fmt!("{colon}{group:x}"))?;
            }
            self.to.write_str("]")?;
        } else {
            self.to.write_fmt(fmt!("{a}.{b}.{c}.{d}"))?;
        }
        if port == 0 { Ok(()) } else { self.to.write_fmt(fmt!(":{port}")) }
    }

    fn rights(&mut self, rights: Access) -> fmt::Result {
        self.to.write_str("local_read")?;
        rights.iter_names().try_for_each(|(name, _)| {
            self.to.write_str(",")?;
            name.bytes().try_for_each(|byte| self.to.write_char(byte.to_ascii_lowercase().into()))
        })
    }
}

impl Show for Line<'_, '_> {
    type Error = fmt::Error;

    fn field(&mut self, field: Field, value: Value) -> fmt::Result {
        match value {
            Value::Work { ring, .. } if ring.size.get() == 0 => return Ok(()),
            Value::Work { ring, .. } => return self.ring(field.word, &ring),
            Value::Out { ring, .. } => return self.ring("", &ring),
            _ => {}
        }
        if self.started {
            self.to.write_str(" ")?;
        }
        self.started = true;
        self.to.write_fmt(fmt!("{} ", field.word))?;
        match value {
            Value::Number(number) | Value::Maybe(Some(number)) => {
                self.to.write_fmt(fmt!("{number}"))
            }
            Value::Maybe(None) => self.to.write_str("-"),
            Value::Hex(number) => self.to.write_fmt(fmt!("{number:#x}")),
            Value::Key(key) => self.to.write_fmt(fmt!("{key:#010x}")),
            Value::Rights(rights) => self.rights(rights),
            Value::Flag(flag) => self.to.write_str(if flag { "1" } else { "0" }),
            Value::Word(word) | Value::Code(_, word) => {
                self.to.write_str(word.to_str().map_err(|_| fmt::Error)?)
            }
            Value::Address { ipv6, address, port } => self.address(ipv6, &address, port),
            Value::Peer(None) => self.to.write_str("- at 00:00:00:00:00:00"),
            Value::Peer(Some((qpn, [a, b, c, d, e, f]))) => {
                self.to.write_fmt(fmt!("{qpn} at {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}"))
            }
            Value::Work { .. } | Value::Out { .. } => Ok(()),
        }
    }
}
