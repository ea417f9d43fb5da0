/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The headers that the bindings of kernel clients are made from. Those of the driver are in
 * bindings/bindings.h.
 */
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

#include "../../direct.h"
#include "helpers.h"
