/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The headers that the driver's bindings are made from: the headers of the RDMA core, and the few
 * headers of the network stack and of CPU hotplug that pairing/ and comp_vectors/cpuhp.rs need.
 * Everything that the kernel's own Rust bindings already have is taken from there (see Kbuild), so
 * a struct device is one type on both sides.
 */
#include <linux/cpuhotplug.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/notifier.h>
#include <linux/pci.h>
#include <net/netevent.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/iter.h>
#include <rdma/iw_cm.h>
#include <rdma/restrack.h>
#include <rdma/uverbs_ioctl.h>

#include "../direct.h"
#include "../hw/helpers.h"
#include "../iwarp/helpers.h"
#include "../methods.h"
#include "../pairing/helpers.h"
#include "../rdma/helpers.h"
#include "../rdma/memory/paging_helpers.h"
