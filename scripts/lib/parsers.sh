# The tests that give random input to the parsers of bytes from guests, VMMs, networks and users.
# shellcheck shell=bash

# Each line: what is parsed, the part of the runs (1 of N), and the package, target and name of the test.
# shellcheck disable=SC2034 # scripts/fuzz uses it
PARSERS='headers of frames|1|vrnic-packet|test=hostile|any_frame_has_its_headers_within_it
frames that are cut|1|vrnic-packet|test=hostile|any_frame_is_cut_into_right_ones
checksums of frames|1|vrnic-packet|test=hostile|any_frame_gets_right_checksums
packets of RoCE|1|vrnic-roce|test=hostile|any_bytes_for_the_parsers
packets of RoCE in any state|1|vrnic-roce|test=hostile|any_packet_in_any_state
frames in lanes|1|vrnic-lanes|test=lanes|bounds::any_frame_has_a_class_and_may_be_marked
octets of iWARP|1|vrnic-iwarp|test=wire|random::any_octets_are_parsed_or_refused
start frames of iWARP|1|vrnic-iwarp|test=connection|hostile::any_start_frame
start frames in the kernel of guests|1|vrnic-abi|test=kernel_start|any_bytes_end_or_are_refused
octets of iWARP in any state|10|vrnic-iwarp|test=connection|hostile::any_octets_in_any_state
PDUs of iSCSI|1|vrnic-iscsi|test=deframer|any_pdus
rules for faults|10|vrnic-faults|test=rules|no_text_makes_the_parser_panic
frames that rules change|1|vrnic-faults|test=rules|other_frames_are_not_changed
requests of the control socket|1|vrnic-control-api|test=hostile|any_line_is_read_or_refused
entries of work queues|1|vrnic-adapter|test=adapter|queues::entries::any_entry_is_within_bounds_or_refused
admin commands|1000|vrnic-adapter|test=adapter|queues::hostile::any_admin_commands
attributes of queue pairs|1000|vrnic-adapter|test=adapter|queues::hostile::any_attributes
work requests|1000|vrnic-adapter|test=adapter|queues::hostile::any_work_requests
messages of communication managers|1|vrnic-cm|test=exchange|hostile::any_message_in_any_state
commands of rdma_cm of vrnic exec|1000|vrnic-exec|test=connections|hostile::any_commands_end
requests of programs of vrnic exec|1000|vrnic-exec|test=requests|requests_of_plausible_attributes_end
rings of programs of vrnic exec|1000|vrnic-exec|test=rings|any_bytes_in_shared_memory_are_survived
options of TCP|1|vrnic-tcp|lib|wire::options::tests::any_bytes_are_read
segments of TCP in any state|1|vrnic-tcp|test=stream|any_segment_in_any_state
messages of vfio-user|1|vrnic-device|lib|vfio::request::tests::any_bytes_are_read_within_bounds_or_refused
replies of a VMM|1|vrnic-device|lib|vfio::caller::tests::any_reply_is_right_or_refused
connections of vfio-user|1000|vrnic-device|test=daemon|vfio::messages::any_bytes_are_survived
memory of trunks|1000|vrnic-device|test=daemon|network::uplinks::memory_that_changes_all_the_time_harms_nobody
frames in streams|10|vrnic-device|lib|net::framing::tests::any_stream_is_survived
headers of virtio|1|vrnic-device|lib|net::uplinks::offload::tests::any_header_is_survived
joined frames of the kernel|1|vrnic-device|lib|net::uplinks::segments::tests::any_bytes_from_the_kernel_are_survived'
