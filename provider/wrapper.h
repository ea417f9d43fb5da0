/* SPDX-License-Identifier: GPL-2.0 OR MIT
 * What build.rs binds: the interface between libibverbs and its plugins, and our own to programs.
 */
#include <stddef.h>
#include <infiniband/driver.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include "vrnicdv.h"
