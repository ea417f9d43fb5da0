/* SPDX-License-Identifier: GPL-2.0 OR MIT
 * What build.rs binds: the interface between libibverbs and its plugins.
 */
#include <stddef.h>
#include <infiniband/driver.h>
