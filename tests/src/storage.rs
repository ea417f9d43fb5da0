//! A RAM disk of guest b, offered by the kernel's `nvmet-rdma` and attached to guest a by
//! `nvme-rdma`.

use anyhow::Result;
use vrnic_qemu::pair::Pair;

use crate::talk::SHORT;

/// MiB of the disk.
pub const DISK: u32 = 96;

/// Makes guest b offer its RAM disk, if it does not yet.
pub fn offer(pair: &Pair) -> Result<()> {
    let address = pair.b.ip();
    pair.b.check(
        &format!(
            "set -e
            modprobe -a nvmet nvmet_rdma; modprobe brd rd_nr=1 rd_size=$(({DISK} * 1024))
            cd /sys/kernel/config 2>/dev/null
            [ -d nvmet ] || mount -t configfs none /sys/kernel/config
            cd /sys/kernel/config/nvmet
            [ -d ports/1 ] && exit 0
            mkdir subsystems/disk; echo 1 > subsystems/disk/attr_allow_any_host
            mkdir subsystems/disk/namespaces/1
            echo -n /dev/ram0 > subsystems/disk/namespaces/1/device_path
            echo 1 > subsystems/disk/namespaces/1/enable
            mkdir ports/1; cd ports/1
            echo rdma > addr_trtype; echo ipv4 > addr_adrfam
            echo {address} > addr_traddr; echo 4420 > addr_trsvcid
            ln -s ../../subsystems/disk subsystems/disk"
        ),
        SHORT,
    )?;
    Ok(())
}

/// Attaches the disk to guest a as `/dev/nvme0n1`.
pub fn attach(pair: &Pair) -> Result<()> {
    offer(pair)?;
    let address = pair.b.ip();
    pair.a.check(
        &format!(
            "modprobe nvme_rdma && \
             echo transport=rdma,traddr={address},trsvcid=4420,nqn=disk > /dev/nvme-fabrics && \
             for n in $(seq 100); do [ -b /dev/nvme0n1 ] && exit 0; sleep 0.1; done; \
             echo no disk; exit 1"
        ),
        SHORT,
    )?;
    Ok(())
}

/// Takes the disk away again.
pub fn detach(pair: &Pair) -> Result<()> {
    pair.a
        .check("echo 1 > /sys/class/nvme/nvme0/delete_controller; ! [ -e /dev/nvme0n1 ]", SHORT)?;
    Ok(())
}
