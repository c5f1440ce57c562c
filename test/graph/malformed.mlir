// What is no IR at all: the parser says where it stopped, and the tool fails.
// RUN: pump-graph-opt %s --split-input-file --verify-diagnostics

pump.graph @mode {
  %a = pump.buffer size(4096)
  // expected-error @+1 {{expected read, write or readwrite, got 'touch'}}
  pump.kernel "k" [touch %a[0, 4096] assumed]
}

// -----
pump.graph @label {
  // expected-error @+1 {{expected string}}
  pump.kernel "k" label(mm)
}

// -----
pump.graph @evidence_missing {
  %a = pump.buffer size(4096)
  // expected-error @+1 {{expected proved, declared, observed, assumed or allocated}}
  pump.kernel "k" [read %a[0, 4096]]
}

// -----
pump.graph @evidence {
  %a = pump.buffer size(4096)
  // expected-error @+1 {{expected proved, declared, observed, assumed or allocated, got 'guessed'}}
  pump.kernel "k" [read %a[0, 4096] guessed]
}

// -----
pump.graph @must {
  %a = pump.buffer size(4096)
  // expected-error @+1 {{expected read, write or readwrite, got 'nothing'}}
  pump.kernel "k" [read %a[0, 4096] assumed must(nothing)]
}

// -----
pump.graph @advice stage(lowered_managed) {
  %a = pump.buffer size(4096)
  // expected-error @+1 {{expected read_mostly, prefer_host, prefer_device or accessed_by, got 'keep'}}
  pump.advise %a keep
}

// -----
pump.graph @size_too_large {
  // expected-error @+1 {{integer constant out of range for attribute}}
  pump.buffer size(18446744073709551616)
}

// -----
pump.graph @offset_too_large {
  %a = pump.buffer size(4096)
  // expected-error @+1 {{integer value too large}}
  pump.kernel "k" [read %a[18446744073709551616, 1] assumed]
}

// -----
pump.graph @frames_descend stage(planned) {
  // expected-error @+1 {{expected an ascending run of frames, got 5 to 3}}
  pump.buffer size(4096) frames(5 to 3)
}

// -----
// A damaged count must not become a huge array.
pump.graph @frames_too_many stage(planned) {
  // expected-error @+1 {{more than 67108864 pages}}
  pump.buffer size(4096) frames(0 to 2000000000)
}

// -----
pump.graph @frames_absent_too_many stage(planned) {
  // expected-error @+1 {{expected between 1 and 67108864 pages, got 2000000000}}
  pump.buffer size(4096) frames(none * 2000000000)
}

// -----
pump.graph @cost {
  // expected-error @+1 {{expected floating point literal}}
  pump.kernel "k" cost(fast)
}

// -----
pump.graph @arithmetic {
  // expected-error @+1 {{expected '('}}
  pump.kernel "k" arithmetic 1.5
}

// -----
pump.graph @value_unknown {
  // expected-error @+1 {{use of undeclared SSA value name}}
  pump.kernel "k" after(%nobody)
}

// -----
pump.graph @buffer_as_token {
  // expected-note @+1 {{prior use here}}
  %a = pump.buffer size(4096)
  // expected-error @+1 {{use of value '%a' expects different type than prior uses: '!pump.token' vs '!pump.buffer'}}
  pump.kernel "k" after(%a)
}

// -----
pump.graph @op_unknown {
  // expected-error @+1 {{custom op 'pump.teleport' is unknown}}
  pump.teleport
}

// -----
// expected-error @+1 {{expected valid '@'-identifier for symbol name}}
pump.graph {
}

// -----
// expected-error @+1 {{expected captured, planned, lowered_virtual or lowered_managed, got 'lowered'}}
pump.graph @stage stage(lowered) {
}
