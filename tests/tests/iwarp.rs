//! Adapters of iWARP: the device, its pairing with the network card, and connections over TCP of
//! the adapter.

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use vrnic_qemu::adapter::Personality;
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::{Options, Pair, ready};
use vrnic_tests::bench::{self, Case};
use vrnic_tests::talk::{SHORT, netdev_up, recovers, registration, reload, said, settles};

fn main() -> ExitCode {
    let cases = vec![
        Case::new("device", device),
        Case::new("reliable_connections_alone", connections_alone),
        Case::new("card_goes_and_comes", card),
        Case::new("module_without_card", module_without_card),
        Case::new("reload", |pair| reload(&pair.a, "")),
    ];
    bench::main(Options { personality: Personality::Iwarp, ..Options::default() }, cases)
}

/// Tools see a device of iWARP, whose one GID is the MAC of its port.
fn device(pair: &mut Pair) -> Result<()> {
    let guest = &pair.a;
    let text = guest.check("rdma dev show", SHORT)?;
    ensure!(text.contains("node_type rnic protocol iw"), "rdma says: {text}");
    let text = guest.check("rdma link show", SHORT)?;
    ensure!(text.contains("state ACTIVE") && text.contains("netdev eth0"), "rdma says: {text}");
    let text = guest.check("ibv_devinfo -v", SHORT)?;
    for line in ["iWARP (1)", "Ethernet", "ATOMIC_NONE", "max_mcast_grp:\t\t\t0\n"] {
        ensure!(text.contains(line), "no '{line}' in\n{text}");
    }
    let mac = guest.setup().adapter.mac.replace(':', "");
    let gids = guest.check("cat /sys/class/infiniband/vrnic*/ports/1/gids/*", SHORT)?;
    ensure!(gids.replace(':', "").trim() == format!("{mac}{}", "0".repeat(20)), "GIDs: {gids}");
    let shown = pair.function("a")?;
    ensure!(shown.contains("\"enabled\": true"), "the daemon says: {shown}");
    Ok(())
}

/// A program that wants a datagram QP gets none.
fn connections_alone(pair: &mut Pair) -> Result<()> {
    let output = pair.a.agent().run("exec ibv_ud_pingpong", SHORT)?;
    ensure!(!output.ok(), "ibv_ud_pingpong works: {}", said(&output));
    Ok(())
}

/// Returns the name of the virtio device that is the guest's network card.
fn card_of(guest: &Guest) -> Result<String> {
    let name = guest.check("basename $(readlink /sys/class/net/eth0/device)", SHORT)?;
    Ok(name.trim().to_owned())
}

/// Binds the guest's network card to its driver, or unbinds it.
fn drive(guest: &Guest, act: &str, card: &str) -> Result<()> {
    let command = format!("echo {card} > /sys/bus/virtio/drivers/virtio_net/{act}");
    guest.check(&command, SHORT).map(drop)
}

/// The device is there only while the network card is, which can be removed at any time.
fn card(pair: &mut Pair) -> Result<()> {
    let guest = &pair.a;
    for _ in 0..3 {
        let (card, before) = (card_of(guest)?, registration(guest)?);
        drive(guest, "unbind", &card).context("the network card cannot go")?;
        settles(guest, "[ -z \"$(rdma dev show)\" ]", 20)?;
        drive(guest, "bind", &card)?;
        netdev_up(guest)?;
        recovers(guest, before)?;
    }
    Ok(())
}

/// The module loads without a network card, and its device comes with the card. It can be removed
/// without a network card, too.
fn module_without_card(pair: &mut Pair) -> Result<()> {
    let guest = &pair.a;
    let card = card_of(guest)?;
    guest.check("rmmod vrnic", SHORT)?;
    drive(guest, "unbind", &card)?;
    guest.check("insmod /vrnic/vrnic.ko && sleep 1 && rmmod vrnic", SHORT)?;
    guest.check("insmod /vrnic/vrnic.ko && sleep 1 && [ -z \"$(rdma dev show)\" ]", SHORT)?;
    drive(guest, "bind", &card)?;
    netdev_up(guest)?;
    ready(guest)
}
