// The documentation shows every op, nothing that does not parse, and what the passes really do.
// RUN: %python %S/doc_examples.py parse %docs/reference/ir.md %docs/../graph/include/pumpgraph/graph/PumpOps.td
// RUN: %python %S/doc_examples.py transform %docs/reference/passes.md
// RUN: %python %S/doc_examples.py words %docs/reference/ir.md %docs/../graph/Syntax.cpp

// docs/reference/passes.md is generated: after a change of Passes.td, put the output of this over it.
// RUN: %python %S/doc_examples.py passes %build/passes/ir/Passes.md | diff %docs/reference/passes.md -

// So are the lists of docs/reference/ir.md, from PumpOps.td.
// RUN: llvm-tblgen --dump-json -I %docs/../graph/include -I %llvm_include %docs/../graph/include/pumpgraph/graph/PumpOps.td > %t.json
// RUN: %python %S/doc_examples.py ops %docs/reference/ir.md %t.json | diff %docs/reference/ir.md -
