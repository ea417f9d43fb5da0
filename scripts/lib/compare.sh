# The RDMA device that a script of ci/ports uses in the guests: their adapters. With VRNIC_COMPARE=rxe it is the kernel's
# rxe on their network cards instead, which shows whether a failure is the adapter's.
# shellcheck shell=bash

# device: prints the beginning of a guest's commands. It defines `sent`, which prints how much the device has sent.
device() {
	case ${VRNIC_COMPARE-} in
	'')
		# shellcheck disable=SC2016 # variables of the guest's shell
		printf '%s\n' 'sent() { cat /sys/class/infiniband/$VRNIC_DEVICE/ports/1/hw_counters/tx_bytes; }'
		;;
	rxe) rxe_device ;;
	*) die "VRNIC_COMPARE is '$VRNIC_COMPARE'; it can only be rxe" ;;
	esac
}

# rxe_device: the same for rxe, which counts packets: they have up to 1024 bytes of data.
rxe_device() {
	cat <<-'END'
		export VRNIC_DEVICE=rxe0
		if ! [ -d /sys/class/infiniband/rxe0 ]; then
			rmmod vrnic && modprobe -a rdma_ucm rdma_rxe && rdma link add rxe0 type rxe netdev eth0 || exit
		fi
		port=/sys/class/infiniband/rxe0/ports/1
		for try in $(seq 100); do
			grep -qs ACTIVE $port/state && grep -qs 0000:0000:0000:0000:0000:ffff $port/gids/* && break
			sleep 0.2
		done
		sent() { echo $(($(cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts) * 1024)); }
	END
}
