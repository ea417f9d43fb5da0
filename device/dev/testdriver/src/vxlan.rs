//! Hosts, which are network namespaces, whose bridges are joined by the kernel's VXLAN over a
//! network.

use crate::namespace::Namespace;

/// The hosts, and the network between them.
#[derive(Debug)]
pub struct Vxlan {
    /// The hosts. Their interface to the network is `net`.
    pub hosts: Vec<Namespace>,
    /// The network, with an interface `p0`, `p1` and so on to each host.
    pub network: Namespace,
}

impl Vxlan {
    /// Creates the hosts with MTUs for RDMA packets of 4,096 bytes. Each has a bridge with an
    /// interface for a daemon. Prints why if this machine does not support it.
    #[must_use]
    pub fn new(count: usize) -> Option<Self> {
        let network = Namespace::new()?;
        let hosts: Option<Vec<_>> = (0..count).map(|_| Namespace::new()).collect();
        let probe = "ip link add probe type vxlan id 1 dstport 4789 && ip link del probe";
        if network.try_run(probe).is_err() {
            eprintln!("skipped: this needs VXLAN devices of the kernel");
            return None;
        }
        network.run("ip link add br0 mtu 9000 type bridge && ip link set br0 up");
        let this = Self { hosts: hosts?, network };
        (0..count).for_each(|number| this.attach(number));
        Some(this)
    }

    /// Returns the uplink of a host's daemon: a TAP device or, on the last host, a packet socket on
    /// a veth device.
    #[must_use]
    pub fn uplink(&self, number: usize) -> &'static str {
        if number + 1 == self.hosts.len() { "packet=far" } else { "tap=port" }
    }

    /// Joins a host to the network by a veth device, and its bridge to the other bridges by VXLAN.
    fn attach(&self, number: usize) {
        let (count, host) = (self.hosts.len(), &self.hosts[number]);
        self.network.run(&format!(
            "ip link add p{number} mtu 9000 type veth peer name net mtu 9000 netns {} && \
             ip link set p{number} master br0 up",
            host.name()
        ));
        let port = if number + 1 == count {
            "ip link add port mtu 4500 type veth peer name far mtu 4500 && ip link set far up"
        } else {
            "ip tuntap add port mode tap && ip link set port mtu 4500"
        };
        let others = (0..count).filter(|other| *other != number);
        let flood = others.map(|other| {
            format!(" && bridge fdb append 00:00:00:00:00:00 dev vx dst 10.88.0.{}", other + 1)
        });
        host.run(&format!(
            "ip addr add 10.88.0.{0}/24 dev net && ip link set net up && \
             ip link add vx mtu 4500 type vxlan id 42 local 10.88.0.{0} dstport 4789 && \
             ip link add br0 mtu 4500 type bridge && {port} && \
             ip link set vx master br0 up && ip link set port master br0 up && \
             ip link set br0 up{1}",
            number + 1,
            flood.collect::<String>()
        ));
    }
}
