//! Devices that are removed while connections are open.
//!
//! Shows: iwarp

use anyhow::{Context, Result, ensure};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::{Pair, ready};
use vrnic_tests::commands::{
    PCI, SHORT_TIMEOUT, connect, endless_pings, listens, registration, said, serve_pings, settles,
    stop,
};
use vrnic_tests::harness::Case;
use vrnic_tests::places::{Place, pod, talk, usable};

use super::{empty, transfers};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("device_of_the_client_removed", client_removed),
        Case::new("device_of_the_server_removed", server_removed),
        Case::new("device_unbound_under_a_listener", listener),
        Case::new("network_device_of_a_pod_removed", pods),
        Case::new("adapter_of_pods_reset", pods_reset),
    ]
}

/// Shell words that unbind the adapter from its driver, and bind it again.
const UNBIND: &str = "name=$(basename PCI); cd /sys/bus/pci/drivers/vrnic && echo $name > unbind && \
     ! ls /sys/class/infiniband/* 2>/dev/null && echo $name > bind";

/// Unbinds the adapter from its driver, and binds it again.
fn unbind(guest: &Guest) -> Result<()> {
    guest.check(&UNBIND.replace("PCI", PCI), SHORT_TIMEOUT)?;
    ready(guest)
}

/// Removes the PCI device, and scans for it again.
fn remove(guest: &Guest) -> Result<()> {
    guest.check(
        &format!("echo 1 > {PCI}/remove; ! ls /sys/class/infiniband/* 2>/dev/null"),
        SHORT_TIMEOUT,
    )?;
    guest.check("echo 1 > /sys/bus/pci/rescan", SHORT_TIMEOUT)?;
    ready(guest)
}

/// The client gets an event that its device is removed, and the server gets an event that the
/// connection has ended.
fn client_removed(pair: &mut Pair) -> Result<()> {
    for away in [remove as fn(&Guest) -> Result<()>, unbind] {
        let server = serve_pings(&pair.b)?;
        let call = endless_pings(pair.b.ip());
        let client = pair.a.agent().start(&call)?;
        transfers(pair)?;
        away(&pair.a)?;
        let output = client.wait(SHORT_TIMEOUT).context("the client hangs")?;
        ensure!(
            said(&output).contains("cma detected device removal"),
            "the client says: {}",
            said(&output)
        );
        settles(&pair.b, "! rdma res show cm_id | grep -q 'state CONNECT'", 20)?;
        stop(server)?;
        empty(&pair.a)?;
        empty(&pair.b)?;
        works(pair)?;
    }
    Ok(())
}

/// The client gets an event that the connection has ended.
fn server_removed(pair: &mut Pair) -> Result<()> {
    for away in [remove as fn(&Guest) -> Result<()>, unbind] {
        let server = serve_pings(&pair.b)?;
        let call = endless_pings(pair.b.ip());
        let client = pair.a.agent().start(&call)?;
        transfers(pair)?;
        away(&pair.b)?;
        let output = client.wait(SHORT_TIMEOUT).context("the client hangs")?;
        ensure!(said(&output).contains("DISCONNECT EVENT"), "the client says: {}", said(&output));
        stop(server)?;
        empty(&pair.a)?;
        works(pair)?;
    }
    Ok(())
}

/// A listener at a wildcard address also listens on a device that appears later.
fn listener(pair: &mut Pair) -> Result<()> {
    let server = serve_pings(&pair.b)?;
    unbind(&pair.b)?;
    let call = format!("rping -c -a {} -C 5", pair.b.ip());
    pair.a.check(&call, SHORT_TIMEOUT)?;
    stop(server)?;
    empty(&pair.b)
}

/// Waits until a guest has this many RDMA devices.
fn devices(guest: &Guest, count: u32) -> Result<()> {
    settles(guest, &format!("[ $(rdma dev show | wc -l) = {count} ]"), 60)
}

/// A macvlan device can be removed while connections use it. The programs at both ends get events,
/// and the network device does not wait for references.
fn pods(pair: &mut Pair) -> Result<()> {
    let (a, b) = (pod(&pair.a, 1)?, pod(&pair.b, 2)?);
    for away in ["a", "b"] {
        let server = pair.a.agent().start(&a.inside(&format!("rping -s -P -a {}", a.ip)))?;
        listens(&pair.a)?;
        let call = b.inside(&format!("rping -c -a {} -C 1000000", a.ip));
        let client = pair.b.agent().start(&call)?;
        transfers(pair)?;
        let (guest, last, says) = match away {
            "a" => (&pair.a, 1, "DISCONNECT EVENT"),
            _ => (&pair.b, 2, "cma detected device removal"),
        };
        guest.check(&format!("ip -n pod{last} link del mv{last}"), SHORT_TIMEOUT)?;
        let output = client.wait(SHORT_TIMEOUT).context("the client hangs")?;
        ensure!(said(&output).contains(says), "the client says: {}", said(&output));
        devices(guest, 1)?;
        guest.check("! dmesg | grep 'waiting for mv'", SHORT_TIMEOUT)?;
        stop(server)?;
        empty(&pair.a)?;
        empty(&pair.b)?;
        pod(guest, last)?;
        talk(&a, &b, None)?;
    }
    leave(&[a, b])
}

/// The RDMA devices of macvlan devices come back after a reset of the adapter.
fn pods_reset(pair: &mut Pair) -> Result<()> {
    let (a, b) = (pod(&pair.a, 1)?, pod(&pair.b, 2)?);
    let before = registration(&pair.a)?;
    pair.a.check(&format!("echo 1 > {PCI}/reset"), SHORT_TIMEOUT)?;
    settles(&pair.a, &format!("! rdma dev show | grep -q '^{before}:'"), 90)?;
    devices(&pair.a, 2)?;
    usable(&pair.a, "mv1", "ip netns exec pod1")?;
    talk(&a, &b, None)?;
    talk(&b, &a, None)?;
    leave(&[a, b])
}

/// Deletes the namespaces, and with them the macvlan devices and their RDMA devices.
fn leave(pods: &[Place<'_>]) -> Result<()> {
    for pod in pods {
        pod.delete()?;
        devices(pod.guest(), 1)?;
    }
    Ok(())
}

fn works(pair: &Pair) -> Result<()> {
    let (serve, call) = ("rping -V -C 10 -s", format!("rping -V -C 10 -c -a {}", pair.b.ip()));
    connect((&pair.b, serve), (&pair.a, &call)).map(drop)
}
