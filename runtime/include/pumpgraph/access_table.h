/* SPDX-License-Identifier: Apache-2.0 */
/**
 * \file
 * What a kernel does with the memory its parameters point to, as the Clang plugin found it at build time. The plugin
 * puts one table into each object file that it compiled kernels of, and a constructor that registers it; the runtime
 * looks kernels up by mangled name when it describes a captured step.
 *
 * A slot is eight bytes of a kernel parameter that hold an address: a pointer parameter, or a pointer inside a struct
 * parameter. Eight bytes that cannot be one for this kernel, because it never looks at some of them, are a slot that
 * nothing is touched through. Byte ranges count from that address. All structs are constant data that live as long as
 * the program or the shared library that holds them.
 */
#ifndef PUMPGRAPH_ACCESS_TABLE_H
#define PUMPGRAPH_ACCESS_TABLE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PUMPGRAPH_ACCESS_TABLE_VERSION 1

/** One step of an expression in postfix order, over signed 64-bit numbers. An expression whose evaluation overflows,
 * divides by zero, or reads what the launch does not have is unknown. */
typedef enum pumpgraph_extent_op {
  PUMPGRAPH_EXTENT_CONSTANT = 0,  /**< push `value` */
  PUMPGRAPH_EXTENT_SIGNED = 1,    /**< push a scalar parameter: `size` bytes (1, 2, 4, 8) at `value` in `parameter` */
  PUMPGRAPH_EXTENT_UNSIGNED = 2,  /**< the same, zero-extended */
  PUMPGRAPH_EXTENT_GRID_DIM = 3,  /**< push gridDim.x, .y or .z, by `value` 0, 1, 2; clusters do not change it */
  PUMPGRAPH_EXTENT_BLOCK_DIM = 4, /**< push blockDim.x, .y or .z, by `value` 0, 1, 2 */
  PUMPGRAPH_EXTENT_ADD = 5,       /**< from here on: pop b, pop a, push the result */
  PUMPGRAPH_EXTENT_SUBTRACT = 6,
  PUMPGRAPH_EXTENT_MULTIPLY = 7,
  PUMPGRAPH_EXTENT_DIVIDE = 8, /**< rounds down; b must be positive */
  PUMPGRAPH_EXTENT_MINIMUM = 9,
  PUMPGRAPH_EXTENT_MAXIMUM = 10,
} pumpgraph_extent_op;

typedef struct pumpgraph_extent_step {
  uint8_t op; /**< pumpgraph_extent_op */
  uint8_t size;
  uint16_t reserved;
  uint32_t parameter;
  int64_t value;
} pumpgraph_extent_step;

/** An expression; `count` 0: unknown. */
typedef struct pumpgraph_extent {
  const pumpgraph_extent_step *steps;
  uint64_t count;
} pumpgraph_extent;

enum {
  PUMPGRAPH_SLOT_ESCAPES = 1, /**< the address is stored, or goes where it cannot be followed: may is readwrite */
  PUMPGRAPH_SLOT_ATOMIC = 2,  /**< some accesses are atomic */
  PUMPGRAPH_SLOT_HOLDS_POINTERS = 4, /**< memory is accessed through addresses loaded from it */
  PUMPGRAPH_SLOT_UNRESOLVED = 8,     /**< not understood: may is readwrite, must none, no range */
};

typedef struct pumpgraph_slot {
  uint32_t parameter;
  uint32_t offset; /**< bytes from the parameter's start */
  uint8_t may;     /**< bit 0: may be read, bit 1: may be written */
  uint8_t must;    /**< bit 1: [must_begin, must_end) is overwritten in full and no byte of it read before; else 0 */
  uint8_t flags;   /**< PUMPGRAPH_SLOT_* */
  uint8_t reserved[5];
  pumpgraph_extent begin; /**< nothing before this byte is touched; unknown: anything */
  pumpgraph_extent end;   /**< nothing from this byte on is touched; unknown: anything. end <= begin: nothing at all */
  pumpgraph_extent must_begin;
  pumpgraph_extent must_end; /**< must_end <= must_begin: nothing is overwritten for certain */
} pumpgraph_slot;

/** Pure: what it writes is a function, bit for bit, of what it reads through its slots and of its parameters, and it
 * does nothing else. No flag: nobody knows. */
enum {
  /** touches global memory that no slot leads to: globals, integers made pointers */
  PUMPGRAPH_KERNEL_OTHER_MEMORY = 1,
  /** pure, says its author */
  PUMPGRAPH_KERNEL_PURE = 2,
  /** pure in a launch for which `begin` and `end` of all slots that may be written are known, and in which no two slots
   * lead to one byte that may be written */
  PUMPGRAPH_KERNEL_PURE_APART = 4,
};

typedef struct pumpgraph_kernel_accesses {
  const void *stub;            /**< the host function a launch names */
  const char *name;            /**< mangled, as cuFuncGetName() gives it */
  const pumpgraph_slot *slots; /**< every slot that was found, in ascending order of (parameter, offset) */
  uint64_t slot_count;
  uint32_t flags; /**< PUMPGRAPH_KERNEL_* */
  uint32_t reserved;
} pumpgraph_kernel_accesses;

typedef struct pumpgraph_access_table {
  uint32_t version; /**< PUMPGRAPH_ACCESS_TABLE_VERSION */
  uint32_t reserved;
  const pumpgraph_kernel_accesses *kernels;
  uint64_t kernel_count;
} pumpgraph_access_table;

/** Makes a table known to every session of the process, from the next adoption on. Called by the constructors that the
 * plugin emits, through a weak reference: a program without PumpGraph links and runs. A table of another version is
 * ignored. Where two tables name the same kernel, an access is what either says, and it is pure if both say so. Any
 * thread, at any time. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
void pumpgraph_register_access_table(const pumpgraph_access_table *table);

/** Takes a registered table away again, before the shared library that holds it is unloaded. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
void pumpgraph_unregister_access_table(const pumpgraph_access_table *table);

#ifdef __cplusplus
}
#endif
#endif
