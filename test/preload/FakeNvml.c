/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a device as libnvidia-ml.so.1 tells it. */
struct memory1 {
  unsigned long long total, free, used;
};
struct memory2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};

int nvmlDeviceGetMemoryInfo(void *device, struct memory1 *memory) {
  (void)device;
  *memory = (struct memory1){1000ull << 20, 900ull << 20, 100ull << 20};
  return 0;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory2 *memory) {
  (void)device;
  *memory = (struct memory2){memory->version, 1000ull << 20, 10ull << 20, 890ull << 20, 100ull << 20};
  return 0;
}
