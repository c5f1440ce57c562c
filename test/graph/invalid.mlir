// What the verifiers refuse, and where they point.
// RUN: pump-graph-opt %s --split-input-file --verify-diagnostics

pump.graph @access_outside {
  // expected-note @+1 {{the buffer has 4096 bytes}}
  %a = pump.buffer size(4096)
  // expected-error @+1 {{access #1 [4, 4096] is not inside its buffer}}
  pump.kernel "k" [read %a[0, 4096] assumed, read %a[4, 4096] assumed]
}

// -----
pump.graph @access_offset_negative {
  // expected-note @+1 {{the buffer has 4096 bytes}}
  %a = pump.buffer size(4096)
  // expected-error @+1 {{access #0 [-4, 8] is not inside its buffer}}
  pump.kernel "k" [read %a[-4, 8] assumed]
}

// -----
pump.graph @access_end_overflows {
  // expected-note @+1 {{the buffer has 4096 bytes}}
  %a = pump.buffer size(4096)
  // expected-error @+1 {{access #0 [8, 9223372036854775807] is not inside its buffer}}
  pump.kernel "k" [read %a[8, 9223372036854775807] assumed]
}

// -----
pump.graph @access_empty {
  %a = pump.buffer size(4096)
  // expected-error @+1 {{access #0 has an empty range of 0 bytes}}
  pump.kernel "k" [read %a[0, 0] assumed]
}

// -----
pump.graph @access_must_exceeds_may {
  %a = pump.buffer size(4096)
  // expected-error @+1 {{access #0 must do what it may not do}}
  pump.kernel "k" [read %a[0, 8] assumed must(write)]
}

// -----
pump.graph @access_parameter_negative {
  %a = pump.buffer size(4096)
  // expected-error @+1 {{access #0 has the parameter position -2}}
  pump.kernel "k" [read %a[0, 8] assumed parameter(-2)]
}

// -----
pump.graph @access_slowdown_negative {
  %a = pump.buffer size(4096)
  // expected-error @+1 {{access #0 has the slowdown -5.000000e-01, which is no positive number}}
  pump.kernel "k" [read %a[0, 8] assumed slowdown(-0.5)]
}

// -----
pump.graph @access_aside_of_no_pure_node {
  %a = pump.buffer size(4096)
  // expected-error @+1 {{access #0 is aside, but the node is not pure}}
  pump.kernel "k" [readwrite %a[0, 8] assumed parameter(0) aside]
}

// -----
pump.graph @access_aside_of_no_parameter {
  %a = pump.buffer size(4096)
  // expected-error @+1 {{access #0 is aside, but its parameter is not known}}
  pump.kernel "k" pure [readwrite %a[0, 8] assumed aside]
}

// -----
pump.graph @access_aside_in_part {
  %a = pump.buffer size(4096)
  // expected-error @+1 {{access #1 is not aside, but another one of the same bytes is}}
  pump.kernel "k" pure [readwrite %a[0, 9] assumed parameter(0) aside, read %a[8, 8] assumed parameter(1)]
}

// -----
pump.graph @access_aside_of_a_repetition {
  %a = pump.buffer size(4096)
  %k = pump.kernel "k" pure node(3) [readwrite %a[0, 8] assumed parameter(0) aside]
  // expected-error @+1 {{access #0 is aside, but a repetition leaves such accesses out}}
  pump.rematerialize "k" of(3) pure after(%k) [readwrite %a[0, 8] assumed parameter(0) aside]
}

// -----
pump.graph @access_asides_too_few {
  %a = pump.buffer size(4096)
  // expected-error @+1 {{accesses 2 buffers but tells of 1 whether they are aside}}
  %k = "pump.kernel"(%a, %a) <{name = "k", operandSegmentSizes = array<i32: 0, 2>, offsets = array<i64: 0, 8>, sizes = array<i64: 8, 8>, may = array<i8: 1, 1>, must = array<i8: 0, 0>, evidence = array<i8: 0, 0>, parameters = array<i32: -1, -1>, asides = array<i1: false>}> : (!pump.buffer, !pump.buffer) -> !pump.token
}

