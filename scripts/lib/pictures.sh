# The recordings of scripts/pictures.
# shellcheck shell=bash

# terminal ARGUMENT…: runs vrnic-terminal, which records programs and draws recordings.
terminal() {
	cargo run --quiet --locked --manifest-path "$VRNIC_TOP/Cargo.toml" -p vrnic-terminal -- "$@"
}

# record NAME SHOWN OPTION… -- PROGRAM…: records a program as docs/pictures/NAME.cast. The picture shows the command SHOWN.
record() {
	terminal record --into "docs/pictures/$1.cast" --shown "$2" "${@:3}"
}

# What is built is of no interest in the picture, and so is the reason why a machine does not use KVM.
picture_run() {
	prepare_run
	VRNIC_ACCEL=${VRNIC_ACCEL:-tcg} record run scripts/run --columns 122 --rows 26 --pause 1.2 -- env -u VRNIC_STARTED scripts/run
}

picture_top() {
	with_traffic record top "vrnic top" --columns 112 --rows 22 \
		--key '4:\r' --key '7:\e[B' --key '9:\r' --key '15:\e' --key '17:\e' --key '19:q' -- "$VRNIC_BIN/vrnic" top
}

picture_timeline() {
	with_traffic picture_trace
}

picture_trace() {
	local qp
	qp=$("$VRNIC_BIN/vrnic" show qp --function a | awk '$3 == "rc" && $4 == "rts" { print $2; exit }')
	record timeline "vrnic trace $qp --function a --count 12" --columns 100 --rows 24 --still -- \
		"$VRNIC_BIN/vrnic" trace "$qp" --function a --count 12
}

# tshark runs in a guest, so that this machine needs none.
picture_capture() {
	local folder
	temporary folder
	scripts/lab --pcap "$folder/a.pcapng" --peer 'rping -s -C 1' -- 'rping -c -a $VRNIC_PEER -C 1'
	scripts/lab --guests 1 --package tshark --copy "$folder" -- tshark -r a.pcapng -Y infiniband >"$folder/text"
	record capture "tshark -r a.pcapng -Y infiniband" --columns 96 --rows 40 --still -- cat "$folder/text"
}

# exchange FOLDER: two guests exchange messages. Their output is in the folder.
exchange() {
	VRNICD_ARGS="--monitor $VRNIC_MONITOR --control $VRNIC_CONTROL" scripts/run \
		--exec 'b:(ib_write_bw -b -D 60 & ib_read_bw -p 18600 -D 60 &) >/dev/null 2>&1' \
		--exec 'sleep 1; ib_write_bw -b -D 50 10.9.0.2 & ib_read_bw -p 18600 -D 50 10.9.0.2; wait' >"$1/log" 2>&1
}

# with_traffic COMMAND…: runs the command while two guests exchange messages. VRNIC_MONITOR and VRNIC_CONTROL name the
# sockets of their daemon.
with_traffic() {
	local folder guests
	temporary folder /run/vrnic-pictures.XXXXXX
	export VRNIC_MONITOR=$folder/monitor.sock VRNIC_CONTROL=$folder/control.sock
	background exchange "$folder"
	guests=$!
	until "$VRNIC_BIN/vrnic" show qp --function a 2>/dev/null | grep -q ' rc .* rts '; do
		kill -0 "$guests" || { cat "$folder/log" >&2; die "the guests have ended"; }
		sleep 0.5
	done
	# The first seconds of perftest have no full queues.
	sleep 3
	"$@"
	kill -- "-$guests"
	wait "$guests" || true
}
