# Checks of what the options of scripts/lab name, before anything is installed or built.
# shellcheck shell=bash

# check_paths ARGUMENT…: ends the script if a file, a folder or a network device is missing, a result could not be
# written, a rule for faults has no action, or the guests need more memory than there is. Makes the folders of results.
# What follows `--` is not looked at.
check_paths() {
	local option value results=() guests=2 memory=1536M
	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		option=${1%%=*} value=${2-}
		[[ $1 != *=* ]] || value=${1#*=}
		case $option in
		--copy) check_path "$option" "$value" -d "is not a folder" ;;
		--root) check_path "$option" "$value" -e "does not exist" ;;
		--disk | --kernel | --module-file | --scenario) check_path "$option" "$value" -f "is not a file" ;;
		--fault) check_fault "$value" ;;
		--uplink) check_uplink "$value" ;;
		--guests) guests=$value ;;
		--memory) memory=$value ;;
		--output) results+=("$value") ;;
		--junit | --pcap)
			[ ! -d "$value" ] || die "$option names $value, which is a folder"
			results+=("$(dirname "$value")")
			;;
		esac
		shift
	done
	check_memory "$guests" "$memory"
	# Last, so that nothing is made for options that are wrong.
	for value in "${results[@]}"; do
		{ mkdir -p "$value" && [ -w "$value" ]; } 2>/dev/null || die "cannot write to $value"
	done
}

# check_path OPTION PATH TEST WHAT: ends the script with the words WHAT if `test TEST PATH` fails.
check_path() {
	[ -e "$2" ] || die "$1 names $2, which does not exist"
	test "$3" "$2" || die "$1 names $2, which $4"
}

# check_memory GUESTS MEMORY: ends the script if so many guests with so much memory do not fit into this machine. What is
# free there, the lab checks when it starts them.
check_memory() {
	local mib here
	[[ $2 =~ ^([0-9]{1,9})([MG]?)$ ]] || die "--memory is '$2', which is not an amount of memory, such as 512M or 2G"
	mib=$((10#${BASH_REMATCH[1]}))
	[ "${BASH_REMATCH[2]}" != G ] || mib=$((mib * 1024))
	here=$(($(awk '$1 == "MemTotal:" { print $2 }' /proc/meminfo) / 1024))
	((10#$1 * mib <= here)) || die "$1 guests with $mib MiB each need $((10#$1 * mib)) MiB of memory, and this machine has" \
		"$here MiB; choose fewer guests (--guests) or less memory (--memory)"
}

# check_uplink SETTINGS: ends the script if an uplink names a network device that does not exist. The daemon would make a
# TAP device, which nothing is connected with.
check_uplink() {
	local settings setting
	IFS=, read -r -a settings <<<"$1"
	for setting in "${settings[@]}"; do
		case $setting in
		tap=* | packet=*)
			# Unlike /sys/class/net, this is the network of this process.
			grep -q "^ *${setting#*=}:" /proc/net/dev ||
				die "--uplink names the network device ${setting#*=}, which does not exist;" \
					"'ip tuntap add ${setting#*=} mode tap' makes a TAP device"
			;;
		esac
	done
}

# check_fault RULE: ends the script if a rule has no action, or a field that its action does not have. The actions and
# their fields are in scripts/help/faults.txt, which a test of the program compares with its own.
check_fault() {
	local file=$VRNIC_TOP/scripts/help/faults.txt words word action fields actions
	read -r -d '' -a words <<<"$1" || true
	actions=$(cut -d : -f 1 "$file" | paste -s -d , | sed 's/,/, /g')
	[ ${#words[@]} -gt 0 ] || die "--fault: a rule must begin with an action: $actions"
	action=${words[0]}
	fields=$(awk -v action="$action:" '$1 == action { $1 = ""; print $0 " " }' "$file")
	[ -n "$fields" ] || die "--fault: '$action' is not an action; the actions are $actions"
	for word in "${words[@]:1}"; do
		[[ $word == *=* ]] || die "--fault: '$word' is not of the form name=value"
		[[ $fields == *" ${word%%=*} "* ]] ||
			die "--fault: $action has no field '${word%%=*}'; its fields are$(sed 's/ /, /2g; s/, $//' <<<"$fields")"
	done
}
