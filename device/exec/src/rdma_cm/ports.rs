//! Ports of the port spaces (`cma_get_port` in drivers/infiniband/core/cma.c).

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use rustix::io::Errno;

/// Below this number, ports are for privileged programs.
const PRIVILEGED: u16 = 1024;
/// Maximum number of identifiers that share a port.
const USERS_MAX: usize = 4096;
/// Where the kernel says which ports are for programs that name none.
const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// The ports for programs that name none, if the kernel does not say which.
const DEFAULT: RangeInclusive<u16> = 32768..=60999;

/// What uses a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// The number of the identifier.
    pub id: u32,
    /// The own address.
    pub source: SocketAddr,
    /// The address of the peer.
    pub dest: Option<SocketAddr>,
    /// True if others may use the same address.
    pub reuses_address: bool,
    /// True if the address is only for one family.
    pub one_family: bool,
}

/// The ports that are in use.
#[derive(Debug)]
pub struct Ports {
    used: HashMap<(u16, u16), Vec<User>>,
    range: RangeInclusive<u16>,
    next: u16,
    privileged: bool,
}

impl Default for Ports {
    fn default() -> Self {
        let text = std::fs::read_to_string(RANGE).unwrap_or_default();
        let privileged = rustix::process::geteuid().is_root();
        Self::new(parse(&text).unwrap_or(DEFAULT), privileged)
    }
}

/// Returns the range in a text of the kernel.
fn parse(text: &str) -> Option<RangeInclusive<u16>> {
    let mut numbers = text.split_whitespace();
    let range = numbers.next()?.parse().ok()?..=numbers.next()?.parse().ok()?;
    (!range.is_empty() && *range.start() > 0).then_some(range)
}

impl Ports {
    /// Returns no used ports. Programs that name none get one of this range.
    #[must_use]
    pub fn new(range: RangeInclusive<u16>, privileged: bool) -> Self {
        let span = u64::from(range.end() - range.start()) + 1;
        let offset = RandomState::new().hash_one(0) % span;
        // CAST: below the length of a range of 16-bit numbers.
        let next = range.start().saturating_add(offset as u16);
        Self { used: HashMap::new(), range, next, privileged }
    }

    /// Takes the port of an own address, or any if that is zero. Returns the port.
    ///
    /// # Errors
    /// `EACCES` for a privileged port, `EADDRINUSE` or `EADDRNOTAVAIL` if others use the address,
    /// `ENOMEM` if too many share the port.
    pub fn take(&mut self, space: u16, mut user: User) -> Result<u16, Errno> {
        let port = match user.source.port() {
            0 => self.any(space, &user)?,
            port if port < PRIVILEGED && !self.privileged => return Err(Errno::ACCESS),
            port => {
                self.check(space, &user, user.reuses_address)?;
                port
            }
        };
        user.source.set_port(port);
        let users = self.used.entry((space, port)).or_default();
        if users.len() >= USERS_MAX {
            return Err(Errno::NOMEM);
        }
        users.push(user);
        Ok(port)
    }

    /// Returns a port of the range that nobody uses in the same way.
    fn any(&mut self, space: u16, user: &User) -> Result<u16, Errno> {
        for _ in self.range.clone() {
            let port = self.next;
            self.next = if port >= *self.range.end() { *self.range.start() } else { port + 1 };
            let mut others = self.used.get(&(space, port)).into_iter().flatten();
            if others.all(|other| differs(user, other)) {
                return Ok(port);
            }
        }
        Err(Errno::ADDRNOTAVAIL)
    }

    /// Checks that an identifier may use the port of its own address.
    fn check(&self, space: u16, user: &User, reuses: bool) -> Result<(), Errno> {
        let others = self.used.get(&(space, user.source.port())).into_iter().flatten();
        for other in others.filter(|other| other.id != user.id) {
            let families = user.source.is_ipv4() != other.source.is_ipv4();
            if reuses && other.reuses_address || user.one_family && other.one_family && families {
                continue;
            }
            if is_any(&user.source) || is_any(&other.source) {
                return Err(Errno::ADDRNOTAVAIL);
            }
            if user.source.ip() == other.source.ip() {
                return Err(Errno::ADDRINUSE);
            }
        }
        Ok(())
    }

    /// Makes the address of an identifier its own: from now on, no other may use it.
    ///
    /// # Errors
    /// The errors of [`Self::take`].
    pub fn claim(&mut self, space: u16, user: &User) -> Result<(), Errno> {
        self.check(space, user, false)?;
        self.change(space, user.source.port(), user.id, |own| own.reuses_address = false);
        Ok(())
    }

