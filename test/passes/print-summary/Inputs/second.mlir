pump.graph @second {
  pump.kernel "only" node(0) cost(5.0)
}
