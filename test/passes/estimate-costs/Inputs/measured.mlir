pump.graph @step {
  pump.kernel "gemm" node(0) cost(123.5)
  pump.kernel "relu" node(1) cost(7.25)
  pump.kernel "not timed" node(2)
}
