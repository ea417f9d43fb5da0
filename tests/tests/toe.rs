//! TCP connections that the adapter runs for programs (TOE), with the other guest's kernel as the
//! peer: the example `provider/examples/echo.c` is the server, `tests/programs/tcp.c` the client.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use vrnic_qemu::adapter::Transport;
use vrnic_qemu::agent::Running;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::commands::{COUNTERS, LONG_TIMEOUT, SHORT_TIMEOUT, said, settles, stop};
use vrnic_tests::harness::{self, Case};
use vrnic_tests::object_counts::ObjectCounts;

/// The port of the server.
const PORT: u16 = 7480;

fn main() -> ExitCode {
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
        Case::new("closed_by_the_client_before", |pair| leaves_nothing(pair, closed_before)),
        Case::new("reset_by_the_client", |pair| leaves_nothing(pair, reset)),
        Case::new("killed_server", |pair| leaves_nothing(pair, killed)),
        switch("rdma_after_bytes", "", ""),
        switch("late_first_receive_of_the_server", "late 1500", ""),
        switch("late_first_receive_of_the_client", "", "late 1500"),
        Case::new("refused_sockets", |pair| leaves_nothing(pair, refused)),
    ];
    harness::main(Options { personality: Transport::Iwarp, ..Options::default() }, cases)
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
/// directions are closed. The client closes its own behind its last byte or, with `close`, later.
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

/// A socket is refused if the client has closed its direction before the socket is given away.
fn closed_before(pair: &Pair) -> Result<()> {
    let server = serve(pair, "wait 700")?;
    pair.a.check(&client(pair, "0"), LONG_TIMEOUT)?;
    let served = server.wait(SHORT_TIMEOUT)?;
    let refused = "vrnicdv_attach_socket failed: Connection reset by peer";
    ensure!(!served.ok() && said(&served).contains(refused), "{}", said(&served));
    Ok(())
}

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

fn refused(pair: &Pair) -> Result<()> {
    let server = serve(pair, "push")?;
    let command = format!("vrnic_attach {} {PORT}", pair.b.ip());
    let output = pair.a.agent().run(&command, LONG_TIMEOUT)?;
    stop(server)?;
    ensure!(output.ok() && output.stdout == "all were refused\n", "{}", said(&output));
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
