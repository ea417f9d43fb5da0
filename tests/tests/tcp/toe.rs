//! TCP connections that the adapter runs for programs (TOE), with the other guest's kernel as the
//! peer: the example `provider/examples/echo.c` is the server, `tests/programs/tcp.c` the client.
//!
//! Shows: tcp

use std::net::Ipv4Addr;

use anyhow::{Result, ensure};
use vrnic_qemu::adapter::Transport;
use vrnic_qemu::agent::{Output, Running};
use vrnic_qemu::modules;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::commands::{COUNTERS, LONG_TIMEOUT, SHORT_TIMEOUT, said, settles, stop};
use vrnic_tests::harness::{Case, Suite};
use vrnic_tests::object_counts::ObjectCounts;
use vrnic_tests::rules::{self, fault, hits};

/// The port of the server.
const PORT: u16 = 7480;
/// The ports of the proxies that clients and other proxies connect to.
const ENTRANCE: u16 = 7481;
const EXIT: u16 = 7482;
/// Runs what follows as a user without privileges.
const NOBODY: &str = "exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all";
/// The kernel module that drops packets to simulate losses.
const NETEM: [&str; 1] = ["sch_netem"];
/// Fault rules of the daemon for packets of the adapter.
const FAULTS: [&str; 3] = ["drop", "duplicate", "reorder"];

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let echo = |name: &'static str, options: &'static str, bytes: u32, close: &'static str| {
        Case::new(name, move |pair: &mut Pair| {
            leaves_nothing(pair, |pair| echoes(pair, options, bytes, close))
        })
    };
    let switch = |name: &'static str, server: &'static str, client: &'static str| {
        Case::new(name, move |pair: &mut Pair| {
            leaves_nothing(pair, |pair| switches(pair, server, client))
        })
    };
    let cases = vec![
        echo("echo", "", 3_000_000, ""),
        echo("echo_of_pushed_bytes", "push", 3_000_000, "last"),
        echo("few_bytes", "push", 5, "last"),
        echo("bytes_that_the_kernel_has_received", "wait 700", 1_000_000, ""),
        echo("pushed_bytes_that_the_kernel_has_received", "push wait 700", 20_000, "last"),
        echo("receives_that_the_server_releases", "release", 20_000, "last"),
        echo("sends_by_the_length_of_the_queue", "length", 1_000_000, ""),
        echo("closed_by_the_client_before", "wait 700", 20_000, ""),
        echo("closed_by_the_client_before_and_without_bytes", "wait 700", 0, ""),
        Case::new("jumbo_frames", |pair| leaves_nothing(pair, jumbo)),
        Case::new("lossy", |pair| leaves_nothing(pair, lossy)),
        Case::new("both_ends_by_adapters", |pair| leaves_nothing(pair, dial)),
        Case::new("files", |pair| leaves_nothing(pair, files)),
        Case::new("busy_sockets", |pair| leaves_nothing(pair, busy)),
        Case::new("reset_by_the_client", |pair| leaves_nothing(pair, reset)),
        Case::new("killed_server", |pair| leaves_nothing(pair, killed)),
        switch("rdma_after_bytes", "", ""),
        switch("late_first_receive_of_the_server", "late 1500", ""),
        switch("late_first_receive_of_the_client", "", "late 1500"),
        Case::new("ends", |pair| leaves_nothing(pair, ends)),
        Case::new("rdma_after_bytes_of_kernel_clients", |pair| {
            leaves_nothing(pair, kernel_clients)
        }),
        Case::new("reservations", |pair| leaves_nothing(pair, reservations)),
        Case::new("proxy", |pair| leaves_nothing(pair, proxy)),
        Case::new("shown_by_rdma", |pair| leaves_nothing(pair, shown)),
        Case::new("refused_sockets", |pair| leaves_nothing(pair, refused)),
        Case::new("sockets_whose_connection_was_taken", |pair| leaves_nothing(pair, taken)),
        Case::new("nobody_waits_for_a_socket_while_the_daemon_is_stopped", stopped),
    ];
    let files = modules::files(&NETEM)?;
    let daemon = rules::arguments();
    Ok(Suite::new(
        Options {
            personality: Transport::Iwarp,
            guest_faults: true,
            files,
            daemon,
            ..Options::default()
        },
        cases,
    ))
}

