pump.graph @step {
  %a = pump.buffer "a" private size(2097152)
  %k0 = pump.kernel "produce" node(0) [write %a[0, 2097152] assumed] cost(10.5)
  %k1 = pump.kernel "consume" node(1) after(%k0) [read %a[0, 2097152] assumed] cost(10.5)
}