// -----
pump.graph @access_slowdowns_too_few {
  %a = pump.buffer size(4096)
  // expected-error @+1 {{accesses 2 buffers but tells the slowdown of 1}}
  %k = "pump.kernel"(%a, %a) <{name = "k", operandSegmentSizes = array<i32: 0, 2>, offsets = array<i64: 0, 8>, sizes = array<i64: 8, 8>, may = array<i8: 1, 1>, must = array<i8: 0, 0>, evidence = array<i8: 0, 0>, parameters = array<i32: -1, -1>, slowdowns = array<f32: 2.0>}> : (!pump.buffer, !pump.buffer) -> !pump.token
}

// -----
pump.graph @access_mode_unknown {
  %a = pump.buffer size(4096)
  // expected-error @+1 {{access #0 has the unknown mode 4}}
  %k = "pump.kernel"(%a) <{name = "k", operandSegmentSizes = array<i32: 0, 1>, offsets = array<i64: 0>, sizes = array<i64: 8>, may = array<i8: 4>, must = array<i8: 0>, evidence = array<i8: 0>, parameters = array<i32: -1>}> : (!pump.buffer) -> !pump.token
}

// -----
pump.graph @access_evidence_unknown {
  %a = pump.buffer size(4096)
  // expected-error @+1 {{access #0 has the unknown evidence 9}}
  %k = "pump.kernel"(%a) <{name = "k", operandSegmentSizes = array<i32: 0, 1>, offsets = array<i64: 0>, sizes = array<i64: 8>, may = array<i8: 1>, must = array<i8: 0>, evidence = array<i8: 9>, parameters = array<i32: -1>}> : (!pump.buffer) -> !pump.token
}

// -----
pump.graph @access_arrays_differ {
  %a = pump.buffer size(4096)
  // expected-error @+1 {{accesses 1 buffers but describes 2 accesses}}
  %k = "pump.kernel"(%a) <{name = "k", operandSegmentSizes = array<i32: 0, 1>, offsets = array<i64: 0>, sizes = array<i64: 8, 8>, may = array<i8: 1>, must = array<i8: 0>, evidence = array<i8: 0>, parameters = array<i32: -1>}> : (!pump.buffer) -> !pump.token
}

// -----
pump.graph @access_to_no_buffer {
  %a = builtin.unrealized_conversion_cast to !pump.buffer
  // expected-error @+1 {{access #0 is to a value that no pump.buffer defines}}
  pump.kernel "k" [read %a[0, 8] assumed]
}

// -----
pump.graph @cost_negative {
  // expected-error @+1 {{cost is negative}}
  pump.kernel "k" cost(-1.5)
}

// -----
pump.graph @cost_not_a_number {
  // expected-error @+1 {{cost is not a number}}
  %k = "pump.kernel"() <{name = "k", operandSegmentSizes = array<i32: 0, 0>, cost_us = 0x7FF8000000000000 : f64}> : () -> !pump.token
}

// -----
pump.graph @arithmetic_negative {
  // expected-error @+1 {{arithmetic is negative}}
  pump.kernel "k" cost(1.5) arithmetic(-1.5)
}

// -----
pump.graph @cost_infinite {
  // expected-error @+1 {{cost is infinite}}
  %k = "pump.kernel"() <{name = "k", operandSegmentSizes = array<i32: 0, 0>, cost_us = 0x7FF0000000000000 : f64}> : () -> !pump.token
}

// -----
pump.graph @dependency_twice {
  %a = pump.kernel "a"
  %b = pump.kernel "b"
  // expected-error @+1 {{dependencies #0 and #2 are the same node}}
  pump.kernel "k" after(%a, %b, %a programmatic)
}

// -----
pump.graph @edge_kinds_differ {
  %a = pump.kernel "a"
  // expected-error @+1 {{has 1 dependencies but 2 edge kinds}}
  %k = "pump.kernel"(%a) <{name = "k", operandSegmentSizes = array<i32: 1, 0>, edge_kinds = array<i8: 0, 1>}> : (!pump.token) -> !pump.token
}

// -----
pump.graph @edge_kind_unknown {
  %a = pump.kernel "a"
  // expected-error @+1 {{dependency #0 is of the unknown kind 2}}
  %k = "pump.kernel"(%a) <{name = "k", operandSegmentSizes = array<i32: 1, 0>, edge_kinds = array<i8: 2>}> : (!pump.token) -> !pump.token
}

// -----
pump.graph @captured_twice {
  // expected-note @+1 {{here for the first time}}
  pump.kernel "a" node(3)
  // expected-error @+1 {{captured node 3 occurs twice}}
  pump.memset node(3)
}

