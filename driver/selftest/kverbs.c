// SPDX-License-Identifier: GPL-2.0
/*
 * A kernel client of the vrnic driver, which tests what user space cannot reach: rings that
 * the driver itself posts to and polls, the region of all memory, completion handlers.
 *
 * Loading runs the tests on every vrnic device, each against itself; loading fails if a test
 * fails or there is no device. The kernel log says which. With hold=1 it then waits for the
 * adapter's death: the driver must be removed after that, and the log says how it went.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "kverbs.h"

#define DRIVER_ID 0x76726e69 /* abi::RDMA_DRIVER_ID */

static bool hold;
module_param(hold, bool, 0444);
MODULE_PARM_DESC(hold, "Keep requests outstanding, for an adapter that dies before its driver goes");

static struct ib_client client;
static int devices, failures;

static void close_test(struct test *test)
{
	close_side(test, &test->a);
	close_side(test, &test->b);
	if (!IS_ERR_OR_NULL(test->cq))
		ib_free_cq(test->cq);
	if (!IS_ERR_OR_NULL(test->pd))
		ib_dealloc_pd(test->pd);
	kfree(test);
}

static int open_test(struct test *test)
{
	test->pd = ib_alloc_pd(test->device, IB_PD_UNSAFE_GLOBAL_RKEY);
	if (IS_ERR(test->pd))
		return PTR_ERR(test->pd);
	test->cq = ib_alloc_cq(test->device, test, 4 * DEPTH, 0, IB_POLL_WORKQUEUE);
	if (IS_ERR(test->cq))
		return PTR_ERR(test->cq);
	return open_side(test, &test->a) ?: open_side(test, &test->b);
}

static int test_device(struct ib_device *device)
{
	struct test *test = kzalloc(sizeof(*test), GFP_KERNEL);
	int ret;

	if (!test)
		return -ENOMEM;
	test->device = device;
	ret = open_test(test) ?: test_address(test) ?: test_data(test) ?: test_memory(test);
	if (!ret && hold)
		ret = prepare_death(test);
	if (!ret && hold)
		ib_set_client_data(device, &client, test);
	else
		close_test(test);
	return ret;
}

static int add(struct ib_device *device)
{
	int ret;

	if (device->ops.driver_id != DRIVER_ID)
		return -EOPNOTSUPP;
	ret = test_device(device);
	devices++;
	failures += !!ret;
	dev_info(&device->dev, "kernel verbs test: %d\n", ret);
	return ret;
}

static void remove(struct ib_device *device, void *data)
{
	struct test *test = data;

	if (!test)
		return;
	dev_info(&device->dev, "kernel verbs test after death: %d\n", test_death(test));
	close_test(test);
}

static struct ib_client client = { .name = "vrnic_kverbs", .add = add, .remove = remove };

static int __init kverbs_init(void)
{
	int ret = ib_register_client(&client);

	if (ret)
		return ret;
	if (devices && !failures)
		return 0;
	ib_unregister_client(&client);
	return devices ? -EIO : -ENODEV;
}
module_init(kverbs_init);

static void __exit kverbs_exit(void)
{
	ib_unregister_client(&client);
}
module_exit(kverbs_exit);

MODULE_DESCRIPTION("Kernel client that tests the vrnic driver");
MODULE_LICENSE("GPL");
