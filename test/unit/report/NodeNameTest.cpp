// SPDX-License-Identifier: Apache-2.0
#include "passes/report/NodeName.h"

#include <gtest/gtest.h>

namespace pumpgraph {

static std::string shown(const char *name) {
  Node node;
  node.name = name;
  return displayName(node);
}

TEST(NodeName, MangledNamesLoseTheirArguments) {
  EXPECT_EQ(shown("_Z10fused_adamPfPKfi"), "fused_adam");
  EXPECT_EQ(shown("_ZN7cutlass7Kernel2I52cutlass_80_tensorop_s1688gemm_128x128_16x6_nn_align4EEvNT_6ParamsE"),
            "cutlass::Kernel2");
  EXPECT_EQ(
      shown("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_"),
      "at::native::vectorized_elementwise_kernel");
}

// nvcc puts the file's name and a hash into anonymous namespaces.
TEST(NodeName, AnonymousNamespacesGo) {
  EXPECT_EQ(
      shown("_ZN2at6native55_GLOBAL__N__d25d856e_22_ForeachBinaryOpList_cu_a911ec4325multi_tensor_apply_kernelINS1_"
            "18TensorListMetadataILi2EEENS1_24BinaryOpListAlphaFunctorIfLi2ELi2ELi0EEEJSt4plusIfEfEEEvT_T0_DpT1_"),
      "at::native::multi_tensor_apply_kernel");
  EXPECT_EQ(withoutArguments("void (anonymous namespace)::relu<float>(float*)"), "relu");
}

TEST(NodeName, OtherNamesStayAsTheyAre) {
  EXPECT_EQ(shown("sm90_xmma_gemm_f32f32"), "sm90_xmma_gemm_f32f32");
  EXPECT_EQ(shown("add (twice) <b>"), "add (twice) <b>");
  EXPECT_EQ(shown("_Znonsense"), "_Znonsense");
  EXPECT_EQ(withoutArguments("bool operator><int>(A, B)"), "bool operator><int>(A, B)");
}

// What the program calls it says more than what the library calls its kernel.
TEST(NodeName, ALabelComesFirst) {
  Node node;
  node.name = "_Z10fused_adamPfPKfi";
  node.label = "layer3.2.conv2 backward (convolution_backward)";
  EXPECT_EQ(displayName(node), node.label);
}

TEST(NodeName, ANodeWithoutANameIsCalledWhatItIs) {
  Node node;
  node.kind = NodeKind::Memset;
  EXPECT_EQ(displayName(node), "memset");
}

} // namespace pumpgraph