// -----
pump.graph @repeats_nothing {
  // expected-error @+1 {{repeats captured node 3, which does not come before it}}
  %a = pump.rematerialize "a" of(3)
  pump.kernel "a" node(3)
}

// -----
pump.graph @repeats_a_host_call {
  // expected-note @+1 {{the node that it repeats}}
  %h = pump.host "h" node(3)
  // expected-error @+1 {{repeats what is no kernel, copy or fill}}
  pump.rematerialize "h" of(3) after(%h)
}

// -----
pump.graph @repeats_and_captured {
  %k = pump.kernel "k" node(3)
  // expected-error @+1 {{is captured as well}}
  pump.rematerialize "k" of(3) node(4) after(%k)
}

// -----
pump.graph @rematerialized_on_managed_memory stage(lowered_managed) {
  %k = pump.kernel "k" node(3)
  // expected-error @+1 {{is rematerialized, but the step is lowered for managed memory}}
  pump.rematerialize "k" of(3) after(%k)
}

// -----
pump.graph @pure_host_call {
  // expected-error @+1 {{is pure, but no kernel, copy or fill}}
  pump.host "h" pure node(3)
}

// -----
pump.graph @captured_negative {
  // expected-error @+1 {{attribute 'captured' failed to satisfy constraint: 32-bit signless integer attribute whose value is non-negative}}
  pump.kernel "a" node(-1)
}

// -----
// A cycle cannot be written: a token is there only after its node.
pump.graph @cycle {
  // expected-error @+1 {{operand #0 does not dominate this use}}
  %a = pump.kernel "a" after(%b)
  // expected-note @+1 {{operand defined here}}
  %b = pump.kernel "b" after(%a)
}

// -----
pump.graph @buffer_empty {
  // expected-error @+1 {{attribute 'size' failed to satisfy constraint: 64-bit signless integer attribute whose value is positive}}
  pump.buffer size(0)
}

// -----
pump.graph @buffer_beyond_addresses {
  // expected-error @+1 {{of 16 bytes at address 0x7ffffffffffffff8 leaves the address space}}
  pump.buffer size(16) address(0x7ffffffffffffff8)
}

// -----
pump.graph @buffer_of_too_many_pages page_bytes(4096) {
  // expected-error @+1 {{has 67108865 pages of 4096 bytes; at most 67108864 can be planned}}
  pump.buffer size(274877906945)
}

// -----
pump.graph @frames_too_few stage(planned) page_bytes(4096) {
  // expected-error @+1 {{has 3 pages of 4096 bytes but names 2 frames}}
  pump.buffer size(8193) frames(0 to 1)
}

// -----
pump.graph @frame_negative page_bytes(4096) {
  // expected-error @+1 {{page 0 names frame -2}}
  %a = "pump.buffer"() <{name = "a", size = 8 : i64, frames = array<i32: -2>}> : () -> !pump.buffer
}

// -----
pump.graph @resident_outside page_bytes(4096) {
  // expected-error @+1 {{resident range #1 [8192, 4096] is not inside the buffer of 8192 bytes}}
  pump.buffer private size(8192) resident([0, 4096], [8192, 4096])
}

// -----
pump.graph @resident_misaligned page_bytes(4096) {
  // expected-error @+1 {{resident range #0 [0, 1000] is not made of whole pages of 4096 bytes}}
  pump.buffer private size(8192) resident([0, 1000])
}

// -----
pump.graph @resident_overlap page_bytes(4096) {
  // expected-error @+1 {{resident range #1 begins at byte 4096, before the end of the one before it at byte 8192}}
  pump.buffer private size(12288) resident([0, 8192], [4096, 4096])
}

// -----
pump.graph @resident_arrays_differ page_bytes(4096) {
  // expected-error @+1 {{has 1 resident offsets but 0 sizes}}
  %a = "pump.buffer"() <{name = "a", size = 8 : i64, resident_offsets = array<i64: 0>}> : () -> !pump.buffer
}

// -----
pump.graph @mirrored_outside page_bytes(4096) {
  // expected-error @+1 {{mirrored range #0 [8192, 4096] is not inside the buffer of 8192 bytes}}
  pump.buffer private live_out size(8192) resident([0, 8192]) mirrored([8192, 4096])
}

// -----
pump.graph @mirrored_misaligned page_bytes(4096) {
  // expected-error @+1 {{mirrored range #0 [0, 1000] is not made of whole pages of 4096 bytes}}
  pump.buffer private live_out size(8192) resident([0, 8192]) mirrored([0, 1000])
}

