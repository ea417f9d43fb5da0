//! iWARP connections that many threads begin and end, in guests with two processors: everything
//! ends, no objects are left, and the driver can be unbound afterwards.
//!
//! Shows: iwarp

use anyhow::{Context, Result, ensure};
use vrnic_qemu::adapter::Transport;
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::{Options, Pair, ready};
use vrnic_tests::commands::{LONG_TIMEOUT, PCI, SHORT_TIMEOUT, listens, said, settles, stop};
use vrnic_tests::harness::{Case, Suite};
use vrnic_tests::object_counts::ObjectCounts;

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let cases = vec![
        Case::new("queue_pairs_that_several_threads_connect_and_destroy", |pair| {
            connects(pair, &pair.a, 1)
        }),
        Case::new("the_same_within_a_guest", |pair| connects(pair, &pair.b, 2)),
        Case::new("a_user_cannot_connect_the_queue_pair_of_another_user", owners),
        Case::new("listeners_that_end_under_their_connections", |pair| listen(pair, "")),
        Case::new("more_requests_at_once_than_the_backlog", |pair| listen(pair, "--backlog 2")),
        Case::new("requests_that_are_answered_together", |pair| {
            listen(pair, "--backlog 2 --together 5 --rounds 2 --threads 2 --each 5")
        }),
    ];
    let personality = Transport::Iwarp;
    // The memory is that of `smp`, whose snapshot the guests start from.
    let options = Options { personality, cpus: 2, memory: 2048, ..Options::default() };
    Ok(Suite::new(options, cases))
}

/// Threads of `client` connect and destroy QPs. The server is in guest b. For each connection, the
/// client's private data say what the server must do.
fn connects(pair: &Pair, client: &Guest, seed: u32) -> Result<()> {
    let guests = [&pair.a, &pair.b];
    let before = [ObjectCounts::take(pair, guests[0])?, ObjectCounts::take(pair, guests[1])?];
    let server = pair.b.agent().start("modprobe rdma_ucm; exec vrnic-stress answer")?;
    listens(&pair.b)?;
    let call =
        format!("modprobe rdma_ucm; exec vrnic-stress connect {} --seed {seed}", pair.b.ip());
    let said = client.check(&call, LONG_TIMEOUT);
    // The message of a server that has failed explains the failure.
    let server = stop(server)?;
    let said = said.with_context(|| server.stderr.clone())?;
    eprintln!("{}", said.trim());
    for what in ["established", "rejected", "refused", "destroyed"] {
        ensure!(said.contains(what) && !said.contains(&format!("{what}: 0")), "{said}");
    }
    for (before, guest) in before.iter().zip(guests) {
        before.unchanged_within(pair, guest, SHORT_TIMEOUT).context("something is left")?;
        unbind(guest)?;
    }
    Ok(())
}

/// A user who knows the number of another user's QP can neither connect it nor accept a request
/// with it. The owner connects it afterwards.
///
/// Shows: iwarp: a user cannot connect the queue pair of another user
fn owners(pair: &mut Pair) -> Result<()> {
    let before = ObjectCounts::take(pair, &pair.a)?;
    let server = pair.b.agent().start("modprobe rdma_ucm; exec vrnic-stress answer")?;
    listens(&pair.b)?;
    pair.a.check("modprobe rdma_ucm; rm -f /tmp/own /tmp/go", SHORT_TIMEOUT)?;
    let own = format!("exec vrnic-stress own {} --when /tmp/go >/tmp/own 2>&1", pair.b.ip());
    let owner = pair.a.agent().start(&own)?;
    settles(&pair.a, "grep -q '^queue pair' /tmp/own", 20)?;
    let seize = format!(
        "exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all \
         vrnic-stress seize {} $(sed -n 's/^queue pair //p' /tmp/own)",
        pair.a.ip()
    );
    let seized = pair.a.agent().run(&seize, SHORT_TIMEOUT)?;
    pair.a.check("touch /tmp/go", SHORT_TIMEOUT)?;
    let owner = owner.wait(SHORT_TIMEOUT)?;
    ensure!(seized.ok(), "{}", said(&seized));
    ensure!(owner.ok(), "the owner: {}", pair.a.check("cat /tmp/own", SHORT_TIMEOUT)?);
    stop(server)?;
    before.unchanged_within(pair, &pair.a, SHORT_TIMEOUT).context("something is left")
}

/// Connections stay when the listener that has accepted them ends. A listener gets all requests
/// that arrive, also if they are more than its backlog, or if it answers none before it has got
/// several.
fn listen(pair: &Pair, options: &str) -> Result<()> {
    let guest = &pair.a;
    let before = ObjectCounts::take(pair, guest)?;
    let call = format!("modprobe rdma_ucm; exec vrnic-stress listen {} {options}", guest.ip());
    let said = guest.check(&call, LONG_TIMEOUT)?;
    ensure!(said.starts_with("ok "), "{said}");
    before.unchanged_within(pair, guest, SHORT_TIMEOUT).context("something is left")?;
    unbind(guest)
}

/// Unbinds the adapter from its driver, and binds it again.
fn unbind(guest: &Guest) -> Result<()> {
    let script = format!(
        "name=$(basename {PCI}); cd /sys/bus/pci/drivers/vrnic && echo $name > unbind && \
         echo $name > bind"
    );
    guest.check(&script, SHORT_TIMEOUT)?;
    ready(guest)
}
