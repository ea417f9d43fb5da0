/* SPDX-License-Identifier: GPL-2.0 */
/* What reserve.c needs of the driver. */
#ifndef VRNIC_RESERVE_H
#define VRNIC_RESERVE_H

struct ib_qp;

/* Returns the completion vector with the least load of the device of a queue pair, or a negative errno. */
int vrnic_any_vector(struct ib_qp *qp);

#endif
