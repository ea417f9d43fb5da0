//! Programs below different supervisors that join one network.

use std::ffi::OsStr;
use std::path::Path;
use std::thread;

use libtest_mimic::{Failed, Trial};
use vrnic_stock::{is_installed, plugin};

use crate::{ADDRESS, JOIN, PCAP, Run, shell_with};

/// Programs of two members: a name, the server at 127.0.0.1, and the client at 127.0.0.2.
const PAIRS: &[(&str, &str, &str)] = &[
    ("rping", "rping -s -a 127.0.0.1 -C 20 -V", "rping -c -a 127.0.0.1 -C 20 -V"),
    ("rping to any address", "rping -s -C 5", "rping -c -a 127.0.0.1 -C 5"),
    ("udaddy", "udaddy -c 1 -C 10", "udaddy -c 1 -C 10 -s 127.0.0.1"),
    ("ib_write_bw", "ib_write_bw -x 1 -n 100", "ib_write_bw -x 1 -n 100 127.0.0.1"),
    ("ib_send_bw with UD", "ib_send_bw -x 1 -n 20 -c UD", "ib_send_bw -x 1 -n 20 -c UD 127.0.0.1"),
    ("ib_write_bw -R", "ib_write_bw -R -n 100", "ib_write_bw -R -n 100 127.0.0.1"),
];

/// Returns the trials.
pub(crate) fn trials(is_demanded: bool) -> Vec<Trial> {
    let trial = |name: &str, needs: &str, run: Box<dyn FnOnce() -> Result<(), Failed> + Send>| {
        let ignored = plugin().is_none() || !is_installed(needs);
        Trial::test(format!("members: {name}"), run).with_ignored_flag(ignored && !is_demanded)
    };
    let of_pair = |&(name, server, client): &'static (&str, &str, &str)| {
        let program = server.split(' ').next().unwrap_or_default();
        trial(name, program, Box::new(move || pair(server, client)))
    };
    let mut trials: Vec<_> = PAIRS.iter().map(of_pair).collect();
    trials.push(trial("free addresses, and taken ones", "sh", Box::new(addresses)));
    trials.push(trial("three of them", "rping", Box::new(three)));
    trials.push(trial("an address that nobody has", "rping", Box::new(nobody)));
    trials.push(trial("a peer whose program ends", "rping", Box::new(ended)));
    trials.push(trial("captures have packets of both directions", "rping", Box::new(captured)));
    trials
}

/// Runs a script in a folder below a supervisor of its own. The network of the folder is joined
/// with an address.
fn member(folder: &Path, address: &str, script: &str) -> Result<Run, Failed> {
    let network = folder.join("network");
    let variables: [(&str, &OsStr); 2] = [(JOIN, network.as_ref()), (ADDRESS, address.as_ref())];
    shell_with(1, &variables, &format!("cd {}; {script}", folder.display()))
}

/// Runs scripts at the same time, each as a member with an address.
fn members(folder: &Path, scripts: &[(&'static str, String)]) -> Result<(), Failed> {
    thread::scope(|scope| {
        let start = |(address, script): &(&'static str, String)| {
            let (address, script) = (*address, script.clone());
            scope.spawn(move || member(folder, address, &script)?.ended(0))
        };
        let running: Vec<_> = scripts.iter().map(start).collect();
        for ended in running.into_iter().map(thread::ScopedJoinHandle::join) {
            ended.map_err(|_| "a thread has panicked")??;
        }
        Ok(())
    })
}

/// Returns a script that runs a client again and again until its server is there.
fn repeated(client: &str) -> String {
    format!(
        "n=0; until {client} >client.txt 2>&1; do n=$((n + 1)); \
         [ $n -lt 300 ] || {{ cat client.txt; exit 1; }}; sleep 0.05; done"
    )
}

/// Runs a server and a client, each below a supervisor of its own.
fn pair(server: &str, client: &str) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    members(folder.path(), &[("127.0.0.1", server.into()), ("127.0.0.2", repeated(client))])
}

/// Members that name no address get free ones; one that another member has is refused.
fn addresses() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let (network, done) = (folder.path().join("network"), folder.path().join("done"));
    let show = "cat /sys/class/infiniband/vrnic0/ports/1/gids/1";
    let waits = format!("{show}; until [ -e {} ]; do sleep 0.01; done", done.display());
    let join: [(&str, &OsStr); 1] = [(JOIN, network.as_ref())];
    thread::scope(|scope| {
        let first = scope.spawn(|| shell_with(1, &join, &waits)?.ended(0));
        while !network.join("127.0.0.1.sock").exists() && !first.is_finished() {
            thread::yield_now();
        }
        let second = shell_with(1, &join, show).and_then(|run| run.ended(0));
        let taken = member(folder.path(), "127.0.0.1", show).and_then(|run| run.ended(125));
        std::fs::write(&done, "")?;
        let first = first.join().map_err(|_| "a thread has panicked")??;
        let (second, taken) = (second?, taken?);
        let right = first.ends_with(":7f00:0001\n")
            && second.ends_with(":7f00:0002\n")
            && taken.contains("has the address 127.0.0.1; name another one by --as");
        if right { Ok(()) } else { Err((first + &second + &taken).into()) }
    })
}

