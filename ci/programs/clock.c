/* The clock of any adapter, for programs that ask for an mlx5 adapter's. Preloaded into the tests of pyverbs
 * (ci/ports/pyverbs).
 *
 * These convert timestamps of completions by a function of mlx5's library, because verbs have none. Here, that function
 * describes the adapter's clock by what verbs say of it: its frequency (ibv_query_device_ex(3)) and what it shows
 * (ibv_query_rt_values_ex(3)). The timestamps are the adapter's.
 */
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <stdint.h>
#include <time.h>

/* A timestamp becomes nanoseconds by a product and a shift to the right. With this shift, a product of a difference of
 * three days still has 64 bits, if the clock counts nanoseconds. */
enum { SHIFT = 16 };
static const uint64_t NS_PER_S = 1000000000, NS_PER_MS = 1000000;

int mlx5dv_get_clock_info(struct ibv_context *context, struct mlx5dv_clock_info *info)
{
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	struct ibv_device_attr_ex device;
	struct timespec now;
	int error = ibv_query_device_ex(context, NULL, &device);

	if (error)
		return error;
	/* In kHz. */
	if (device.hca_core_clock == 0 || device.completion_timestamp_mask == 0)
		return EOPNOTSUPP;
	error = ibv_query_rt_values_ex(context, &values);
	if (error)
		return error;
	if (clock_gettime(CLOCK_REALTIME, &now))
		return errno;
	*info = (struct mlx5dv_clock_info){
		.nsec = now.tv_sec * NS_PER_S + now.tv_nsec,
		.last_cycles = values.raw_clock.tv_nsec,
		.mult = (NS_PER_MS << SHIFT) / device.hca_core_clock,
		.shift = SHIFT,
		.mask = device.completion_timestamp_mask,
	};
	return 0;
}
