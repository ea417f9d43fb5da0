//! Room for descriptors. Each function takes as many as its VMM gives it vectors, and some more; a
//! process starts with room for 1,024 on most systems.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Config;

/// Descriptors of a function beside its vectors: sockets, connections, guest memory, doorbells.
const FUNCTION: u64 = 16;
/// Descriptors of the daemon itself: streams, epoll sets, bells, watchers.
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
    // No limit is room for all.
    let fit = limit.map_or(u64::MAX, |limit| fit(limit, vectors));
    if functions as u64 > fit {
        tracing::warn!(
            limit,
            functions,
            vectors,
            "there are file descriptors for {fit} functions with all their vectors in use; \
             raise the hard limit (ulimit -Hn, LimitNOFILE=) or lower --vectors"
        );
    }
}

/// Functions that have room below a limit.
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
