//! Other people's programs over vrnic, in guests that have them installed. `scripts/test --all`
//! runs this.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::harness::{self, Case};
use vrnic_tests::talk::{Ends, LONG, SHORT, counter};

fn main() -> ExitCode {
    let cases = vec![
        Case::new("libfabric_connected", |pair| fabric(pair, "-p verbs -e msg")),
        Case::new("libfabric_reliable_datagrams", |pair| fabric(pair, "-p 'verbs;ofi_rxm' -e rdm")),
        Case::new("ucx_connected", |pair| ucx(pair, "rc_v", "tag_bw -s 65536 -n 200")),
        Case::new("ucx_datagrams", |pair| ucx(pair, "ud_v", "tag_lat -s 8 -n 200")),
        Case::new("mpi", mpi),
        Case::new("nfs", nfs),
    ];
    // Their images are larger, and a guest holds its image twice while it boots.
    harness::main(Options { memory: 2560, ..Options::default() }, cases)
}

/// fi_pingpong of all sizes, with the data checked.
fn fabric(pair: &mut Pair, options: &str) -> Result<()> {
    for guest in [&pair.a, &pair.b] {
        guest.check("modprobe rdma_ucm", SHORT)?;
    }
    let serving = pair.b.agent().start(&format!("exec fi_pingpong -c {options}"))?;
    // It listens on the general port of its kind before it looks for the adapter.
    pair.b.check("while ! ss -ltn | grep -q :47592; do sleep 0.1; done", SHORT)?;
    let there =
        pair.a.agent().run(&format!("exec fi_pingpong -c {options} {}", pair.b.ip()), LONG)?;
    let text = Ends::of(serving, there)?.succeed(&format!("fi_pingpong {options}"))?;
    let sizes = text.lines().filter(|line| line.contains("=10")).count();
    ensure!(sizes == 6, "fi_pingpong ran {sizes} sizes of 6:\n{text}");
    Ok(())
}

/// ucx_perftest over a transport. It takes itself for an MPI program unless its standard input is a
/// terminal.
fn ucx(pair: &mut Pair, transport: &str, test: &str) -> Result<()> {
    let settings = format!("export UCX_TLS={transport},self UCX_NET_DEVICES=vrnic0:1;");
    let command = |arguments: &str| {
        format!("{settings} exec script -qec 'ucx_perftest -c 0 {arguments}' /dev/null")
    };
    let serving = pair.b.agent().start(&command(""))?;
    pair.b.check("while ! ss -ltn | grep -q :13337; do sleep 0.1; done", SHORT)?;
    let there = pair.a.agent().run(&command(&format!("-t {test} {}", pair.b.ip())), LONG)?;
    let text = Ends::of(serving, there)?.succeed(&format!("{test} over {transport}"))?;
    ensure!(text.lines().any(|line| line.starts_with("Final:")), "{transport}: no end in\n{text}");
    Ok(())
}

/// A job of Open MPI with a rank in each guest: NetPIPE's messages of many sizes, over UCX.
fn mpi(pair: &mut Pair) -> Result<()> {
    let key = "mkdir -p ~root/.ssh && ssh-keygen -q -t ed25519 -N '' -f ~root/.ssh/id_ed25519";
    let key = pair.a.check(&format!("{key} && cat ~root/.ssh/id_ed25519.pub"), LONG)?;
    let serve = format!(
        "mkdir -p /run/sshd ~root/.ssh && echo '{}' >~root/.ssh/authorized_keys && ssh-keygen -A \
         && /usr/sbin/sshd -o UsePAM=no",
        key.trim()
    );
    pair.b.check(&serve, LONG)?;
    let before = counter(&pair.a, "tx_bytes")?;
    let (a, b) = (pair.a.ip(), pair.b.ip());
    let run = format!(
        "cd /tmp && OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
         mpirun --prtemca plm_ssh_args '-o StrictHostKeyChecking=no' --host {a}:2,{b}:2 \
         --map-by node:OVERSUBSCRIBE -np 2 --mca pml ucx \
         -x UCX_TLS=rc_v,self -x UCX_NET_DEVICES=vrnic0:1 NPopenmpi -u 65536 -n 20"
    );
    pair.a.check(&run, LONG)?;
    let sent = counter(&pair.a, "tx_bytes")? - before;
    // 20 times the sum of the sizes is more than 20 MB.
    ensure!(sent > 20_000_000, "only {sent} bytes were sent; was it RDMA?");
    pair.b.check("pkill sshd", SHORT)?;
    Ok(())
}

/// A memory file system, served by the kernel's NFS server over RDMA alone.
const EXPORT: &str = "
set -e
mkdir -p /export /var/lib/nfs/nfsdcld /var/lib/nfs/sm /run/rpc_pipefs
mount -t tmpfs export /export
modprobe -a nfsd rpcrdma
touch /var/lib/nfs/etab /var/lib/nfs/rmtab
mount -t nfsd nfsd /proc/fs/nfsd
mount -t rpc_pipefs pipefs /run/rpc_pipefs
nfsdcld
echo '/export *(rw,no_root_squash,insecure,fsid=0,no_subtree_check)' >/etc/exports
exportfs -ra
rpc.mountd -N 3
rpc.nfsd -N 3 -V 4 -G 10 -L 10 2
echo rdma 20049 >/proc/fs/nfsd/portlist
";

/// Files written and read through a mount, compared after the client has forgotten them.
const USE: &str = "
set -e
modprobe -a nfsv4 rpcrdma
mkdir -p /mnt/nfs
mount -t nfs4 -o proto=rdma,port=20049 SERVER:/ /mnt/nfs
for megabytes in 1 7 32; do
	dd if=/dev/urandom of=/tmp/file bs=1M count=$megabytes
	cp /tmp/file /mnt/nfs/file$megabytes
	sha256sum </tmp/file >>/tmp/sums
done 2>/dev/null
umount /mnt/nfs
mount -t nfs4 -o proto=rdma,port=20049 SERVER:/ /mnt/nfs
for megabytes in 1 7 32; do sha256sum </mnt/nfs/file$megabytes; done | cmp - /tmp/sums
grep -c 'xprt:.rdma' /proc/self/mountstats
umount /mnt/nfs
rm /tmp/file /tmp/sums
";

/// The kernel's NFS server in b, mounted in a with proto=rdma.
fn nfs(pair: &mut Pair) -> Result<()> {
    pair.b.check(EXPORT, LONG)?;
    let before = counter(&pair.a, "reg_wqes")?;
    pair.a.check(&USE.replace("SERVER", pair.b.ip()), LONG)?;
    // 40 MiB in requests of at most 512 KiB, each by a registration of its own.
    let registrations = counter(&pair.a, "reg_wqes")? - before;
    ensure!(registrations >= 80, "only {registrations} fast registrations; was it RDMA?");
    pair.b.check("rpc.nfsd 0 && umount /export", LONG)?;
    Ok(())
}
