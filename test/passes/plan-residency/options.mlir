// Byte counts are written as people write them, and the pipeline that was run can be printed and run again.
// RUN: pump-graph-opt %s --plan-residency="budget=1.5GiB up=25 host-memory=64GiB" --dump-pass-pipeline -o /dev/null 2>&1 | FileCheck %s
// CHECK: plan-residency{backend=virtual both={{.*}} budget=1610612736 {{.*}} host-memory=68719476736 up=2.500000e+01}

// RUN: not pump-graph-opt %s --plan-residency=budget=4parsecs 2>&1 | FileCheck %s --check-prefix=BAD
// BAD: '4parsecs' is not a number of bytes such as 4096, 2MiB or 1.5GiB
pump.graph @step {
}