/// Runs a case, which must leave no objects.
fn leaves_nothing(pair: &Pair, run: impl FnOnce(&Pair) -> Result<()>) -> Result<()> {
    let before = [ObjectCounts::take(pair, &pair.a)?, ObjectCounts::take(pair, &pair.b)?];
    run(pair)?;
    for (before, guest) in before.iter().zip([&pair.a, &pair.b]) {
        before.unchanged(pair, guest)?;
    }
    Ok(())
}

/// Starts the server in guest b.
fn serve(pair: &Pair, options: &str) -> Result<Running> {
    pair.b.agent().start(&format!("exec vrnicdv_echo {PORT} {options}"))
}

/// Returns the command of a client in guest a.
fn client(pair: &Pair, arguments: &str) -> String {
    format!("vrnic_tcp {} {PORT} {arguments}", pair.b.ip())
}

/// All bytes come back to the client, by frames to the kernel's TCP, and the server ends when both
/// directions are closed. The client closes its own after its last byte or, with `close`, later.
fn echoes(pair: &Pair, options: &str, bytes: u32, close: &str) -> Result<()> {
    let server = serve(pair, options)?;
    let compared = pair.a.check(&client(pair, &format!("{bytes} {close}")), LONG_TIMEOUT);
    let served = if compared.is_ok() { server.wait(SHORT_TIMEOUT)? } else { stop(server)? };
    let compared = compared.map_err(|error| error.context(said(&served)))?;
    ensure!(compared == format!("compared {bytes} bytes\n"), "{compared}");
    ensure!(served.ok(), "the server: {}", said(&served));
    ensure!(served.stdout == format!("answered {bytes} bytes\n"), "{}", said(&served));
    Ok(())
}

/// The kernels agree on segments of nearly 9,000 bytes. The adapter takes them, and sends shorter
/// ones.
///
/// Shows: tcp: frames of 9000 bytes
fn jumbo(pair: &Pair) -> Result<()> {
    let set = |mtu: u32| {
        [&pair.a, &pair.b].into_iter().try_for_each(|guest| {
            guest.check(&format!("ip link set eth0 mtu {mtu}"), SHORT_TIMEOUT).map(drop)
        })
    };
    set(9000)?;
    let echoed = echoes(pair, "push", 1_000_000, "last");
    set(1500)?;
    echoed
}

/// 1 % of the packets in each direction is lost, and 1 % comes twice or in another order.
///
/// Shows: tcp: lost packets
fn lossy(pair: &Pair) -> Result<()> {
    modules::load(&pair.a, &NETEM)?;
    let netem = "netem loss random 1% duplicate 1% delay 2ms reorder 90% limit 10000";
    pair.a.check(&format!("tc qdisc replace dev eth0 root {netem}"), SHORT_TIMEOUT)?;
    for action in FAULTS {
        fault(pair, &["add", action, "function=b", "prob=0.01"])?;
    }
    let echoed = echoes(pair, "release", 3_000_000, "last");
    let hits = hits(pair)?;
    fault(pair, &["clear"])?;
    pair.a.check("tc qdisc del dev eth0 root", SHORT_TIMEOUT)?;
    echoed?;
    ensure!(hits.len() == FAULTS.len() && hits.iter().all(|hit| *hit > 3), "{hits:?}");
    Ok(())
}

/// The client has a queue pair, too.
///
/// Shows: tcp: connections that a program makes and accepts by one call
fn dial(pair: &Pair) -> Result<()> {
    for bytes in [5, 2_000_000] {
        let server = serve(pair, "release length")?;
        let command = format!("vrnic_dial {} {PORT} {bytes}", pair.b.ip());
        let compared = pair.a.check(&command, LONG_TIMEOUT);
        let served = if compared.is_ok() { server.wait(SHORT_TIMEOUT)? } else { stop(server)? };
        let compared = compared.map_err(|error| error.context(said(&served)))?;
        ensure!(compared == format!("compared {bytes} bytes\n"), "{compared}");
        ensure!(served.stdout == format!("answered {bytes} bytes\n"), "{}", said(&served));
    }
    Ok(())
}

