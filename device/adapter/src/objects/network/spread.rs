//! The table by which a QP of raw packets spreads the frames of its rules over other QPs
//! ([`vrnic_abi::rss`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use vrnic_abi::Qpn;
use vrnic_abi::flow::{self, Network, Upper};
use vrnic_abi::rss::{Fields, KEY_LEN};
use vrnic_packet::toeplitz::Toeplitz;

use super::frame_key::{FrameKey, Target};

/// The table of a QP that spreads.
#[derive(Debug)]
pub struct Spread {
    /// The fields that are hashed.
    pub fields: Fields,
    /// The key of the hash.
    pub key: [u8; KEY_LEN],
    /// The QPs, a power of two.
    pub targets: Box<[Target]>,
}

impl Spread {
    /// Returns the QP that receives a frame.
    #[must_use]
    pub fn target(&self, frame: &FrameKey) -> Option<Target> {
        // CAST: widening.
        let index = self.hash(frame) as usize & self.targets.len().checked_sub(1)?;
        self.targets.get(index).copied()
    }

    /// Returns the hash of a frame.
    fn hash(&self, frame: &FrameKey) -> u32 {
        let mut hash = Toeplitz::new(&self.key);
        let fields: flow::Fields = zerocopy::transmute!(frame.words);
        let mut add = |field, bytes: &[u8]| {
            if self.fields.contains(field) {
                hash.add(bytes);
            }
        };
        let [v4_source, v4_destination] =
            [&fields.source, &fields.destination].map(|address| address.split_at(4).0);
        match frame.network {
            Network::Any => {}
            Network::Ipv4 => {
                add(Fields::SRC_IPV4, v4_source);
                add(Fields::DST_IPV4, v4_destination);
            }
            Network::Ipv6 => {
                add(Fields::SRC_IPV6, &fields.source);
                add(Fields::DST_IPV6, &fields.destination);
            }
        }
        match frame.upper {
            Upper::Tcp if !frame.is_fragment => {
                add(Fields::SRC_PORT_TCP, &fields.source_port);
                add(Fields::DST_PORT_TCP, &fields.destination_port);
            }
            Upper::Udp if !frame.is_fragment => {
                add(Fields::SRC_PORT_UDP, &fields.source_port);
                add(Fields::DST_PORT_UDP, &fields.destination_port);
            }
            Upper::Tcp | Upper::Udp | Upper::Any => {}
        }
        hash.hash()
    }
}

/// The tables of an adapter.
#[derive(Debug, Default)]
pub struct Spreads(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    /// The tables, by the QPs that spread.
    tables: BTreeMap<Qpn, Arc<Spread>>,
    /// The number of entries that name a QP, if there are any.
    users: BTreeMap<Qpn, usize>,
}

impl Spreads {
    /// Adds the table of a new QP.
    pub fn add(&self, qpn: Qpn, spread: Arc<Spread>) {
        let Tables { tables, users } = &mut *self.0.lock();
        for target in &spread.targets {
            *users.entry(target.qpn).or_default() += 1;
        }
        tables.insert(qpn, spread);
    }

    /// Removes the table of a QP, if it has one.
    pub fn remove(&self, qpn: Qpn) {
        let Tables { tables, users } = &mut *self.0.lock();
        let removed = tables.remove(&qpn);
        for target in removed.iter().flat_map(|spread| &spread.targets) {
            let left = users.remove(&target.qpn).unwrap_or_default().saturating_sub(1);
            if left > 0 {
                users.insert(target.qpn, left);
            }
        }
    }

    /// Returns the table of a QP, if it spreads.
    #[must_use]
    pub fn of(&self, qpn: Qpn) -> Option<Arc<Spread>> {
        self.0.lock().tables.get(&qpn).cloned()
    }

    /// Returns whether a table names a QP.
    #[must_use]
    pub fn names(&self, qpn: Qpn) -> bool {
        self.0.lock().users.contains_key(&qpn)
    }

    /// Removes all tables.
    pub fn clear(&self) {
        *self.0.lock() = Tables::default();
    }
}
