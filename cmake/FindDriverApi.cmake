# SPDX-License-Identifier: Apache-2.0
# Finds cuda.h (the driver API's header; nothing is linked). Sets PUMPGRAPH_CUDA_INCLUDE to its folder or NOTFOUND, and
# PUMPGRAPH_NVCC to the compiler that the examples need, or NOTFOUND.
find_path(PUMPGRAPH_CUDA_INCLUDE cuda.h
          HINTS ENV CUDA_HOME ENV CUDA_PATH
          PATHS /usr/local/cuda /usr/local/cuda-13.0
          PATH_SUFFIXES include)
find_program(PUMPGRAPH_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
