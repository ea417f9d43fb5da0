//! A file system in the memory of one guest, served by the kernel's NFS server over RDMA and
//! mounted by another guest. The guests need the image of the long tests.

use anyhow::{Result, ensure};
use vrnic_qemu::guest::Guest;

use crate::commands::{LONG_TIMEOUT, counter};

/// A memory file system, served by the kernel's NFS server over RDMA only.
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

/// Undoes [`EXPORT`].
const END: &str = "
set -e
rpc.nfsd 0
pkill rpc.mountd
pkill nfsdcld
while pgrep 'rpc.mountd|nfsdcld' >/dev/null; do sleep 0.1; done
umount /export /run/rpc_pipefs /proc/fs/nfsd
";

/// Writes and reads files through a mount, and compares them after the client's cache was dropped.
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

/// Mounts the server's files in the client, and uses them. Nothing is left afterwards.
pub fn use_mounted(client: &Guest, server: &Guest) -> Result<()> {
    server.check(EXPORT, LONG_TIMEOUT)?;
    client.check(&USE.replace("SERVER", server.ip()), LONG_TIMEOUT)?;
    server.check(END, LONG_TIMEOUT).map(drop)
}

/// Like [`use_mounted`], with a client that has an adapter, which must have registered the client's
/// memory.
pub fn serve_and_use(client: &Guest, server: &Guest) -> Result<()> {
    let before = counter(client, "reg_wqes")?;
    use_mounted(client, server)?;
    // 40 MiB in requests of at most 512 KiB, each with a separate registration.
    let registrations = counter(client, "reg_wqes")? - before;
    ensure!(registrations >= 80, "only {registrations} fast registrations; was it RDMA?");
    Ok(())
}