/// The example serves files. The client is a shell.
///
/// Shows: tcp: a server of files
fn files(pair: &Pair) -> Result<()> {
    let make = "mkdir -p /tmp/files && head -c 3000000 /dev/urandom > /tmp/files/large && \
                : > /tmp/files/empty && sha256sum < /tmp/files/large";
    let sum = pair.b.check(make, SHORT_TIMEOUT)?;
    let server = pair.b.agent().start(&format!("exec vrnicdv_files {PORT} /tmp/files 4"))?;
    let get = |path: &str, what: &str| {
        let open = format!("until exec 3<>/dev/tcp/{}/{PORT}; do sleep 0.1; done", pair.b.ip());
        let request = format!("printf \"GET /{path} HTTP/1.0\\r\\n\\r\\n\" >&3");
        pair.a.check(&format!("bash -c '{open}; {request}; {what}'"), LONG_TIMEOUT)
    };
    let got = [
        get("large", "tail -c 3000000 <&3 | sha256sum"),
        get("large", "head -c 15 <&3"),
        get("missing", "head -n 1 <&3"),
        get("empty", "cat <&3"),
    ];
    let served = if got[3].is_ok() { server.wait(SHORT_TIMEOUT)? } else { stop(server)? };
    let [large, head, missing, empty] =
        got.map(|text| text.map_err(|it| it.context(said(&served))));
    ensure!(large? == sum, "the bytes are others");
    ensure!(head? == "HTTP/1.0 200 OK" && missing? == "HTTP/1.0 404 Not Found\r\n");
    ensure!(empty? == "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n" && served.ok());
    Ok(())
}

/// Shows: tcp: resets by the client
fn reset(pair: &Pair) -> Result<()> {
    let server = serve(pair, "push")?;
    pair.a.check(&client(pair, "1000000 reset"), LONG_TIMEOUT)?;
    let served = server.wait(SHORT_TIMEOUT)?;
    ensure!(served.ok(), "the server: {}", said(&served));
    ensure!(served.stdout == "the client has reset the connection\n", "{}", said(&served));
    Ok(())
}

/// The kernel resets the connection of a program that is killed.
fn killed(pair: &Pair) -> Result<()> {
    let received = format!("cat {COUNTERS}/rx_bytes");
    let before: u64 = pair.b.check(&received, SHORT_TIMEOUT)?.trim().parse()?;
    let server = serve(pair, "push")?;
    let client = pair.a.agent().start(&format!("exec {}", client(pair, "2000000000")))?;
    settles(&pair.b, &format!("test $({received}) -gt {}", before + 100_000), 30)?;
    stop(server)?;
    let ended = client.wait(SHORT_TIMEOUT)?;
    ensure!(!ended.ok() && said(&ended).contains("Connection reset by peer"), "{}", said(&ended));
    Ok(())
}

/// Shows: tcp: sockets that cannot be taken over
fn refused(pair: &Pair) -> Result<()> {
    let server = serve(pair, "push")?;
    let command = format!("vrnic_attach {} {PORT}", pair.b.ip());
    let output = pair.a.agent().run(&command, LONG_TIMEOUT)?;
    stop(server)?;
    ensure!(output.ok() && output.stdout == "all were refused\n", "{}", said(&output));
    Ok(())
}

/// A user without privileges gets none by a socket whose connection the adapter has, and the port
/// stays with the connection: with IPv4, with IPv6, and with IPv4 by a socket of IPv6.
///
/// Shows: tcp: the socket of a program whose connection was taken
fn taken(pair: &Pair) -> Result<()> {
    for (guest, number) in [(&pair.a, 1), (&pair.b, 2)] {
        let add = format!("ip -6 addr replace fd07::{number}/64 dev eth0 nodad");
        guest.check(&add, SHORT_TIMEOUT)?;
    }
    let server = pair.b.agent().start(&format!("exec vrnic_taken {PORT}"))?;
    let mapped = format!("::ffff:{}", pair.b.ip());
    let run = [pair.b.ip(), "fd07::2", &mapped].into_iter().try_for_each(|address| {
        let command = format!("{NOBODY} vrnic_taken {address} {PORT}");
        let output = pair.a.agent().run(&command, LONG_TIMEOUT)?;
        let good = output.ok() && output.stdout == "sockets are closed and ports are taken\n";
        ensure!(good, "{address}: {}", said(&output));
        Ok(())
    });
    stop(server)?;
    run
}

