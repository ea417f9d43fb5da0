# Runs the programs of rdma-unit-test in a guest, and compares what failed with the list of what is expected to fail.
# $parts names the programs, $filter is GoogleTest's, $seconds the time of the random walk, and $seed the number that
# chooses its steps. Sourced by sh.
options="--ipv4_only --verbs_mtu=1024 --device_name=$VRNIC_DEVICE --completion_wait_multiplier=8 --other_wait_multiplier=8"
case $VRNIC_DEVICE in rxe*) column=rxe ;; *) column=vrnic ;; esac
# Lines of `expected` that count for this device: a device or "both", a case's name with wildcards, and the reason.
rows() { grep -E "^($1) " expected | grep -E "^[a-z]+ +($column|both) " | sed -E 's/^[a-z]+ +[a-z]+ +([^ ]+).*/\1/'; }
rows fails >fails
left_out=$(rows without | tr '\n' ':')
passed=0 failed=0 skipped=0 known=0 broken=

# known NAME: whether this case is expected to fail.
known() {
	while read -r pattern; do
		# shellcheck disable=SC2254 # it is a pattern
		case $1 in $pattern) return 0 ;; esac
	done <fails
	return 1
}

# suites PROGRAM: runs each suite of a program in a process of its own, because a failed check ends the process.
suites() {
	list=$(./"$1" --gtest_list_tests --gtest_filter="$filter-$left_out" | grep '^[^ ].*\.' | cut -d' ' -f1)
	[ -n "$list" ] || { echo "$1 has no case"; broken="$broken $1"; return; }
	for suite in $list; do
		case $filter in '*') some=$suite'*' ;; *) some=$filter ;; esac
		timeout 900 ./"$1" $options --gtest_filter="$some-$left_out" >log 2>&1
		status=$?
		cat log >>"$VRNIC_OUTPUT/$1.log"
		passed=$((passed + $(grep -c '^\[       OK \]' log)))
		skipped=$((skipped + $(grep -c '^\[  SKIPPED \].*ms)' log)))
		for name in $(grep -E '^\[  FAILED  \] .* \([0-9]+ ms\)' log | sed -E 's/^\[  FAILED  \] ([^ ,]+).*/\1/'); do
			if known "$name"; then known=$((known + 1)); else failed=$((failed + 1)) && echo "failed: $name"; fi
		done
		if ! grep -q '^\[  PASSED  \]' log; then
			echo "$1, $suite: ended with status $status in $(grep '^\[ RUN ' log | tail -n 1)"
			tail -n 15 log
			broken="$broken $suite"
		fi
		[ "$filter" = '*' ] || break
	done
}

for part in $parts; do
	case $part in
	walk)
		# Two clients on one adapter; a result that they do not expect ends the program.
		echo "rdma-unit-test: a walk of $seconds s with RDMA_UNIT_TEST_SEED=$seed"
		export RDMA_UNIT_TEST_SEED="$seed"
		./walk $options --duration="$seconds" --clients=2 >log 2>&1 && passed=$((passed + 1)) || broken="$broken walk"
		cp log "$VRNIC_OUTPUT/walk.log"
		tail -n 60 log
		;;
	*) suites "$part" ;;
	esac
	echo "rdma-unit-test, $part: $passed passed, $failed failed, $known failed as expected, $skipped skipped so far"
done
[ -z "$broken" ] || echo "ended early:$broken"
echo "rdma-unit-test: $passed passed, $failed failed, $known failed as expected, $skipped skipped"
[ -z "$broken" ] && [ $failed -eq 0 ] && [ $passed -gt 0 ]
