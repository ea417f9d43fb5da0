//! Frames, uplinks, packets and connections.
//!
//! | module | what it tests |
//! | --- | --- |
//! | `addresses` | adapters with several MACs next to the stations of an Ethernet |
//! | `ethernet` | frames between network cards, and the effects of bad frames |
//! | `hosts` | hosts, which are network namespaces, each with a daemon |
//! | `interfaces` | uplinks to interfaces of the host's kernel |
//! | `lanes` | classes of service, rates, congestion control |
//! | `lost_uplink` | an uplink that is lost and comes back |
//! | `pauses` | PFC frames on uplinks |
//! | `pcap` | captures |
//! | `raw` | raw packets |
//! | `segments` | RDMA between daemons through the host's kernel, to which they send joined frames |
//! | `stream_pcap` | captures of iWARP connections |
//! | `streams` | RDMA in TCP connections (iWARP) between functions of two daemons |
//! | `tls` | trunks over TLS |
//! | `uplinks` | trunks between daemons, and ports without a function |
//! | `vlans` | functions in VLANs |
//! | `wire` | RDMA as packets over a trunk between functions of two daemons |

pub(crate) mod addresses;
pub(crate) mod ethernet;
pub(crate) mod hosts;
pub(crate) mod interfaces;
pub(crate) mod lanes;
pub(crate) mod lost_uplink;
pub(crate) mod pauses;
pub(crate) mod pcap;
pub(crate) mod raw;
pub(crate) mod segments;
pub(crate) mod stream_pcap;
pub(crate) mod streams;
pub(crate) mod tls;
pub(crate) mod uplinks;
pub(crate) mod vlans;
pub(crate) mod wire;
