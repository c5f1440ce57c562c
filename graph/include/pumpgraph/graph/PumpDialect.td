// SPDX-License-Identifier: Apache-2.0
/// \file
/// The `pump` dialect and its two types.

#ifndef PUMPGRAPH_GRAPH_PUMPDIALECT_TD
#define PUMPGRAPH_GRAPH_PUMPDIALECT_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/OpBase.td"

def Pump_Dialect : Dialect {
  let name = "pump";
  let summary = "A captured step: buffers, nodes, what they touch, and where the bytes are meanwhile";
  let description = [{
    A step is a graph of nodes that may run as soon as the nodes they depend on allow. Dependencies are SSA values of
    type `!pump.token`; block order is one topological order of the graph, so cycles cannot be written. Buffers are SSA
    values of type `!pump.buffer`; nodes say which bytes of them they touch. The dialect is the readable form of
    `pumpgraph::Description`, and converts to it and back without loss.
  }];
  let cppNamespace = "::pumpgraph::ir";
  let useDefaultTypePrinterParser = 1;
}

class Pump_Type<string name, string typeMnemonic> : TypeDef<Pump_Dialect, name> {
  let mnemonic = typeMnemonic;
}

def Pump_BufferType : Pump_Type<"Buffer", "buffer"> {
  let summary = "one allocation with its own virtual address";
}

def Pump_TokenType : Pump_Type<"Token", "token"> {
  let summary = "that a node has run, for those that depend on it";
}

#endif
