//! Functions in VLANs: what their network cards and adapters send, and reach.
//!
//! Shows: network

use std::os::unix::net::UnixStream;

use vrnic_abi::admin::{SetGid, Status as Refusal, command};
use vrnic_abi::cq::Status;
use vrnic_abi::sq::Opcode;
use vrnic_testdriver::admin::Refused;
use vrnic_testdriver::qp::{Setup, link_local};
use vrnic_testdriver::vmm::daemon::Daemon;
use vrnic_testdriver::vmm::vfio::{Endpoint, Guest};
use vrnic_testdriver::wr::Wr;

use crate::common::ethernet::{BROADCAST, frame, nothing_comes, receive, send};
use crate::common::switch::{Folder, wait_for_drops};
use crate::common::{Span, write_and_read};

/// The index of a GID on a VLAN.
const TAGGED: u16 = 1;

/// A function with the name `number`, and the cable of its network card.
struct Function {
    guest: Guest,
    card: UnixStream,
}

/// Returns a daemon with a function for each setting of VLANs.
fn start<const N: usize>(
    folder: &Folder,
    fabric: &str,
    vlans: [&str; N],
) -> (Daemon, [Function; N]) {
    let mut number = 0;
    let functions = vlans.map(|vlan| {
        let text = format!(
            "name={number},mac=52:54:00:00:01:0{number},socket=@{number}.sock,net=@{number}{vlan}"
        );
        number += 1;
        text
    });
    let mut options = vec![("--fabric", fabric), ("--monitor", "@m")];
    options.extend(functions.iter().map(|function| ("--function", function.as_str())));
    let daemon = folder.daemon(0, &options);
    let mut number = 0;
    let functions = vlans.map(|_| {
        daemon.wait_for_log(&format!("is ready for a VMM function=\"{number}\""));
        let card = folder.plug(&number.to_string());
        let mac = [0x52, 0x54, 0, 0, 1, number];
        let guest = Guest::connect(&folder.path(&format!("{number}.sock")), mac).expect("a VMM");
        guest.bring_up();
        number += 1;
        Function { guest, card }
    });
    (daemon, functions)
}

/// Gives a guest an address on a VLAN.
fn name(guest: &Guest, vlan: u16) -> Result<(), Refused> {
    let mac = guest.mac();
    guest.command::<command::SetGid>(&SetGid::set(TAGGED, link_local(mac), mac, vlan))
}

/// Connects two functions by the GIDs with these indices.
fn connect(functions: [&Function; 2], gids: [u16; 2]) -> [Endpoint; 2] {
    let ends = functions.map(|function| Endpoint::new(&function.guest, Setup::default()));
    for (this, gid) in [0, 1].into_iter().zip(gids) {
        let other = &ends[1 - this];
        ends[this].connect(other.guest.mac(), other.qpn, |attr| {
            attr.av.sgid_index = gid.into();
            // A peer that cannot be reached is given up soon.
            (attr.timeout, attr.retry_cnt) = (10, 1);
        });
    }
    ends
}

#[test]
fn an_adapter_reaches_peers_in_its_vlan_and_no_others() {
    for fabric in ["copy", "wire"] {
        let folder = Folder::new();
        let vlans = [",vlan=5", ",vlan=5", ",vlan=6", ",vlan=5+7", ""];
        let (mut daemon, functions) = start(&folder, fabric, vlans);
        let [five, also_five, six, trunk, all] = functions.each_ref();
        name(&trunk.guest, 5).expect("it is in this VLAN");
        name(&all.guest, 6).expect("it is in all VLANs");
        for (pair, gids) in [
            ([five, also_five], [0, 0]),
            ([five, trunk], [0, TAGGED]),
            ([six, all], [0, TAGGED]),
            ([trunk, all], [0, 0]),
        ] {
            let [mut a, b] = connect(pair, gids);
            write_and_read(&mut a, &b, Span { len: 10_000, from: 3, to: 5 });
        }
        for (pair, gids) in
            [([five, six], [0, 0]), ([five, all], [0, 0]), ([six, trunk], [0, TAGGED])]
        {
            let [mut a, b] = connect(pair, gids);
            b.fill(0, b"untouched");
            let write = Wr::new(Opcode::Write, &[a.sge(0, 9)]).to(b.buffer, b.key);
            a.run_expecting(&write, Status::RetryExcErr);
            assert_eq!(b.bytes(0, 9), b"untouched", "{fabric}");
        }
        for (function, vlan) in [(five, 5), (five, 6), (trunk, 6)] {
            let refused = name(&function.guest, vlan).expect_err("another VLAN");
            assert_eq!(refused.0, Refusal::BadParam, "{vlan}");
        }
        daemon.check();
    }
}

#[test]
fn a_network_card_sends_to_its_vlans_and_no_others() {
    let folder = Folder::new();
    let (mut daemon, functions) =
        start(&folder, "copy", [",vlan=5", ",vlan=5", ",vlan=6", ",vlan=5+7"]);
    let [mut five, mut also_five, mut six, mut trunk] = functions.map(|function| function.card);
    let mac = |number| [0x52, 0x54, 0, 0, 1, number];
    let tagged = |number, vlan: u8| {
        let plain = frame(BROADCAST, mac(number), 60);
        [&plain[..12], &[0x81, 0, 0, vlan], &plain[12..]].concat()
    };
    let plain = |number| frame(BROADCAST, mac(number), 60);
    // One without a tag from a guest in VLAN 5, and one with a tag from a guest in several.
    send(&mut five, &plain(0));
    assert_eq!([receive(&mut also_five), receive(&mut trunk)], [plain(0), tagged(0, 5)]);
    send(&mut trunk, &tagged(3, 5));
    assert_eq!([receive(&mut five), receive(&mut also_five)], [plain(3), plain(3)]);
    // Frames that a guest may not send.
    send(&mut trunk, &tagged(3, 6));
    wait_for_drops(&folder.path("m"), "3", "vlan", 1);
    send(&mut five, &tagged(0, 5));
    wait_for_drops(&folder.path("m"), "0", "vlan", 1);
    // The guest in VLAN 6 has seen none of them.
    send(&mut six, &plain(2));
    let answer = frame(mac(2), mac(0), 61);
    send(&mut five, &answer);
    send(&mut trunk, &tagged(3, 7));
    send(&mut five, &plain(0));
    assert_eq!([receive(&mut also_five), receive(&mut trunk)], [plain(0), tagged(0, 5)]);
    nothing_comes(&mut six);
    daemon.check();
}
