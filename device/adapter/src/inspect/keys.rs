//! Views of the table of keys.

use serde::{Deserialize, Serialize};
use vrnic_abi::qp::Access;

use super::Page;
use crate::adapter::Adapter;
use crate::host::Host;
use crate::memory::mtt::segments;
use crate::memory::tpt::{Kind, Mr};

/// View of a valid key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct KeyView {
    pub key: u32,
    /// `region`, `window`, `command`.
    pub kind: String,
    pub pdn: u32,
    /// The only QP that may use it.
    pub qpn: Option<u32>,
    /// Rights beyond local read, e.g. `local_write`.
    pub access: Vec<String>,
    /// First address, as work requests name it.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// Bytes of a page; none for a single run of memory and for a command's segments.
    pub page_size: Option<u64>,
    /// True if it is good for one message.
    pub one_touch: bool,
}

impl<H: Host> Adapter<H> {
    /// Up to `most` valid keys, from index `from` (the upper 24 bits of the key) on.
    #[must_use]
    pub fn key_views(&self, from: u32, most: usize) -> Page<KeyView> {
        let tpt = self.tpt();
        let mrs = tpt.valid(from);
        Page::of(mrs.map(|(index, mr)| (index, KeyView::from(&mr))), most)
    }
}

impl From<&Mr> for KeyView {
    fn from(mr: &Mr) -> Self {
        let access = mr.access.iter_names().map(|(name, _)| name.to_ascii_lowercase());
        let paged = mr.table.depth != 0 && !segments::is(&mr.table);
        Self {
            key: mr.key.get(),
            kind: match mr.kind {
                Kind::Region => "region",
                Kind::Window => "window",
                Kind::Command => "command",
            }
            .to_owned(),
            pdn: mr.pdn.get(),
            qpn: Some(mr.qpn.get()).filter(|qpn| *qpn != 0),
            access: access.collect(),
            address: if mr.access.contains(Access::ZERO_BASED) { 0 } else { mr.iova },
            length: mr.length,
            page_size: paged.then(|| 1 << mr.table.shift),
            one_touch: mr.one_touch,
        }
    }
}
