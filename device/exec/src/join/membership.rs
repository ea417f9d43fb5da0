//! A run as a member of a network: its switch, and trunks to other members, which come and go, or
//! to a daemon.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use vrnic_adapter::adapter::Adapter;
use vrnic_adapter::ethernet::Uplink;
use vrnic_control::capture::Captures;
use vrnic_control::socket::accept;
use vrnic_packet::Mtu;

use super::folder::FolderMember;
use super::neighbors::Neighbors;
use super::station::Station;
use crate::adapter::bell::Bell;
use crate::adapter::host::ProcessHost;
use crate::adapter::switch::{Start, Switch, Way};
use crate::signals::mask_signals;

/// Begin of the MACs of adapters in a shared network. Their addresses follow, so that no two
/// members have the same.
const MAC: [u8; 2] = [0x56, 0x52];
/// The first address that members get that name none.
const FIRST: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Maximum number of trunks.
const TRUNKS_MAX: usize = 256;
/// The name of the trunk to a daemon.
const DAEMON: &str = "daemon";
/// The MTU of the network cards of guests, if nobody has changed it.
const GUEST_MTU: u32 = 1500;
/// The longest time for which the start of a program waits for other members, and for a daemon.
const MEMBERS_WAIT: Duration = Duration::from_secs(3);
const DAEMON_WAIT: Duration = Duration::from_secs(5);
/// Time in which a station that has an address says so.
const PROBE_WAIT: Duration = Duration::from_millis(200);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(1);
/// The time between two looks at trunks.
const LOOK_MS: u16 = 500;
/// Time after which a peer that has not spoken is not expected any more.
const SILENCE: Duration = Duration::from_secs(5);

/// What to join.
#[derive(Clone, Debug)]
pub struct Join {
    /// The folder of the network, or the socket of a daemon's uplink.
    pub place: PathBuf,
    /// Starts the switch.
    pub switch: Start,
}

/// A run that has addresses in a network, but no adapters yet.
#[derive(Debug)]
pub struct Joining {
    switch: Arc<dyn Switch>,
    member: Option<FolderMember>,
    peers: Vec<OwnedFd>,
    daemon: Option<PathBuf>,
    /// The addresses.
    pub addresses: Vec<Ipv4Addr>,
}

/// A member. The membership ends when this is dropped.
#[derive(Debug)]
pub struct Joined {
    stop: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
    switch: Arc<dyn Switch>,
}

/// Returns the MAC of the adapter with an address.
#[must_use]
pub fn mac(address: Ipv4Addr) -> [u8; 6] {
    let ([a, b], [c, d, e, f]) = (MAC, address.octets());
    [a, b, c, d, e, f]
}

/// Returns whether a path is that of a socket.
fn is_socket(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.file_type().is_socket())
}

impl Joining {
    /// Begins to join a network with `count` addresses: those that are `wanted`, or free ones.
    ///
    /// # Errors
    /// Says why that is not possible.
    pub fn begin(join: &Join, wanted: Option<&[Ipv4Addr]>, count: usize) -> anyhow::Result<Self> {
        let switch = (join.switch)().context("the switch cannot be started")?;
        if is_socket(&join.place) {
            let Some(wanted) = wanted else {
                bail!("name a free address of the daemon's network by --as");
            };
            let (daemon, addresses) = (Some(join.place.clone()), wanted.to_vec());
            return Ok(Self { switch, member: None, peers: Vec::new(), daemon, addresses });
        }
        let (member, addresses, peers) = FolderMember::join(&join.place, wanted, FIRST, count)?;
        Ok(Self { switch, member: Some(member), peers, daemon: None, addresses })
    }

    /// Returns what takes frames of adapters.
    #[must_use]
    pub fn uplink(&self) -> Arc<dyn Uplink> {
        self.switch.uplink()
    }

    /// Adds an adapter.
    ///
    /// # Errors
    /// The error of the system.
    pub fn add(
        &self,
        adapter: &Arc<Adapter<ProcessHost>>,
        neighbors: &Arc<Neighbors>,
        captures: &Arc<Captures>,
    ) -> anyhow::Result<()> {
        let station = Station {
            adapter: Arc::clone(adapter),
            neighbors: Arc::clone(neighbors),
            uplink: self.uplink(),
            captures: Arc::clone(captures),
        };
        if self.daemon.is_some() {
            adapter.limit_mtu(Mtu::of_ip(GUEST_MTU));
        }
        let added = self.switch.add_adapter(adapter.name(), adapter.mac(), Arc::new(station));
        added.context("an adapter cannot be added to the switch")
    }

