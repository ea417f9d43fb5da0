//! Writes a capture with a message of each kind to standard output, for a look with Wireshark.

use std::io::{self, Write};
use std::net::Ipv4Addr;

use vrnic_packet::Nanos;
use vrnic_packet::ip::{self, Addresses};
use vrnic_packet::{Ethernet, MacAddr};
use vrnic_pcap::block::section_header;
use vrnic_pcap::synthesis::COMMENT;
use vrnic_pcap::{Captured, Conversation, Interface, Message, Parties};
use vrnic_roce::Psn;
use vrnic_roce::requester::{Remote, Work};
use vrnic_roce::responder::Verdict;
use vrnic_roce::wire::numbers::Srqn;
use vrnic_roce::wire::opcode::Transport;
use vrnic_roce::wire::syndrome::RnrTimer;
use vrnic_roce::wire::{Mtu, Path, Qpn, Rkey, SendEnd};

fn path(from: u8, to: u8) -> Path {
    let [source, destination] = [from, to].map(|last| Ipv4Addr::new(10, 9, 0, last));
    let addresses = Addresses::V4 { source, destination };
    let network = ip::Header { addresses, traffic_class: 0, hop_limit: 64, flow_label: 0 };
    let ethernet = Ethernet {
        destination: MacAddr([2, 0, 0, 0, 0, to]),
        source: MacAddr([2, 0, 0, 0, 0, from]),
        vlan: None,
    };
    Path { ethernet, network, source_port: 0xc000 }
}

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(&section_header("local_exchange"))?;
    let interface = Interface { name: "function a".to_owned(), snap_length: 0 };
    out.write_all(&interface.description())?;
    let mut conversation = Conversation::new(Parties {
        transport: Transport::Rc,
        mtu: Mtu::M1024,
        requester: Qpn::new(0x11),
        responder: Qpn::new(0x12),
        first_psn: Psn::new(100),
        there: path(1, 2),
        back: path(2, 1),
        min_rnr_timer: RnrTimer::new(12),
    });
    let remote = Remote { addr: 0x7f00_0000_0000, key: Rkey(0x1234) };
    let compare_swap = Work::CompareSwap { word: remote, compare: 1, swap: 2 };
    let messages = [
        (Work::Send(SendEnd::Imm([1, 2, 3, 4])), 2500, Verdict::Executed),
        (Work::Write(remote, None), 3000, Verdict::Executed),
        (Work::Read(remote), 3000, Verdict::Executed),
        (compare_swap, 8, Verdict::Old(1)),
        (Work::FetchAdd { word: remote, add: 1 }, 8, Verdict::Old(2)),
        (Work::Send(SendEnd::Plain), 5, Verdict::NotReady),
        (Work::Send(SendEnd::Plain), 5, Verdict::Executed),
        (Work::Write(remote, None), 5, Verdict::Access),
    ];
    let (mut nanos, mut blocks) = (1_700_000_000_123_456_789, Vec::new());
    for (work, length, verdict) in messages {
        let payload = &mut |start: u32, to: &mut [u8]| {
            // CAST: a pattern of bytes.
            (start..).zip(to).for_each(|(at, to)| *to = at as u8);
        };
        let (solicited, srqn) = (false, Srqn::new(0));
        let message = Message { work, length, solicited, srqn, verdict, payload };
        let shown = conversation.message(message, Nanos::default(), &mut |_, frame| {
            nanos += 1000;
            let captured = Captured { interface: 0, nanos, frame, comments: [Some(COMMENT), None] };
            blocks.extend(captured.block(interface.snap_length));
        });
        shown.map_err(|reason| io::Error::other(format!("{reason:?}")))?;
    }
    out.write_all(&blocks)
}
