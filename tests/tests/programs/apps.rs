//! Existing RDMA programs over vrnic, in guests that have them installed. `scripts/test --all` runs
//! this.
//!
//! Shows: programs: libfabric, UCX, Open MPI and NFS over RDMA

use anyhow::{Result, ensure};
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::commands::{Ends, LONG_TIMEOUT, SHORT_TIMEOUT, counter};
use vrnic_tests::harness::{Case, Suite};
use vrnic_tests::nfs;

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let cases = vec![
        Case::new("libfabric_connected", |pair| fabric(pair, "-p verbs -e msg")),
        Case::new("libfabric_reliable_datagrams", |pair| fabric(pair, "-p 'verbs;ofi_rxm' -e rdm")),
        Case::new("ucx_connected", |pair| ucx(pair, "rc_v", "tag_bw -s 65536 -n 200")),
        Case::new("ucx_datagrams", |pair| ucx(pair, "ud_v", "tag_lat -s 8 -n 200")),
        Case::new("mpi", mpi),
        Case::new("nfs", |pair| nfs::serve_and_use(&pair.a, &pair.b)),
    ];
    // The images of these guests are larger, and a guest holds its image twice while it boots.
    Ok(Suite::new(Options { memory: 2560, ..Options::default() }, cases))
}

/// Runs fi_pingpong with all sizes, with the data checked.
fn fabric(pair: &mut Pair, options: &str) -> Result<()> {
    for guest in [&pair.a, &pair.b] {
        guest.check("modprobe rdma_ucm", SHORT_TIMEOUT)?;
    }
    let serving = pair.b.agent().start(&format!("exec fi_pingpong -c {options}"))?;
    // fi_pingpong listens on a fixed port before it opens the adapter.
    pair.b.check("while ! ss -ltn | grep -q :47592; do sleep 0.1; done", SHORT_TIMEOUT)?;
    let there = pair
        .a
        .agent()
        .run(&format!("exec fi_pingpong -c {options} {}", pair.b.ip()), LONG_TIMEOUT)?;
    let text = Ends::of(serving, there)?.succeed(&format!("fi_pingpong {options}"))?;
    let sizes = text.lines().filter(|line| line.contains("=10")).count();
    ensure!(sizes == 6, "fi_pingpong ran {sizes} sizes of 6:\n{text}");
    Ok(())
}

/// Runs ucx_perftest over a transport. Unless its standard input is a terminal, it assumes that it
/// is an MPI program.
fn ucx(pair: &mut Pair, transport: &str, test: &str) -> Result<()> {
    let settings = format!("export UCX_TLS={transport},self UCX_NET_DEVICES=vrnic0:1;");
    let command = |arguments: &str| {
        format!("{settings} exec script -qec 'ucx_perftest -c 0 {arguments}' /dev/null")
    };
    let serving = pair.b.agent().start(&command(""))?;
    pair.b.check("while ! ss -ltn | grep -q :13337; do sleep 0.1; done", SHORT_TIMEOUT)?;
    let there =
        pair.a.agent().run(&command(&format!("-t {test} {}", pair.b.ip())), LONG_TIMEOUT)?;
    let text = Ends::of(serving, there)?.succeed(&format!("{test} over {transport}"))?;
    ensure!(text.lines().any(|line| line.starts_with("Final:")), "{transport}: no end in\n{text}");
    Ok(())
}

/// Runs a job of Open MPI with a rank in each guest: NetPIPE's messages of many sizes, over UCX.
fn mpi(pair: &mut Pair) -> Result<()> {
    let key = "mkdir -p ~root/.ssh && ssh-keygen -q -t ed25519 -N '' -f ~root/.ssh/id_ed25519";
    let key = pair.a.check(&format!("{key} && cat ~root/.ssh/id_ed25519.pub"), LONG_TIMEOUT)?;
    let serve = format!(
        "mkdir -p /run/sshd ~root/.ssh && echo '{}' >~root/.ssh/authorized_keys && ssh-keygen -A \
         && /usr/sbin/sshd -o UsePAM=no",
        key.trim()
    );
    pair.b.check(&serve, LONG_TIMEOUT)?;
    let before = counter(&pair.a, "tx_bytes")?;
    let (a, b) = (pair.a.ip(), pair.b.ip());
    let run = format!(
        "cd /tmp && OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
         mpirun --prtemca plm_ssh_args '-o StrictHostKeyChecking=no' --host {a}:2,{b}:2 \
         --map-by node:OVERSUBSCRIBE -np 2 --mca pml ucx \
         -x UCX_TLS=rc_v,self -x UCX_NET_DEVICES=vrnic0:1 NPopenmpi -u 65536 -n 20"
    );
    pair.a.check(&run, LONG_TIMEOUT)?;
    let sent = counter(&pair.a, "tx_bytes")? - before;
    // 20 times the sum of the sizes is more than 20 MB.
    ensure!(sent > 20_000_000, "only {sent} bytes were sent; was it RDMA?");
    pair.b.check("pkill sshd", SHORT_TIMEOUT)?;
    Ok(())
}