    /// Connects to the other members, or to the daemon.
    ///
    /// # Errors
    /// Says that the daemon cannot be reached, or which address another station has.
    pub fn connect(self, neighbors: &Arc<Neighbors>) -> anyhow::Result<Joined> {
        let Self { switch, member, peers, daemon, .. } = self;
        let mut trunks = Trunks::new(switch, Arc::clone(neighbors));
        for socket in peers {
            trunks.add(Way::Connected(socket)).context("a member cannot be connected")?;
        }
        if let Some(path) = daemon {
            let way = Way::Daemon(path.clone());
            trunks.switch.add_trunk(DAEMON, way).context("no trunk can be added")?;
            ensure!(
                trunks.wait(DAEMON_WAIT),
                "no daemon answers at {}: it needs --uplink name=NAME,listen={0}, which serves one \
                 peer at a time",
                path.display()
            );
            neighbors.probe();
            std::thread::sleep(PROBE_WAIT);
        } else {
            // A member that does not answer must not keep the others from working.
            let _all = trunks.wait(MEMBERS_WAIT);
        }
        if let Some(gid) = neighbors.conflict() {
            let address = std::net::Ipv6Addr::from(gid).to_canonical();
            bail!(
                "another station of the network has the address {address}; name another one by --as"
            );
        }
        neighbors.announce();
        let stop = Arc::new(Bell::new().context("no event file can be opened")?);
        let (stops, switch) = (Arc::clone(&stop), Arc::clone(&trunks.switch));
        let thread = std::thread::Builder::new()
            .name("members".to_owned())
            .spawn(move || trunks.run(member.as_ref(), &stops))
            .context("no thread can be started")?;
        Ok(Joined { stop, thread: Some(thread), switch })
    }
}

impl Joined {
    /// Returns the switch.
    #[must_use]
    pub fn switch(&self) -> &Arc<dyn Switch> {
        &self.switch
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.stop.ring();
        if let Some(thread) = self.thread.take() {
            // If it panicked, its message has been printed.
            let _panicked = thread.join();
        }
    }
}

/// A trunk to a member.
#[derive(Clone, Copy, Debug)]
struct Trunk {
    since: Instant,
    /// True if it has had a peer.
    was_up: bool,
}

/// The trunks to other members, by name.
struct Trunks {
    switch: Arc<dyn Switch>,
    neighbors: Arc<Neighbors>,
    all: HashMap<String, Trunk>,
    /// Number of trunks so far.
    count: u64,
    /// True if the daemon was there at the last look.
    has_daemon: bool,
}

impl Trunks {
    fn new(switch: Arc<dyn Switch>, neighbors: Arc<Neighbors>) -> Self {
        Self { switch, neighbors, all: HashMap::new(), count: 0, has_daemon: false }
    }

    /// Adds a trunk to a member.
    fn add(&mut self, way: Way) -> std::io::Result<()> {
        self.count += 1;
        let name = format!("member-{}", self.count);
        self.switch.add_trunk(&name, way)?;
        self.all.insert(name, Trunk { since: Instant::now(), was_up: false });
        Ok(())
    }

    /// Waits until all trunks have peers. Returns false if that takes longer than `most`.
    fn wait(&self, most: Duration) -> bool {
        let start = Instant::now();
        while start.elapsed() < most {
            if self.switch.trunks().iter().all(|trunk| trunk.up) {
                return true;
            }
            std::thread::sleep(PAUSE);
        }
        false
    }

    /// Admits other members, and removes those that have gone, until the bell rings.
    fn run(mut self, member: Option<&FolderMember>, stop: &Bell) {
        mask_signals();
        let socket = member.and_then(FolderMember::socket);
        loop {
            let mut ready = vec![PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
            let listener = socket.map(|socket| socket.listener().as_fd());
            // At the limit, others wait until one has gone.
            let listener = listener.filter(|_| self.all.len() < TRUNKS_MAX);
            ready.extend(listener.map(|listener| PollFd::new(listener, PollFlags::POLLIN)));
            let _interrupted = poll(&mut ready, PollTimeout::from(LOOK_MS));
            let mut are_ready = ready.iter().map(|file| file.any().unwrap_or(false));
            if are_ready.next().unwrap_or(true) {
                return;
            }
            if are_ready.next().unwrap_or(false)
                && let Some(socket) = socket
                && let Ok(Some((stream, _))) = accept(socket.listener())
                && stream.set_nonblocking(true).is_ok()
                && let Err(error) = self.add(Way::Connected(stream.into()))
            {
                eprintln!("vrnic exec: another run cannot join: {error}");
            }
            self.look();
        }
    }

    /// Removes trunks whose peers have gone, or have never spoken.
    fn look(&mut self) {
        let mut lost = false;
        for view in self.switch.trunks() {
            if view.name == DAEMON {
                lost |= self.has_daemon && !view.up;
                self.has_daemon = view.up;
                continue;
            }
            let Some(trunk) = self.all.get_mut(&view.name) else { continue };
            trunk.was_up |= view.up;
            if !view.up && (trunk.was_up || trunk.since.elapsed() > SILENCE) {
                lost = true;
                self.all.remove(&view.name);
                self.switch.remove(&view.name);
            }
        }
        if lost {
            self.neighbors.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use vrnic_packet::MacAddr;

    use super::*;

    #[test]
    fn macs_follow_from_addresses() {
        let [first, second] = [1, 2].map(|last| mac([127, 0, 0, last].into()));
        assert_ne!(first, second);
        assert!(!MacAddr(first).is_group());
    }
}