/// While the daemon is stopped, a takeover waits for it, and those who look at the socket do not.
///
/// Shows: tcp: nobody waits for a socket while the daemon is stopped
fn stopped(pair: &mut Pair) -> Result<()> {
    let server = pair.b.agent().start(&format!("exec vrnic_taken {PORT}"))?;
    pair.a.check("rm -f /tmp/go /tmp/taken", SHORT_TIMEOUT)?;
    let command = format!("exec vrnic_taken {} {PORT} /tmp/go > /tmp/taken 2>&1", pair.b.ip());
    let taking = pair.a.agent().start(&command)?;
    settles(&pair.a, "grep -q connected /tmp/taken", 30)?;
    pair.daemon.pause()?;
    // The driver must have seen that the heartbeat stands still.
    let looked = pair.a.check("sleep 2; touch /tmp/go", SHORT_TIMEOUT);
    let looked = looked.and_then(|_| settles(&pair.a, "grep -q looked /tmp/taken", 10));
    pair.daemon.resume()?;
    let taking = taking.wait(SHORT_TIMEOUT)?;
    stop(server)?;
    let said = pair.a.check("cat /tmp/taken", SHORT_TIMEOUT)?;
    looked.map_err(|error| error.context(said.clone()))?;
    ensure!(taking.ok(), "{said}");
    Ok(())
}

/// The client sends while the server gives the socket to its queue pair. Segments that reach the
/// kernel meanwhile come again, and all bytes arrive in order.
///
/// Shows: tcp: sockets that are taken over while their peer sends
fn busy(pair: &Pair) -> Result<()> {
    for _ in 0..3 {
        let server = pair.b.agent().start(&format!("exec vrnic_busy {PORT}"))?;
        let sent = pair.a.check(&format!("vrnic_busy {} {PORT}", pair.b.ip()), LONG_TIMEOUT);
        let taken = if sent.is_ok() { server.wait(SHORT_TIMEOUT)? } else { stop(server)? };
        sent.map_err(|error| error.context(said(&taken)))?;
        ensure!(
            taken.ok() && taken.stdout.starts_with("received 4000000 bytes"),
            "{}",
            said(&taken)
        );
    }
    Ok(())
}

/// Both ends have queue pairs, and end connections in each way.
///
/// Shows: tcp: the end of connections, as programs with verbs see it
fn ends(pair: &Pair) -> Result<()> {
    let other = pair.b.agent().start(&format!("exec vrnic_ends {PORT}"))?;
    let command = format!("vrnic_ends {} {PORT}", pair.b.ip());
    let ended = pair.a.agent().run(&command, LONG_TIMEOUT)?;
    let other = if ended.ok() { other.wait(SHORT_TIMEOUT)? } else { stop(other)? };
    let said = format!("a: {}; b: {}", said(&ended), said(&other));
    ensure!(ended.stdout == "all ended\n" && other.stdout == ended.stdout, "{said}");
    Ok(())
}

/// Both ends are kernel clients, which log in by bytes and go on with messages, in each order of
/// events (driver/tests/kswitch). The client fails to load if anything is wrong.
///
/// Shows: tcp: kernel clients that begin RDMA on a connection that has carried bytes
fn kernel_clients(pair: &Pair) -> Result<()> {
    // The core warns of each protection domain whose peers are trusted with all memory.
    let said = "dmesg | grep kswitch: | grep -v 'unsafe global rkey'";
    pair.b.check("dmesg -C; insmod /vrnic/vrnic_kswitch.ko", SHORT_TIMEOUT)?;
    let peer: Ipv4Addr = pair.b.ip().parse()?;
    let load = format!("insmod /vrnic/vrnic_kswitch.ko peer={}", u32::from(peer));
    let loaded = pair.a.check(&format!("dmesg -C; {load}; r=$?; {said}; exit $r"), LONG_TIMEOUT);
    let served = pair.b.check(&format!("rmmod vrnic_kswitch; {said}; true"), LONG_TIMEOUT)?;
    loaded.map_err(|error| error.context(served.clone()))?;
    ensure!(served.is_empty(), "{served}");
    pair.a.check("rmmod vrnic_kswitch", SHORT_TIMEOUT)?;
    Ok(())
}