    /// Changes what is known of a user.
    pub fn change(&mut self, space: u16, port: u16, id: u32, changes: impl Fn(&mut User)) {
        let users = self.used.get_mut(&(space, port)).into_iter().flatten();
        users.filter(|user| user.id == id).for_each(changes);
    }

    /// Returns the identifiers with a port, the last one first.
    pub fn users(&self, space: u16, port: u16) -> impl Iterator<Item = u32> {
        let users = self.used.get(&(space, port)).into_iter().flatten().rev();
        users.map(|user| user.id)
    }

    /// Gives the port of an identifier back.
    pub fn release(&mut self, space: u16, port: u16, id: u32) {
        if let Some(users) = self.used.get_mut(&(space, port)) {
            users.retain(|user| user.id != id);
            if users.is_empty() {
                self.used.remove(&(space, port));
            }
        }
    }
}

/// Returns whether an address stands for all.
fn is_any(address: &SocketAddr) -> bool {
    address.ip().is_unspecified()
}

/// Returns whether two users of a port can be told apart (`cma_port_is_unique`).
fn differs(one: &User, other: &User) -> bool {
    let known = |address: &SocketAddr| !is_any(address);
    let sources = known(&one.source) && known(&other.source);
    if sources && one.source.ip() != other.source.ip() {
        return true;
    }
    let (Some(to), Some(other_to)) = (one.dest, other.dest) else { return false };
    let ports = to.port() != 0 && other_to.port() != 0 && to.port() != other_to.port();
    ports || known(&to) && known(&other_to) && to.ip() != other_to.ip()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(id: u32, source: &str) -> User {
        let source = source.parse().expect("an address");
        User { id, source, dest: None, reuses_address: false, one_family: true }
    }

    #[test]
    fn an_address_has_one_user() {
        let mut ports = Ports::new(40000..=40003, false);
        assert_eq!(ports.take(1, user(1, "127.0.0.1:5000")), Ok(5000));
        assert_eq!(ports.take(1, user(2, "127.0.0.1:5000")), Err(Errno::ADDRINUSE));
        assert_eq!(ports.take(1, user(2, "0.0.0.0:5000")), Err(Errno::ADDRNOTAVAIL));
        assert_eq!(ports.take(1, user(2, "127.0.0.2:5000")), Ok(5000));
        assert_eq!(ports.take(1, user(3, "[::]:5000")), Ok(5000));
        assert_eq!(ports.take(2, user(4, "127.0.0.1:5000")), Ok(5000));
        assert_eq!(ports.take(1, user(5, "127.0.0.1:80")), Err(Errno::ACCESS));
        ports.release(1, 5000, 1);
        assert_eq!(ports.take(1, user(6, "127.0.0.1:5000")), Ok(5000));
    }

    #[test]
    fn users_share_an_address_until_one_listens() {
        let mut ports = Ports::new(40000..=40003, false);
        let shared = |id| User { reuses_address: true, ..user(id, "127.0.0.1:5000") };
        assert_eq!(ports.take(1, shared(1)), Ok(5000));
        assert_eq!(ports.claim(1, &shared(1)), Ok(()));
        assert_eq!(ports.take(1, shared(2)), Err(Errno::ADDRINUSE));
    }

    #[test]
    fn few_share_a_port() {
        let mut ports = Ports::new(40000..=40003, false);
        let shared = |id| User { reuses_address: true, ..user(id, "127.0.0.1:5000") };
        let taken = (0..2 * USERS_MAX as u32).filter(|id| ports.take(1, shared(*id)).is_ok());
        assert_eq!(taken.count(), USERS_MAX);
        assert_eq!(ports.take(1, shared(1)), Err(Errno::NOMEM));
    }

    #[test]
    fn ports_of_the_range_are_given_in_turn() {
        let mut ports = Ports::new(40000..=40003, false);
        let mut all: Vec<_> =
            (1..=4).map(|id| ports.take(1, user(id, "127.0.0.1:0")).expect("a port")).collect();
        all.sort_unstable();
        assert_eq!(all, [40000, 40001, 40002, 40003]);
        assert_eq!(ports.take(1, user(5, "127.0.0.1:0")), Err(Errno::ADDRNOTAVAIL));
        assert!(ports.take(1, user(6, "127.0.0.2:0")).is_ok());
        assert_eq!(parse("32768\t60999\n"), Some(DEFAULT));
        assert_eq!((parse("9 1"), parse("x")), (None, None));
    }
}
