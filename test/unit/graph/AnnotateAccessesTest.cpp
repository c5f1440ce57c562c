// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/AnnotateAccesses.h"

#include <gtest/gtest.h>

namespace pumpgraph {
namespace {

using Parameters = std::vector<bool>;

struct Signature {
  const char *declaration;
  const char *mangled;
  Parameters constant; ///< empty: the name must not be trusted
};

class ConstantPointees : public testing::TestWithParam<Signature> {};

TEST_P(ConstantPointees, followTheDeclaration) {
  EXPECT_EQ(constantPointees(GetParam().mangled), GetParam().constant) << GetParam().declaration;
}

const Signature signatures[] = {
    {"add(float const*, float*, int)", "_Z3addPKfPfi", {true, false, false}},
    {"k()", "_Z1kv", {}},
    // Qualifiers that matter are those nearest the last star.
    {"k(float* const*)", "_Z1kPKPf", {true}},
    {"k(float const**)", "_Z1kPPKf", {false}},
    {"k(float const volatile*)", "_Z1kPVKf", {true}},
    {"k(float volatile*)", "_Z1kPVf", {false}},
    {"k(float const&)", "_Z1kRKf", {true}},
    {"k(float&)", "_Z1kRf", {false}},
    // Not pointers, though constant somewhere inside.
    {"k(std::vector<float const*, float const*>)", "_Z1kSt6vectorIPKfS1_E", {false}},
    {"k(S<float const*>)", "_Z1k1SIPKfE", {false}},
    {"k(S<float const*> const*, float*)", "_Z1kPK1SIPKfEPf", {true, false}},
    // Functions and arrays.
    {"k(void (*)(float const*))", "_Z1kPFvPKfE", {false}},
    {"k(void (*)(float const*, int), float const*)", "_Z1kPFvPKfiES0_", {false, true}},
    {"k(float const (*) [4])", "_Z1kPA4_Kf", {false}},
    // Templates: parameters in terms of template arguments.
    {"void k<float*>(float*, float* const*)", "_Z1kIPfEvT_PKS1_", {false, true}},
    {"void k<float const*>(float const*)", "_Z1kIPKfEvT_", {true}},
    {"void k<float const*, int, float*>(float const*, int, float*)", "_Z1kIJPKfiPfEEvDpT_", {true, false, false}},
    {"(anonymous namespace)::k(float const*)", "_ZN12_GLOBAL__N_11kEPKf", {true}},
    // A real one: at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, ...>(...)
    {"at::native::vectorized_elementwise_kernel",
     "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_",
     {false, false, false}},
    // No types to be had.
    {"extern \"C\"", "sgemm_kernel", {}},
    {"a variable", "_ZN1a1bE", {}},
    {"not a mangled name after all", "_Zwhatever", {}},
    {"nothing", "", {}},
    // A comparison among the template arguments of a parameter's type: its brackets are no brackets.
    {"void k<int>(S<((1)>(0))>*, int const*)", "_Z1kIiEvP1SIXgtLi1ELi0EEEPKi", {}},
};

INSTANTIATE_TEST_SUITE_P(Signatures, ConstantPointees, testing::ValuesIn(signatures));

Description oneNode(NodeKind kind, std::string name, std::vector<Access> accesses) {
  Description description;
  description.buffers.resize(2);
  for (Buffer &buffer : description.buffers)
    buffer.size = 4096;
  Node &node = description.nodes.emplace_back();
  node.kind = kind;
  node.name = std::move(name);
  node.accesses = std::move(accesses);
  return description;
}

TEST(AnnotateAccesses, kernelReadsThroughConstantPointers) {
  Description step = oneNode(NodeKind::Kernel, "_Z3addPKfPf",
                             {Access{.buffer = 0, .range = {0, 4096}, .parameter = 0},
                              Access{.buffer = 1, .range = {0, 4096}, .parameter = 1}});
  const AnnotateStats stats = annotateAccesses(step);
  EXPECT_EQ(stats.declared, 1u);
  EXPECT_EQ(stats.assumed, 1u);
  EXPECT_EQ(step.nodes[0].accesses[0].may, modeRead);
  EXPECT_EQ(step.nodes[0].accesses[0].must, modeNone);
  EXPECT_EQ(step.nodes[0].accesses[0].evidence, Evidence::Declared);
  EXPECT_EQ(step.nodes[0].accesses[1].may, modeReadWrite);
  EXPECT_EQ(step.nodes[0].accesses[1].evidence, Evidence::Assumed);
}

// The same buffer through both: what is written through the one pointer stays written.
TEST(AnnotateAccesses, aliasedParametersStayApart) {
  Description step = oneNode(NodeKind::Kernel, "_Z3addPKfPf",
                             {Access{.buffer = 0, .range = {0, 4096}, .parameter = 0},
                              Access{.buffer = 0, .range = {0, 4096}, .parameter = 1}});
  annotateAccesses(step);
  ASSERT_EQ(step.nodes[0].accesses.size(), 2u);
  EXPECT_EQ(step.nodes[0].accesses[0].may, modeRead);
  EXPECT_EQ(step.nodes[0].accesses[1].may, modeReadWrite);
}

TEST(AnnotateAccesses, unknownOrForeignParameterStaysAssumed) {
  const std::vector<Access> accesses = {Access{.buffer = 0, .range = {0, 4096}},
                                        Access{.buffer = 0, .range = {0, 4096}, .parameter = 7}};
  Description step = oneNode(NodeKind::Kernel, "_Z1kPKf", accesses);
  EXPECT_EQ(annotateAccesses(step).assumed, 2u);
  EXPECT_EQ(step.nodes[0].accesses, accesses);
}

TEST(AnnotateAccesses, betterEvidenceIsLeftAlone) {
  const std::vector<Access> accesses = {
      Access{.buffer = 0, .range = {0, 4096}, .evidence = Evidence::Declared, .parameter = 0}};
  Description step = oneNode(NodeKind::Kernel, "_Z1kPKf", accesses);
  annotateAccesses(step);
  EXPECT_EQ(step.nodes[0].accesses, accesses);
}

TEST(AnnotateAccesses, whatWasObservedGivesWayToATypeAndIsReported) {
  Description step = oneNode(
      NodeKind::Kernel, "_Z1kPKf",
      {Access{.buffer = 0, .range = {0, 4096}, .may = modeWrite, .evidence = Evidence::Observed, .parameter = 0}});
  const AnnotateStats stats = annotateAccesses(step);
  EXPECT_EQ(step.nodes[0].accesses[0].may, modeRead);
  EXPECT_EQ(step.nodes[0].accesses[0].evidence, Evidence::Declared);
  ASSERT_EQ(stats.disagreements.size(), 1u);
  EXPECT_NE(stats.disagreements[0].message.find("was observed to write through parameter 0"), std::string::npos);
}

TEST(AnnotateAccesses, copyProvesSourceAndDestination) {
  Description step = oneNode(NodeKind::Memcpy, "",
                             {Access{.buffer = 0, .range = {0, 64}, .may = modeRead},
                              Access{.buffer = 1, .range = {64, 64}, .may = modeWrite}});
  EXPECT_EQ(annotateAccesses(step).proved, 2u);
  EXPECT_EQ(step.nodes[0].accesses[0].must, modeRead);
  EXPECT_EQ(step.nodes[0].accesses[1].must, modeWrite);
  EXPECT_EQ(step.nodes[0].accesses[1].evidence, Evidence::Proved);
}

// Which end of a copy an access is must come from the lift; it is never guessed.
TEST(AnnotateAccesses, copyOfUnknownDirectionStaysAssumed) {
  Description step = oneNode(NodeKind::Memcpy, "", {Access{.buffer = 0, .range = {0, 64}}});
  EXPECT_EQ(annotateAccesses(step).assumed, 1u);
  EXPECT_EQ(step.nodes[0].accesses[0].may, modeReadWrite);
}

TEST(AnnotateAccesses, fillOverwrites) {
  Description step = oneNode(NodeKind::Memset, "", {Access{.buffer = 0, .range = {0, 64}}});
  EXPECT_EQ(annotateAccesses(step).proved, 1u);
  EXPECT_EQ(step.nodes[0].accesses[0].may, modeWrite);
  EXPECT_EQ(step.nodes[0].accesses[0].must, modeWrite);
}

TEST(AnnotateAccesses, otherNodesStayAssumed) {
  Description step = oneNode(NodeKind::Host, "_Z1kPKf", {Access{.buffer = 0, .range = {0, 64}, .parameter = 0}});
  EXPECT_EQ(annotateAccesses(step).assumed, 1u);
}

} // namespace
} // namespace pumpgraph
