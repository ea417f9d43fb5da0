# Modules of the kernel that the guests' base image lacks: tests hand them to guests that need them.
# shellcheck shell=bash

# The module 8021q and those that it needs; the dummy device, and devices that are made on top of a network card, such
# as bridges and bonds; modules that drop outgoing and incoming packets to simulate losses; the driver of NVMe
# controllers; those that let ss end sockets; the drivers of virtio-iommu and virtio-mem; the SCSI layer with disks, and
# with a disk that is as slow as one wants; the kernel's target of iSCSI with files and block devices, and its
# initiator; VFIO with its driver for PCI devices.
EXTRA_MODULES=(
	net/llc/llc net/802/stp net/802/garp net/802/mrp net/8021q/8021q
	drivers/net/dummy drivers/net/macvlan drivers/net/ipvlan/ipvlan
	net/bridge/bridge net/tls/tls drivers/net/bonding/bonding
	net/sched/sch_netem net/sched/sch_ingress net/sched/cls_matchall net/sched/act_gact
	drivers/nvme/host/nvme
	net/ipv4/inet_diag net/ipv4/tcp_diag
	drivers/iommu/virtio-iommu drivers/virtio/virtio_mem
	drivers/scsi/scsi_common drivers/scsi/scsi_mod drivers/scsi/sd_mod drivers/scsi/scsi_debug
	drivers/target/target_core_mod drivers/target/target_core_file drivers/target/target_core_iblock
	drivers/target/iscsi/iscsi_target_mod
	drivers/scsi/scsi_transport_iscsi drivers/scsi/libiscsi drivers/scsi/libiscsi_tcp drivers/scsi/iscsi_tcp
	virt/lib/irqbypass drivers/vfio/vfio drivers/vfio/vfio_iommu_type1 drivers/vfio/pci/vfio-pci-core drivers/vfio/pci/vfio-pci
)

# modules_make: fetches the kernel's package and takes these modules.
modules_make() {
	local log=$VRNIC_CACHE/log fetched=$VRNIC_MODULES.fetched release
	release=$(kernel_release)
	step "more modules for guests"
	mkdir -p "$log"
	rm -rf "$fetched"
	mkdir -p "$fetched"
	quietly "$log/modules" in_root sh -euc "cd '$fetched' && apt-get -q download linux-modules-$release"
	dpkg-deb -x "$fetched"/*.deb "$fetched/x"
	modules_take "$fetched/x" "$release"
	rm -rf "$fetched"
}

# modules_take FOLDER RELEASE: takes these modules from the unpacked package into the folder $VRNIC_MODULES, as a file
# NAME.ko each.
modules_take() {
	local dir=$VRNIC_MODULES.new from=$1/usr/lib/modules/$2/kernel module file
	rm -rf "$dir"
	mkdir -p "$dir"
	for module in "${EXTRA_MODULES[@]}"; do
		file=$(echo "$from/$module".ko*)
		case $file in
		*.xz) xz -dc "$file" >"$dir/${module##*/}.ko" ;;
		*.ko) cp "$file" "$dir/${module##*/}.ko" ;;
		*) die "the kernel's package does not contain the module $module" ;;
		esac
	done
	mv "$dir" "$VRNIC_MODULES"
}