/// A program makes and releases reservations, and some are refused.
///
/// Shows: tcp: reservations of queue pairs for RDMA, whose shared CQ grows
fn reservations(pair: &Pair) -> Result<()> {
    let output = pair.a.agent().run("vrnic_reserve", LONG_TIMEOUT)?;
    ensure!(output.ok() && output.stdout == "all reservations were right\n", "{}", said(&output));
    Ok(())
}

/// A client in guest a has its bytes forwarded by a proxy in guest b, as messages to a proxy in
/// guest a, and from there to the server in guest b. It may close first or last, and reset.
///
/// Shows: tcp: a proxy from TCP to RDMA and back
fn proxy(pair: &Pair) -> Result<()> {
    let (a, b) = (pair.a.ip(), pair.b.ip());
    let exit = pair.a.agent().start(&format!("exec vrnicdv_proxy exit {EXIT} {b} {PORT}"))?;
    let entrance = pair.b.agent().start(&format!("exec vrnicdv_proxy {ENTRANCE} {a} {EXIT}"))?;
    let through = |server: &str, client: &str| -> Result<(Output, Output)> {
        let server = pair.b.agent().start(&format!("exec {server}"))?;
        settles(&pair.b, &format!("ss -ltn | grep -q :{PORT}"), 10)?;
        let asked = pair.a.agent().run(client, LONG_TIMEOUT)?;
        Ok((asked, server.wait(SHORT_TIMEOUT)?))
    };
    let echoed = |options: &str, client: &str, wanted: [&str; 2]| -> Result<()> {
        let client = format!("vrnic_tcp {b} {ENTRANCE} {client}");
        let (asked, served) = through(&format!("vrnicdv_echo {PORT} {options}"), &client)?;
        let said = format!("the client: {}; the server: {}", said(&asked), said(&served));
        ensure!([asked.stdout, served.stdout] == wanted.map(str::to_owned), "{said}");
        Ok(())
    };
    let all = ["compared 2000000 bytes\n", "answered 2000000 bytes\n"];
    let run = || -> Result<()> {
        settles(&pair.a, &format!("ss -ltn | grep -q :{EXIT}"), 10)?;
        settles(&pair.b, &format!("ss -ltn | grep -q :{ENTRANCE}"), 10)?;
        echoed("push", "2000000", all)?;
        echoed("push", "2000000 last", all)?;
        echoed("push", "5 last", ["compared 5 bytes\n", "answered 5 bytes\n"])?;
        echoed("push", "0", ["compared 0 bytes\n", "answered 0 bytes\n"])?;
        let reset = "the client has reset the connection\n";
        echoed("push", "2000000 reset", ["", reset])
    };
    let forwarded = run();
    let stopped = [stop(entrance)?, stop(exit)?];
    forwarded.map_err(|error| error.context(stopped.map(|it| said(&it)).join("; ")))
}

/// The queue pair of a server is among those of the device, for those who ask for details of the
/// driver: the core shows those of driver types to nobody else.
///
/// Shows: tcp: queue pairs with streams in rdma resource show
fn shown(pair: &Pair) -> Result<()> {
    let server = serve(pair, "push")?;
    settles(&pair.b, &format!("ss -ltn | grep -q :{PORT}"), 10)?;
    let shown = pair.b.check("rdma -dd resource show qp", SHORT_TIMEOUT);
    stop(server)?;
    let shown = shown?;
    ensure!(shown.lines().any(|line| line.contains("comm vrnicdv_echo")), "{shown}");
    Ok(())
}

/// A connection carries bytes, and then RDMA messages, between two adapters.
fn switches(pair: &Pair, server: &str, client: &str) -> Result<()> {
    let serving = pair.b.agent().start(&format!("exec vrnicdv_switch {PORT} {server}"))?;
    settles(&pair.b, &format!("ss -ltn | grep -q :{PORT}"), 10)?;
    let command = format!("vrnicdv_switch {} {PORT} {client}", pair.b.ip());
    let asked = pair.a.agent().run(&command, LONG_TIMEOUT)?;
    let served = if asked.ok() { serving.wait(SHORT_TIMEOUT)? } else { stop(serving)? };
    ensure!(
        asked.ok() && served.ok(),
        "the client: {}; the server: {}",
        said(&asked),
        said(&served)
    );
    ensure!(asked.stdout == "wrote 262144 bytes on the connection\n", "{}", said(&asked));
    ensure!(served.stdout == "read 262144 bytes on the connection\n", "{}", said(&served));
    Ok(())
}
