//! Programs that connect by the connection manager.

use libtest_mimic::{Failed, Trial};
use vrnic_stock::{is_installed, plugin};

use crate::{PCAP, RULES, shell, shell_with};

/// Programs of librdmacm and perftest: a name, the server and the client.
const PAIRS: &[(&str, &str, &str)] = &[
    ("rping", "rping -s -a 127.0.0.1 -C 20 -V", "rping -c -a 127.0.0.1 -C 20 -V"),
    ("rping to any address", "rping -s -C 5", "rping -c -a 127.0.0.1 -C 5"),
    ("rping by IPv6", "rping -s -a ::1 -C 5", "rping -c -a ::1 -C 5"),
    ("rping with own QPs", "rping -s -q -a 127.0.0.1 -C 5", "rping -c -q -a 127.0.0.1 -C 5"),
    ("rstream", "rstream -S 4096 -C 10 -I 100", "rstream -S 4096 -C 10 -I 100 -s 127.0.0.1"),
];

/// Programs that make several connections: a name, the server and the client.
const GROUPS: &[(&str, &str, &str)] = &[
    ("ucmatose", "ucmatose -c 20 -C 10", "ucmatose -c 20 -C 10 -s 127.0.0.1"),
    ("ucmatose that moves", "ucmatose -m -c 5", "ucmatose -m -c 5 -s 127.0.0.1"),
    ("udaddy", "udaddy -c 5 -C 10", "udaddy -c 5 -C 10 -s 127.0.0.1"),
    // The second connection is for the data: its server listens when the first one exists.
    ("ib_write_bw -R", "ib_write_bw -R -n 20", "ib_write_bw -R -n 20 127.0.0.1"),
    ("ib_send_lat -R", "ib_send_lat -R -n 20", "ib_send_lat -R -n 20 127.0.0.1"),
];

/// Returns a script that runs a server, and a client after some time. If the server began to listen
/// between two requests of the client, it waits for as many as were refused, so both start again,
/// with more time between them.
fn together(server: &str, client: &str) -> String {
    format!(
        "for pause in 0.2 1 5 20; do {server} & server=$!; sleep $pause; {client} >client.txt 2>&1 \
         && {{ wait $server; exit; }}; kill $server; wait $server; cat client.txt; \
         grep -q 'REJECTED[,;] error: 8\\|CM event bl blka 8\\|UNREACHABLE, error: 1$' client.txt || exit 1; \
         done; exit 1"
    )
}

/// Returns a script that runs a server, and a client again and again until the server listens.
fn until(server: &str, client: &str) -> String {
    format!(
        "{server} & server=$!; n=0; until {client}; do n=$((n + 1)); [ $n -lt 200 ] || exit 1; \
         kill -0 $server || exit 1; sleep 0.05; done; wait $server"
    )
}

/// What a trial does.
type Trying = Box<dyn FnOnce() -> Result<(), Failed> + Send>;

/// Returns the trials.
pub(crate) fn trials(is_demanded: bool) -> Vec<Trial> {
    let pair = |&(name, server, client): &'static (&str, &str, &str)| {
        let run = move || shell(1, &until(server, client))?.ended(0).map(drop);
        (name, Box::new(run) as Trying)
    };
    let group = |&(name, server, client): &'static (&str, &str, &str)| {
        let run = move || {
            let folder = tempfile::tempdir()?;
            let script = together(server, client);
            shell(1, &format!("cd {}; {script}", folder.path().display()))?.ended(0).map(drop)
        };
        (name, Box::new(run) as Trying)
    };
    let mut all: Vec<_> = PAIRS.iter().map(pair).chain(GROUPS.iter().map(group)).collect();
    all.push(("rping between two adapters", Box::new(two)));
    all.push(("mckey", Box::new(mckey)));
    all.push(("cmtime", Box::new(cmtime)));
    all.push(("rping without a server", Box::new(nobody)));
    all.push(("rping whose peer is killed", Box::new(killed)));
    all.push(("rping in a capture", Box::new(captured)));
    all.push(("rping with a lost message", Box::new(lost)));
    let mut trials = Vec::new();
    for (name, run) in all {
        let program = name.split(' ').next().unwrap_or_default();
        let ignored = plugin().is_none() || !is_installed(program);
        trials.push(Trial::test(name, run).with_ignored_flag(ignored && !is_demanded));
    }
    trials
}

