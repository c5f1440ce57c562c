/* SPDX-License-Identifier: Apache-2.0 */
/**
 * \file
 * The access tables of the Clang plugin: each kernel's use of the memory behind its parameters, found at build time.
 *
 * The plugin puts one table into each object file with kernels that it compiled, and a constructor that registers the
 * table. The runtime looks kernels up by mangled name when it describes a captured step.
 *
 * A slot is eight bytes of a kernel parameter that hold an address: a pointer parameter, or a pointer inside a struct
 * parameter. Eight bytes that cannot be an address, because the kernel ignores some of them, are a slot without
 * accesses. Byte ranges count from the address in the slot. All structs are constant data that live as long as the
 * program or shared library that holds them.
 */
#ifndef PUMPGRAPH_ACCESS_TABLE_H
#define PUMPGRAPH_ACCESS_TABLE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The version of these structs. */
#define PUMPGRAPH_ACCESS_TABLE_VERSION 1

/** The operations of an expression in postfix order, over signed 64-bit numbers. The expression is unknown if its
 * evaluation overflows, divides by zero, or reads a parameter that the launch lacks. */
typedef enum pumpgraph_extent_op {
  PUMPGRAPH_EXTENT_CONSTANT = 0,  /**< push `value` */
  PUMPGRAPH_EXTENT_SIGNED = 1,    /**< push a scalar parameter: `size` bytes (1, 2, 4, 8) at `value` in `parameter` */
  PUMPGRAPH_EXTENT_UNSIGNED = 2,  /**< the same, zero-extended */
  PUMPGRAPH_EXTENT_GRID_DIM = 3,  /**< push gridDim.x, .y or .z, by `value` 0, 1, 2; clusters do not change it */
  PUMPGRAPH_EXTENT_BLOCK_DIM = 4, /**< push blockDim.x, .y or .z, by `value` 0, 1, 2 */
  PUMPGRAPH_EXTENT_ADD = 5,       /**< this and the following: pop b, pop a, push the result */
  PUMPGRAPH_EXTENT_SUBTRACT = 6,
  PUMPGRAPH_EXTENT_MULTIPLY = 7,
  PUMPGRAPH_EXTENT_DIVIDE = 8, /**< rounds down; b must be positive */
  PUMPGRAPH_EXTENT_MINIMUM = 9,
  PUMPGRAPH_EXTENT_MAXIMUM = 10,
} pumpgraph_extent_op;

/** One operation with its operands. */
typedef struct pumpgraph_extent_step {
  uint8_t op;         /**< pumpgraph_extent_op */
  uint8_t size;       /**< bytes of a scalar parameter; else 0 */
  uint16_t reserved;  /**< 0 */
  uint32_t parameter; /**< position among the kernel's parameters */
  int64_t value;      /**< a constant, an offset in the parameter, or a dimension; else 0 */
} pumpgraph_extent_step;

/** An expression of `count` operations; 0: unknown. */
typedef struct pumpgraph_extent {
  const pumpgraph_extent_step *steps; /**< in postfix order */
  uint64_t count;                     /**< number of operations */
} pumpgraph_extent;

/** Flags of a slot. */
enum {
  PUMPGRAPH_SLOT_ESCAPES = 1,        /**< the address is stored, or cannot be followed: `may` is read and write */
  PUMPGRAPH_SLOT_ATOMIC = 2,         /**< some accesses are atomic */
  PUMPGRAPH_SLOT_HOLDS_POINTERS = 4, /**< memory is accessed through addresses loaded from it */
  PUMPGRAPH_SLOT_UNRESOLVED = 8,     /**< not understood: `may` is read and write, `must` 0, no range */
};

/** The accesses of a kernel through one slot. */
typedef struct pumpgraph_slot {
  uint32_t parameter; /**< position among the kernel's parameters */
  uint32_t offset;    /**< bytes from the parameter's start */
  uint8_t may;        /**< bit 0: may be read, bit 1: may be written */
  uint8_t must;  /**< bit 1: every byte of [must_begin, must_end) is written, and none read ahead of that; else 0 */
  uint8_t flags; /**< PUMPGRAPH_SLOT_* */
  uint8_t reserved[5];         /**< 0 */
  pumpgraph_extent begin;      /**< no access ahead of this byte; unknown: any */
  pumpgraph_extent end;        /**< no access from this byte on; unknown: any. end <= begin: no access at all */
  pumpgraph_extent must_begin; /**< first byte that is certain to be written */
  pumpgraph_extent must_end;   /**< must_end <= must_begin: no byte is certain to be written */
} pumpgraph_slot;

/** Flags of a kernel. A kernel is pure if its writes are a function, bit for bit, of its reads through slots and of its
 * parameters, and its only effect. Without a flag its purity is unknown. */
enum {
  /** accesses global memory that no slot leads to: globals, integers cast to pointers */
  PUMPGRAPH_KERNEL_OTHER_MEMORY = 1,
  /** declared pure by its author */
  PUMPGRAPH_KERNEL_PURE = 2,
  /** pure in a launch where `begin` and `end` of all slots that may be written are known, and no two slots lead to the
   * same byte that may be written */
  PUMPGRAPH_KERNEL_PURE_APART = 4,
};

/** The table of one kernel. */
typedef struct pumpgraph_kernel_accesses {
  const void *stub;            /**< the host function that a launch names */
  const char *name;            /**< mangled, as cuFuncGetName() gives it */
  const pumpgraph_slot *slots; /**< all slots found, ascending by (parameter, offset) */
  uint64_t slot_count;         /**< number of `slots` */
  uint32_t flags;              /**< PUMPGRAPH_KERNEL_* */
  uint32_t reserved;           /**< 0 */
} pumpgraph_kernel_accesses;

/** The tables of one object file. */
typedef struct pumpgraph_access_table {
  uint32_t version;                         /**< PUMPGRAPH_ACCESS_TABLE_VERSION */
  uint32_t reserved;                        /**< 0 */
  const pumpgraph_kernel_accesses *kernels; /**< a table for each kernel */
  uint64_t kernel_count;                    /**< number of `kernels` */
} pumpgraph_access_table;

/** Registers a table with every session of the process, from the next adoption on. The constructors that the plugin
 * emits call it through a weak reference, so a program without PumpGraph links and runs. The table is borrowed. A table
 * of another version is ignored. If several tables name the same kernel, an access counts if one of them has it, an
 * overwrite and purity if all do. Any thread can call this at any time. A failure is a message of
 * level PUMPGRAPH_MESSAGE_WARNING. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
void pumpgraph_register_access_table(const pumpgraph_access_table *table);

/** Removes a registered table, ahead of the unloading of the shared library that holds it. Any thread can call this at
 * any time. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
void pumpgraph_unregister_access_table(const pumpgraph_access_table *table);

#ifdef __cplusplus
}
#endif
#endif
