//! More programs, and many connections.

use anyhow::Result;
use vrnic_qemu::pair::Pair;
use vrnic_tests::commands::{LONG_TIMEOUT, SHORT_TIMEOUT, connect, serve_pings, settles, stop};
use vrnic_tests::harness::Case;

/// Commands of the server. The client runs the same command with `-s ADDRESS`.
const TALKERS: [&str; 4] =
    ["ucmatose", "ucmatose -c 20 -C 5", "ucmatose -c 200 -C 1", "rstream -S all -C 20"];

/// Sizes of rping's messages, which rping checks. 1,428 bytes need a little more than one FPDU.
const SIZES: [u32; 4] = [64, 1428, 4096, 65_535];

/// Options of perftest's programs. The client also gets the server's address.
const PERFTEST: [&str; 4] = [
    "ib_write_bw -R -q 32 -s 4096 -n 50",
    "ib_read_bw -R -e -s 65536 -n 200",
    "ib_read_bw -R -b -s 65536 -n 200",
    "ib_write_bw -R -s 8388608 -n 5",
];

/// Returns the cases.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for command in TALKERS {
        let run = move |pair: &mut Pair| talk(pair, command, "-s");
        cases.push(Case::new(command, run));
    }
    for size in SIZES {
        cases.push(Case::new(format!("rping -S {size}"), move |pair: &mut Pair| ping(pair, size)));
    }
    for command in PERFTEST {
        let run = move |pair: &mut Pair| talk(pair, &format!("{command} -F"), "");
        cases.push(Case::new(command, run));
    }
    cases.push(Case::new("MTU 9000", large));
    cases.push(Case::new("50_clients_at_once", at_once));
    cases.push(Case::new("1000_connections", thousand));
    cases
}

/// Runs a server in guest b, and the same command with more options in guest a.
fn talk(pair: &Pair, command: &str, option: &str) -> Result<()> {
    let call = format!("{command} {option} {}", pair.b.ip());
    connect((&pair.b, command), (&pair.a, &call)).map(drop)
}

/// Runs rping with messages of this size.
fn ping(pair: &Pair, size: u32) -> Result<()> {
    let command = format!("rping -V -C 10 -S {size}");
    let call = format!("{command} -c -a {}", pair.b.ip());
    connect((&pair.b, &format!("{command} -s")), (&pair.a, &call)).map(drop)
}

/// Connects over network cards with a larger MTU than the adapter uses.
fn large(pair: &mut Pair) -> Result<()> {
    let set = |mtu: u32| {
        let set = format!("ip link set eth0 mtu {mtu}");
        [&pair.a, &pair.b]
            .into_iter()
            .try_for_each(|guest| guest.check(&set, SHORT_TIMEOUT).map(drop))
    };
    set(9000)?;
    ping(pair, 65_535)?;
    talk(pair, "ib_write_bw -R -n 200 -F", "")?;
    set(1500)
}

/// Clients that run in parallel, with one server.
fn at_once(pair: &mut Pair) -> Result<()> {
    let server = serve_pings(&pair.b)?;
    let call = format!(
        "modprobe rdma_ucm; for n in $(seq 50); do rping -c -a {} -V -C 5 & jobs=\"$jobs $!\"; \
         done; for job in $jobs; do wait $job || exit 1; done",
        pair.b.ip()
    );
    pair.a.check(&call, LONG_TIMEOUT)?;
    stop(server)?;
    empty(pair)
}

/// Many connections, one after the other.
fn thousand(pair: &mut Pair) -> Result<()> {
    let server = serve_pings(&pair.b)?;
    let ip = pair.b.ip();
    let call =
        format!("modprobe rdma_ucm; for n in $(seq 200); do rping -c -a {ip} -C 1 || exit 1; done");
    (0..5).try_for_each(|_| pair.a.check(&call, LONG_TIMEOUT).map(drop))?;
    stop(server)?;
    empty(pair)
}

/// Waits until neither guest has connections or queue pairs.
fn empty(pair: &Pair) -> Result<()> {
    [&pair.a, &pair.b].into_iter().try_for_each(|guest| {
        settles(guest, "[ -z \"$(rdma res show cm_id)$(rdma res show qp)\" ]", 20)
    })
}