/// Connects from the first adapter to the second one, and to the first one from the second.
fn two() -> Result<(), Failed> {
    let (first, second) = ("127.0.0.1", "127.0.0.2");
    for (server, client) in [(second, first), (first, second)] {
        let server_command = format!("rping -s -a {server} -C 5 -V");
        let client_command = format!("rping -c -a {server} -I {client} -C 5 -V");
        shell(2, &until(&server_command, &client_command))?.ended(0)?;
    }
    Ok(())
}

/// Sends to a multicast group until its member has got all messages.
fn mckey() -> Result<(), Failed> {
    let options = "-m 239.1.1.1 -b 127.0.0.1 -C 10";
    let script = format!(
        "mckey {options} & member=$!; n=0; while kill -0 $member 2>/dev/null; do n=$((n + 1)); \
         [ $n -lt 100 ] || exit 1; timeout 5 mckey {options} -s; done; wait $member"
    );
    shell(1, &script)?.ended(0).map(drop)
}

/// Makes a hundred connections at once. The server of cmtime does not end by itself.
fn cmtime() -> Result<(), Failed> {
    let script = "cmtime -c 100 & server=$!; \
                  while timeout 60 cmtime -c 1 -s 127.0.0.1 | grep -q REJECTED; do \
                  kill -0 $server || exit 1; done; \
                  timeout 60 cmtime -c 100 -s 127.0.0.1; status=$?; kill $server; exit $status";
    shell(1, script)?.ended(0).map(drop)
}

/// The messages of connection managers are packets of queue pair 1 in captures: requests, replies,
/// and all others of a connection.
fn captured() -> Result<(), Failed> {
    /// The begin of each message, and the kinds: REQ, REP, RTU, DREQ and DREP.
    const BEGIN: [u8; 8] = [1, 7, 2, 3, 0, 0, 0, 0];
    const KINDS: [u8; 5] = [0x10, 0x13, 0x14, 0x15, 0x16];
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("a.pcapng");
    let script = until("rping -s -a 127.0.0.1 -C 1", "rping -c -a 127.0.0.1 -C 1");
    shell_with(1, &[(PCAP, file.as_os_str())], &script)?.ended(0)?;
    let bytes = std::fs::read(file)?;
    let messages = bytes.windows(18).filter(|bytes| bytes.starts_with(&BEGIN) && bytes[16] == 0);
    let found: Vec<_> = messages.map(|bytes| bytes[17]).collect();
    let all = KINDS.iter().all(|kind| found.contains(kind));
    if all { Ok(()) } else { Err(format!("messages of these kinds: {found:x?}").into()) }
}

/// A message of a connection manager that a rule drops is sent again.
fn lost() -> Result<(), Failed> {
    let script = until("rping -s -a 127.0.0.1 -C 1", "rping -c -a 127.0.0.1 -C 1");
    shell_with(1, &[(RULES, "drop qp=1 nth=2".as_ref())], &script)?.ended(0).map(drop)
}

/// A client without a server is rejected, because nobody listens.
fn nobody() -> Result<(), Failed> {
    let text = shell(1, "rping -c -a 127.0.0.1 -C 1; [ $? != 0 ]")?.ended(0)?;
    let rejected = text.contains("RDMA_CM_EVENT_REJECTED, error 8");
    if rejected { Ok(()) } else { Err(text.into()) }
}

/// A client whose server is killed sees the end of the connection.
fn killed() -> Result<(), Failed> {
    let script = "rping -s -a 127.0.0.1 -v >server.txt 2>&1 & server=$!; \
                  (until grep -q ping server.txt; do sleep 0.05; done; kill -9 $server) & \
                  n=0; while [ $n -lt 200 ]; do n=$((n + 1)); \
                  timeout 60 rping -c -a 127.0.0.1 >client.txt 2>&1; status=$?; \
                  grep -q DISCONNECT client.txt && exit 0; \
                  [ $status = 124 ] && break; sleep 0.05; done; cat client.txt; exit 1";
    let folder = tempfile::tempdir()?;
    let script = format!("cd {}; {script}", folder.path().display());
    shell(1, &script)?.ended(0).map(drop)
}
