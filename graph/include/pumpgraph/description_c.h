/* SPDX-License-Identifier: Apache-2.0 */
/**
 * \file
 * The flat graph description as plain C structs: the one form in which a captured, planned, lowered or re-lifted
 * step crosses a library boundary.
 *
 * Every array belongs to the builder of the description and must stay alive for the duration of the call it is passed
 * to. Strings are NUL-terminated UTF-8. Indices are positions in the arrays of the same description. Nodes are in a
 * topological order: every edge goes from a smaller to a larger index.
 *
 * The meaning of each field is documented once, on its C++ twin in graph/Description.h.
 */
#ifndef PUMPGRAPH_DESCRIPTION_C_H
#define PUMPGRAPH_DESCRIPTION_C_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PUMPGRAPH_DESCRIPTION_VERSION 11

typedef struct pumpgraph_range {
  uint64_t offset; /* bytes */
  uint64_t size;   /* bytes */
} pumpgraph_range;

typedef struct pumpgraph_buffer {
  const char *name;
  uint64_t address; /* device address of byte 0; 0 if unknown */
  uint64_t size;    /* bytes */
  uint8_t is_private;
  uint8_t live_in;
  uint8_t live_out;
  uint8_t renamable; /* another address could stand wherever nodes have this one */
  uint8_t present;   /* all of it on the device whenever the step does not run */
  uint8_t reserved[3];
  uint32_t continues;              /* planned: the buffer whose value goes on here; UINT32_MAX: none */
  const int32_t *frames;           /* one per page, -1: no frame; NULL before planning */
  uint64_t frame_count;            /* 0 or ceil(size / page_bytes) */
  const pumpgraph_range *resident; /* on the device at the step boundary */
  uint64_t resident_count;
  const pumpgraph_range *mirrored; /* of those, in host memory as well */
  uint64_t mirrored_count;
  const pumpgraph_range *hosted; /* in host memory at all times */
  uint64_t hosted_count;
} pumpgraph_buffer;

typedef struct pumpgraph_access {
  uint32_t buffer;
  uint8_t may;       /* bit 0 read, bit 1 write */
  uint8_t must;      /* bit 0 reads every byte, bit 1 overwrites every byte */
  uint8_t evidence;  /* pumpgraph::Evidence */
  uint8_t aside;     /* of a pure node: what it finds here reaches nothing that it writes elsewhere */
  uint64_t offset;   /* bytes */
  uint64_t size;     /* bytes */
  int32_t parameter; /* position of the kernel parameter that held the pointer; -1 if unknown */
  float slowdown;    /* over hosted pages, of the time of the link; > 0 */
} pumpgraph_access;

typedef struct pumpgraph_node {
  uint8_t kind;   /* pumpgraph::NodeKind */
  uint8_t joined; /* transfers and lowered copies: a row of the copy before it in its direction; else 0 */
  uint8_t pure;   /* what it writes is a function of what it reads and of its parameters; it does nothing else */
  uint8_t reserved;
  int32_t captured; /* position among the captured graph's nodes; -1 for an added node */
  int32_t repeats;  /* rematerialized nodes: the captured node that is run again; else -1 */
  uint32_t reserved2;
  const char *name;
  const char *label;  /* what the program calls it; "" if nobody said */
  const char *reason; /* opaque nodes: why; else "" */
  const pumpgraph_access *accesses;
  uint64_t access_count;
  double cost_us;       /* NaN if unknown */
  double arithmetic_us; /* captured nodes: by declared operations; 0: none are */
  uint32_t buffer;      /* transfers only, as are the next three */
  uint32_t advice;      /* pumpgraph::Advice */
  uint64_t offset;
  uint64_t size;
  uint64_t host_offset; /* lowered copies only: position in the session's pinned pool; 0 if the pages are hosted
                           in a buffer that this one continues or that continues it: it does not count then */
} pumpgraph_node;

typedef struct pumpgraph_edge {
  uint32_t from;
  uint32_t to;
  uint32_t kind; /* pumpgraph::EdgeKind */
} pumpgraph_edge;

typedef struct pumpgraph_description {
  uint32_t version; /* PUMPGRAPH_DESCRIPTION_VERSION */
  uint32_t stage;   /* pumpgraph::Stage */
  const char *name;
  uint64_t page_bytes;
  uint64_t budget_bytes; /* 0 before planning */
  uint64_t host_bytes;   /* size of the pinned pool the lowered copies use; 0 before lowering */
  const pumpgraph_buffer *buffers;
  uint64_t buffer_count;
  const pumpgraph_node *nodes;
  uint64_t node_count;
  const pumpgraph_edge *edges;
  uint64_t edge_count;
} pumpgraph_description;

#ifdef __cplusplus
}
#endif
#endif
