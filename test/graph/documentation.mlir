// The documentation shows every op, nothing that does not parse, and what the passes really do.
// RUN: %python %S/doc_examples.py parse %docs/reference/ir.md %docs/../graph/include/pumpgraph/graph/PumpOps.td
// RUN: %python %S/doc_examples.py transform %docs/reference/passes.md

// docs/reference/passes.md is generated: after a change of Passes.td, put the output of this over it.
// RUN: %python %S/doc_examples.py passes %build/passes/ir/Passes.md | diff %docs/reference/passes.md -
