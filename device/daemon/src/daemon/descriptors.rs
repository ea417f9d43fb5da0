//! Raises the limit of open descriptors. Each function needs as many as it has vectors, and some
//! more; on most systems a process starts with a limit of 1,024.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Config;

/// Number of descriptors of a function besides its vectors: sockets, connections, memory.
const FUNCTION: u64 = 16;
/// Number of descriptors of the daemon itself: output streams, epoll sets, events, monitor clients.
const DAEMON: u64 = 96;

/// Raises the limit of open descriptors as far as the system allows, and warns if the functions of
/// `config` may need more.
pub fn make_room(config: &Config) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let limit = match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::warn!(%error, "the limit of open descriptors cannot be raised");
            current
        }
    };
    let (functions, vectors) = (config.room, config.vectors);
    // Without a limit, all functions fit.
    let fit = limit.map_or(u64::MAX, |limit| fit(limit, vectors));
    if functions as u64 > fit {
        tracing::warn!(
            limit,
            functions,
            vectors,
            "the limit of file descriptors is enough for only {fit} functions that use all their \
             vectors; raise the hard limit (ulimit -Hn, LimitNOFILE=) or lower --vectors"
        );
    }
}

/// Returns the number of functions whose descriptors fit below a limit.
fn fit(limit: u64, vectors: u16) -> u64 {
    limit.saturating_sub(DAEMON) / (FUNCTION + u64::from(vectors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_fit_are_counted() {
        assert_eq!(fit(0, 65), 0);
        assert_eq!(fit(256, 65), 1);
        assert_eq!(fit(1024, 65), 11);
        assert_eq!(fit(1024, 2), 51);
    }
}
