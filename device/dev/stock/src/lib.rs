//! Stock programs of verbs, from the packages ibverbs-utils and perftest, for tests that run them
//! below `vrnic exec`, the programs that show the rules of the checker, and the files that these
//! tests need.
#![forbid(unsafe_code)]

pub mod checked;
pub mod sarif;

use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

/// Returns a script that runs a program as a server and as a client, which starts when the server
/// listens at a TCP port that no other test uses. If the server ends before, so does the script.
///
/// # Errors
/// Returns an error if no TCP port is free.
pub fn pair(server: &str, client: &str) -> io::Result<String> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let listens = format!("grep -q \":{port:04X} .* 0A \" /proc/net/tcp /proc/net/tcp6");
    let once = format!(
        "{server} -p {port} & server=$!; until {listens}; do \
         kill -0 $server || exit 1; sleep 0.05; done; \
         {client} -p {port} localhost && wait $server"
    );
    // The server of ibv_xsrq_pingpong sends while its client still connects, and does not look
    // whether that failed. If the client is late, on a busy machine, both wait for ever.
    let again = "s=$?; [ $s = 124 ] || exit $s";
    let tries = format!("for n in 1 2 3; do timeout 40 sh -c '{once}'; {again}; done; exit 124");
    Ok(if server.starts_with("ibv_xsrq") { tries } else { once })
}

/// Returns whether the system has a program.
#[must_use]
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}

/// Returns the plugin of libibverbs that `VRNIC_PLUGIN` names, or that has been built.
#[must_use]
pub fn plugin() -> Option<PathBuf> {
    let set = std::env::var_os("VRNIC_PLUGIN").map(PathBuf::from);
    set.filter(|path| path.exists()).or_else(|| built("libvrnic.so"))
}

/// Returns a file that has been built with one of the profiles for use.
#[must_use]
pub fn built(name: &str) -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target");
    let mut all = ["quick", "release"].map(|profile| target.join(profile).join(name)).into_iter();
    all.find(|path| path.exists())
}