/// Two clients of one server, each below a supervisor of its own.
fn three() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let server = "rping -s -P -a 127.0.0.1 & server=$!; \
                  until [ -e a -a -e b ]; do sleep 0.05; done; kill $server";
    let client = |name: &str| {
        format!(
            "n=0; until rping -c -a 127.0.0.1 -C 5; do n=$((n + 1)); [ $n -lt 300 ] || exit 1; \
             sleep 0.05; done; touch {name}"
        )
    };
    let scripts =
        [("127.0.0.1", server.into()), ("127.0.0.2", client("a")), ("127.0.0.3", client("b"))];
    members(folder.path(), &scripts)
}

/// The search for an address that no member has ends with an event.
fn nobody() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let script = "rping -c -a 127.0.0.9 -C 1; [ $? != 0 ]";
    let text = member(folder.path(), "127.0.0.2", script)?.ended(0)?;
    let right = text.contains("RDMA_CM_EVENT_ADDR_ERROR, error -110");
    if right { Ok(()) } else { Err(text.into()) }
}

/// A client sees the end of a connection to a member whose program is killed.
fn ended() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let server = "rping -s -a 127.0.0.1 -v >server.txt 2>&1 & server=$!; \
                  until grep -q ping server.txt; do sleep 0.05; done; kill -9 $server";
    let client = "n=0; while [ $n -lt 200 ]; do n=$((n + 1)); \
                  timeout 60 rping -c -a 127.0.0.1 >client.txt 2>&1; status=$?; \
                  grep -q DISCONNECT client.txt && exit 0; \
                  [ $status = 124 ] && break; sleep 0.05; done; cat client.txt; exit 1";
    members(folder.path(), &[("127.0.0.1", server.into()), ("127.0.0.2", client.into())])
}

/// The capture of a member has requests, which it sends, and replies, which arrive.
fn captured() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let (network, file) = (folder.path().join("network"), folder.path().join("a.pcapng"));
    let client =
        format!("cd {}; {}", folder.path().display(), repeated("rping -c -a 127.0.0.1 -C 1"));
    let variables: [(&str, &OsStr); 3] =
        [(JOIN, network.as_ref()), (ADDRESS, "127.0.0.2".as_ref()), (PCAP, file.as_ref())];
    thread::scope(|scope| {
        let server = || member(folder.path(), "127.0.0.1", "rping -s -a 127.0.0.1 -C 1")?.ended(0);
        let server = scope.spawn(server);
        shell_with(1, &variables, &client)?.ended(0)?;
        server.join().map_err(|_| "a thread has panicked")??;
        let bytes = std::fs::read(&file)?;
        let has = |kind: u8| {
            let head = [1, 7, 2, 3, 0, 0, 0, 0];
            bytes.windows(18).any(|bytes| bytes.starts_with(&head) && bytes[16..] == [0, kind])
        };
        if has(0x10) && has(0x13) { Ok(()) } else { Err("messages are missing".into()) }
    })
}