// -----
pump.graph @mirrored_overlap page_bytes(4096) {
  // expected-error @+1 {{mirrored range #1 begins at byte 0, before the end of the one before it at byte 4096}}
  pump.buffer private live_out size(8192) resident([0, 8192]) mirrored([0, 4096], [0, 4096])
}

// -----
pump.graph @mirrored_not_resident page_bytes(4096) {
  // expected-error @+1 {{mirrored range #1 [8192, 4096] is not inside the resident ranges}}
  pump.buffer private live_out size(12288) resident([0, 8192]) mirrored([0, 4096], [8192, 4096])
}

// -----
pump.graph @mirrored_dead page_bytes(4096) {
  // expected-error @+1 {{has mirrored range #0 [0, 4096] but is not live_out}}
  pump.buffer private size(8192) resident([0, 4096]) mirrored([0, 4096])
}

// -----
pump.graph @mirrored_exclusive page_bytes(4096) {
  // expected-error @+1 {{has mirrored range #0 [0, 4096] but is not private}}
  pump.buffer live_out size(8192) resident([0, 4096]) mirrored([0, 4096])
}

// -----
pump.graph @present_exclusive page_bytes(4096) {
  // expected-error @+1 {{is present, but not private}}
  pump.buffer present live_out size(8192)
}

// -----
pump.graph @present_dead page_bytes(4096) {
  // expected-error @+1 {{is present, but not live_out}}
  pump.buffer private present size(8192)
}

// -----
pump.graph @present_mirrored page_bytes(4096) {
  // expected-error @+1 {{is present, so it cannot have mirrored ranges}}
  pump.buffer private present live_out size(8192) resident([0, 8192]) mirrored([0, 4096])
}

// -----
pump.graph @mirrored_arrays_differ page_bytes(4096) {
  // expected-error @+1 {{has 0 mirrored offsets but 1 sizes}}
  %a = "pump.buffer"() <{name = "a", size = 8 : i64, mirrored_sizes = array<i64: 8>}> : () -> !pump.buffer
}

// -----
pump.graph @continues_another_size stage(planned) page_bytes(4096) {
  %a = pump.buffer private size(8192)
  // expected-error @+1 {{of 4096 bytes continues one of 8192 bytes}}
  %b = pump.buffer private continues(%a) size(4096)
}

// -----
pump.graph @hosted_misaligned page_bytes(4096) {
  // expected-error @+1 {{hosted range #0 [0, 1000] is not made of whole pages of 4096 bytes}}
  pump.buffer private size(8192) hosted([0, 1000])
}

// -----
pump.graph @hosted_resident page_bytes(4096) {
  // expected-error @+1 {{hosted range #0 [0, 8192] is resident in part}}
  pump.buffer private size(8192) resident([4096, 4096]) hosted([0, 8192])
}

// -----
pump.graph @hosted_exclusive page_bytes(4096) {
  // expected-error @+1 {{has hosted range #0 [0, 4096] but is not private}}
  pump.buffer size(8192) hosted([0, 4096])
}

// -----
pump.graph @transfer_misaligned stage(planned) page_bytes(4096) {
  %a = pump.buffer private size(8192)
  // expected-error @+1 {{range [0, 5000] is not made of whole pages of 4096 bytes}}
  pump.evict %a[0, 5000]
}

// -----
pump.graph @transfer_begins_inside_a_page stage(planned) page_bytes(4096) {
  %a = pump.buffer private size(8192)
  // expected-error @+1 {{range [512, 4096] is not made of whole pages of 4096 bytes}}
  pump.prefetch %a[512, 4096]
}

// -----
pump.graph @transfer_outside stage(planned) page_bytes(4096) {
  // expected-note @+1 {{the buffer has 8192 bytes}}
  %a = pump.buffer private size(8192)
  // expected-error @+1 {{range [4096, 8192] is not inside its buffer}}
  pump.discard %a[4096, 8192]
}

// -----
pump.graph @transfer_empty stage(planned) page_bytes(4096) {
  %a = pump.buffer private size(8192)
  // expected-error @+1 {{has an empty range of 0 bytes}}
  pump.evict %a[0, 0]
}

