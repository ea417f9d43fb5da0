// SPDX-License-Identifier: GPL-2.0
/* The symbols of direct.h whose functions are in exports.rs. Those of reservations are in direct/reserve.c. */

#include <linux/export.h>

#include "direct.h"

EXPORT_SYMBOL_GPL(vrnic_cq_state);
EXPORT_SYMBOL_GPL(vrnic_cq_resize);
EXPORT_SYMBOL_GPL(vrnic_range_get);
EXPORT_SYMBOL_GPL(vrnic_range_put);
EXPORT_SYMBOL_GPL(vrnic_range_arm);
EXPORT_SYMBOL_GPL(vrnic_range_query);
EXPORT_SYMBOL_GPL(vrnic_range_done);
EXPORT_SYMBOL_GPL(vrnic_range_page);
EXPORT_SYMBOL_GPL(vrnic_mark);
EXPORT_SYMBOL_GPL(vrnic_connection_query);
EXPORT_SYMBOL_GPL(vrnic_connection_watch);
EXPORT_SYMBOL_GPL(vrnic_connection_end);
EXPORT_SYMBOL_GPL(vrnic_stream_attach);
EXPORT_SYMBOL_GPL(vrnic_rdma_start);
EXPORT_SYMBOL_GPL(vrnic_stream_iscsi);
EXPORT_SYMBOL_GPL(vrnic_stream_count);
EXPORT_SYMBOL_GPL(vrnic_command_post);
EXPORT_SYMBOL_GPL(vrnic_command_end);
