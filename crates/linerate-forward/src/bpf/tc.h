/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
#ifndef LINERATE_TC_H
#define LINERATE_TC_H

#define NEXT (-1) /* TCX_NEXT, and TC_ACT_UNSPEC of clsact: the next program decides */

#endif
