//! Adapters and their objects as JSON.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::json;
use vrnic_abi::admin::fields::{Field, Record, Show, Value};
use vrnic_packet::MacAddr;

/// A page of objects.
#[derive(Serialize)]
#[serde(bound = "")]
pub(super) struct Page<'a, R: Record> {
    items: Vec<Object<'a, R>>,
    /// The number to continue from; none after the last object.
    next: Option<u32>,
}

impl<'a, R: Record> Page<'a, R> {
    pub(super) fn new(records: impl Iterator<Item = &'a R>, next: Option<u32>) -> Self {
        Self { items: records.map(Object).collect(), next }
    }
}

/// An object: a map of its fields.
struct Object<'a, R>(&'a R);

impl<R: Record> Serialize for Object<'_, R> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = Map(to.serialize_map(None)?);
        self.0.show(&mut map)?;
        map.0.end()
    }
}

/// Returns an address, with its port if there is one, as URLs have it.
fn end(ipv6: bool, address: [u8; 16], port: u16) -> String {
    let address = Ipv6Addr::from(address);
    let ipv4 = address.to_ipv4_mapped().filter(|_| !ipv6);
    let address = ipv4.map_or(IpAddr::V6(address), IpAddr::V4);
    if port == 0 { address.to_string() } else { SocketAddr::new(address, port).to_string() }
}

struct Map<M>(M);

impl<M: SerializeMap> Show for Map<M> {
    type Error = M::Error;

    fn field(&mut self, field: Field, value: Value) -> Result<(), M::Error> {
        let (map, key) = (&mut self.0, field.key);
        match value {
            Value::Number(number) | Value::Hex(number) => map.serialize_entry(key, &number),
            Value::Maybe(number) => map.serialize_entry(key, &number),
            Value::Key(number) | Value::Code(number, _) => map.serialize_entry(key, &number),
            Value::Rights(rights) => {
                let names = rights.iter_names().map(|(name, _)| name.to_ascii_lowercase());
                map.serialize_entry(key, &names.collect::<Vec<_>>())
            }
            Value::Flag(flag) => map.serialize_entry(key, &flag),
            Value::Word(word) => {
                map.serialize_entry(key, &word.to_string_lossy().to_ascii_lowercase())
            }
            Value::Address { ipv6, address, port } => {
                map.serialize_entry(key, &end(ipv6, address, port))
            }
            Value::Peer(peer) => {
                map.serialize_entry(key, &peer.map(|(qpn, mac)| (MacAddr(mac).to_string(), qpn)))
            }
            Value::Work { ring, in_device, .. } => {
                let [size, posted, next] = [ring.size, ring.posted, ring.next].map(|n| n.get());
                let queue = json!({
                    "size": size, "posted": posted, "next": next, "in_device": in_device,
                });
                map.serialize_entry(key, &(size != 0).then_some(queue))
            }
            Value::Out { ring, .. } => {
                map.serialize_entry("size", &ring.size.get())?;
                map.serialize_entry("produced", &ring.posted.get())?;
                map.serialize_entry("consumed", &ring.next.get())
            }
        }
    }
}