// -----
pump.graph @transfer_of_exclusive stage(lowered_virtual) {
  // expected-note @+1 {{the buffer's frames are its own at all times}}
  %a = pump.buffer "input" size(8192)
  // expected-error @+1 {{moves a buffer that is not private}}
  pump.to_host %a host(0)
}

// -----
pump.graph @transfer_of_no_buffer stage(planned) {
  %a = builtin.unrealized_conversion_cast to !pump.buffer
  // expected-error @+1 {{concerns a value that no pump.buffer defines}}
  pump.evict %a
}

// -----
pump.graph @transfer_half_a_range stage(planned) {
  %a = pump.buffer private size(8192)
  // expected-error @+1 {{names an offset or a size, but not both}}
  %e = "pump.evict"(%a) <{name = "", offset = 0 : i64}> : (!pump.buffer) -> !pump.token
}

// -----
pump.graph @advice_unknown stage(lowered_managed) {
  %a = pump.buffer private size(8192)
  // expected-error @+1 {{gives the unknown advice 7}}
  %e = "pump.advise"(%a) <{name = "", advice = 7 : i32}> : (!pump.buffer) -> !pump.token
}

// -----
// An exclusive buffer may be advised upon: nothing moves.
pump.graph @advise_exclusive stage(lowered_managed) {
  %a = pump.buffer size(8192)
  pump.advise %a read_mostly
}

// -----
pump.graph @host_offset_negative stage(lowered_virtual) {
  %a = pump.buffer private size(8192)
  // expected-error @+1 {{attribute 'host_offset' failed to satisfy constraint: 64-bit signless integer attribute whose value is non-negative}}
  pump.to_device %a host(-4096)
}

// -----
pump.graph @host_offset_too_large stage(lowered_virtual) {
  %a = pump.buffer private size(8192)
  // expected-error @+1 {{host offset 9223372036854775807 is too large for 8192 bytes}}
  pump.to_device %a host(9223372036854775807)
}

// -----
// expected-error @+1 {{attribute 'page_bytes' failed to satisfy constraint: 64-bit signless integer attribute whose value is positive}}
pump.graph @no_pages page_bytes(0) {
}

// -----
pump.graph @foreign_op {
  // expected-error @+1 {{is neither a buffer nor a node of a step}}
  builtin.module {}
}

// -----
// expected-error @+1 {{'pump.kernel' op expects parent op 'pump.graph'}}
pump.kernel "outside"

// -----
// The stage is the step's own word, and every node and buffer keeps it.
pump.graph @transfer_of_a_captured_step {
  %a = pump.buffer "a" private size(2097152)
  // expected-error @+1 {{'pump.evict' op is a plan's evict, prefetch or discard, but the step is captured}}
  pump.evict %a
}

// -----
pump.graph @copy_of_a_planned_step stage(planned) {
  %a = pump.buffer "a" private size(2097152)
  // expected-error @+1 {{'pump.to_host' op is a lowered copy, but the step is planned}}
  pump.to_host %a host(0)
}

// -----
pump.graph @advice_of_a_planned_step stage(planned) {
  %a = pump.buffer "a" size(2097152)
  // expected-error @+1 {{'pump.advise' op is advice, but the step is planned}}
  pump.advise %a read_mostly
}

// -----
pump.graph @transfer_beside_copies stage(lowered_virtual) {
  %a = pump.buffer "a" private size(2097152)
  // expected-error @+1 {{'pump.discard' op is a plan's evict, prefetch or discard, but the step is lowered for virtual memory}}
  pump.discard %a
}

// -----
pump.graph @copy_beside_operations stage(lowered_managed) {
  %a = pump.buffer "a" private size(2097152)
  // expected-error @+1 {{'pump.to_device' op is a lowered copy, but the step is lowered for managed memory}}
  pump.to_device %a host(0)
}

// -----
pump.graph @frames_of_a_captured_step {
  // expected-error @+1 {{'pump.buffer' op names frames, but the step is captured}}
  %a = pump.buffer "a" private size(2097152) frames(0)
}

// -----
pump.graph @continuation_in_a_captured_step {
  %a = pump.buffer "a" private size(2097152)
  // expected-error @+1 {{'pump.buffer' op continues another one, but the step is captured}}
  %b = pump.buffer "b" private continues(%a) size(2097152)
}

// -----
// expected-error @+1 {{'pump.graph' op is of the unknown stage 4}}
"pump.graph"() <{sym_name = "unknown", stage = 4 : i32}> ({
^bb0:
}) : () -> ()
