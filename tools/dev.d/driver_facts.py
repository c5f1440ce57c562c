#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the CUDA driver says of itself and of its devices, one `key value` a line, for tools/dev.

Needs nothing but libcuda.so.1, so it answers before anything is built. `devices` and `reason` always come:
`reason` says why there is no device, or is empty.
"""
import ctypes

# Of CUdevice_attribute (cuda.h).
ATTRIBUTES = {
    "compute_major": 75,
    "compute_minor": 76,
    "virtual_memory": 102,
    "host_numa_node": 134,
    "host_numa_virtual_memory": 141,
}


def error_name(driver, code):
    name = ctypes.c_char_p()
    driver.cuGetErrorName(code, ctypes.byref(name))
    return name.value.decode() if name.value else str(code)


def device_facts(driver, ordinal):
    device = ctypes.c_int()
    driver.cuDeviceGet(ctypes.byref(device), ordinal)
    name = ctypes.create_string_buffer(256)
    driver.cuDeviceGetName(name, len(name), device)
    yield "name", name.value.decode()
    total = ctypes.c_size_t()
    driver.cuDeviceTotalMem_v2(ctypes.byref(total), device)
    yield "memory_bytes", total.value
    for key, attribute in ATTRIBUTES.items():
        value = ctypes.c_int()
        # A driver that does not know the attribute does not have what it stands for.
        known = driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) == 0
        yield key, value.value if known else 0


def facts():
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        yield "devices", 0
        yield "reason", "no CUDA driver (libcuda.so.1 is not found)"
        return
    version = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    yield "driver_api", f"{version.value // 1000}.{version.value % 1000 // 10}"
    status = driver.cuInit(0)
    if status != 0:
        yield "devices", 0
        yield "reason", f"the CUDA driver does not start: {error_name(driver, status)}"
        return
    count = ctypes.c_int()
    driver.cuDeviceGetCount(ctypes.byref(count))
    yield "devices", count.value
    yield "reason", "" if count.value else "the CUDA driver sees no GPU"
    for ordinal in range(count.value):
        for key, value in device_facts(driver, ordinal):
            yield f"device{ordinal}_{key}", value


if __name__ == "__main__":
    for fact_key, fact_value in facts():
        print(fact_key, fact_value)
