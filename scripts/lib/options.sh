# Options of scripts that pass them on to a program of ours. The program may not be built yet, so its help is in
# scripts/help, and its options are read from there. Its tests compare the two.
# shellcheck shell=bash

# check_options SCRIPT ARGUMENT…: prints the help and ends if that is asked for. Ends the script if an option is unknown,
# or an argument belongs to none. What follows `--` is not looked at.
check_options() {
	local name=$1 help=$VRNIC_TOP/scripts/help/$1.txt line value=''
	shift
	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		case $1 in
		-h | --help)
			cat "$help"
			exit
			;;
		-*)
			check_value "$name" "$value"
			line=$(grep -E -m 1 -- "^ +${1%%=*}( |\$)" "$help") ||
				die "unknown option ${1%%=*}; scripts/$name --help lists the options"
			value=''
			[[ $1 == *=* ]] || value=${line#*--}
			;;
		*)
			[[ $value == *\<* ]] || die "'$1' belongs to no option; scripts/$name --help lists the options"
			value=''
			;;
		esac
		shift
	done
	check_value "$name" "$value"
}

# check_value SCRIPT OPTION: ends the script if the option needs a value. That of an option with brackets can be left out.
check_value() {
	[[ $2 != *\ \<* ]] || die "the option --${2%% *} needs a value; scripts/$1 --help lists the options"
}
