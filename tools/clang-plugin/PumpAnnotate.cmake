# SPDX-License-Identifier: Apache-2.0
# pump_annotate(target [SOURCES source...] [ARCHITECTURES 80 90...] [OPTIONS option...])
#
# Puts the access table of the target's CUDA sources into it, whatever compiler compiles them: clang analyses each source
# beside the build. SOURCES: where they are not the target's own .cu files. ARCHITECTURES: where they are not in its
# CUDA_ARCHITECTURES. OPTIONS: for clang, beside the target's include folders, definitions and standard; such as
# --cuda-path=FOLDER where CMake does not know the toolkit.
#
# Wants PUMPGRAPH_CLANG (clang++ of the plugin's version) and PUMPGRAPH_PLUGIN (libPumpGraphAnnotate.so) where
# PumpGraph's own build is not part of the project.
set(PUMPGRAPH_ANNOTATE_FOLDER ${CMAKE_CURRENT_LIST_DIR})
if(NOT PUMPGRAPH_ANNOTATE_INCLUDE) # which the installed package sets
  set(PUMPGRAPH_ANNOTATE_INCLUDE ${CMAKE_CURRENT_LIST_DIR}/../../runtime/include)
endif()

function(pump_annotate target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;ARCHITECTURES;OPTIONS")
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  find_program(PUMPGRAPH_CLANG NAMES clang++-22 REQUIRED)
  if(TARGET PumpGraphAnnotate)
    set(plugin $<TARGET_FILE:PumpGraphAnnotate>)
  elseif(PUMPGRAPH_PLUGIN)
    set(plugin ${PUMPGRAPH_PLUGIN})
  else()
    message(FATAL_ERROR "pump_annotate: set PUMPGRAPH_PLUGIN to the path of libPumpGraphAnnotate.so")
  endif()
  set(sources ${arg_SOURCES})
  if(NOT sources)
    get_target_property(sources ${target} SOURCES)
    list(FILTER sources INCLUDE REGEX "\\.cu$")
  endif()
  set(architectures ${arg_ARCHITECTURES})
  if(NOT architectures)
    get_target_property(architectures ${target} CUDA_ARCHITECTURES)
  endif()
  list(TRANSFORM architectures REPLACE "-(real|virtual)$" "")
  list(FILTER architectures INCLUDE REGEX "^[0-9]+[af]?$")
  if(NOT architectures)
    message(FATAL_ERROR "pump_annotate: ${target} names no architecture by number; give ARCHITECTURES")
  endif()
  list(TRANSFORM architectures PREPEND --arch=sm_)

  set(toolkit)
  if(CMAKE_CUDA_COMPILER)
    get_filename_component(folder ${CMAKE_CUDA_COMPILER} REALPATH)
    cmake_path(GET folder PARENT_PATH folder)
    cmake_path(GET folder PARENT_PATH folder)
    set(toolkit --cuda-path=${folder} -isystem ${folder}/include/cccl) # nvcc finds the latter by itself
  endif()

  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  set(extension cpp)
  if(NOT CXX IN_LIST languages)
    set(extension c)
  endif()
  set(includes $<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>)
  set(standard $<TARGET_PROPERTY:${target},CUDA_STANDARD>)
  set(definitions $<TARGET_PROPERTY:${target},COMPILE_DEFINITIONS>)
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source NORMALIZE OUTPUT_VARIABLE path)
    string(MAKE_C_IDENTIFIER ${source} name)
    set(output ${CMAKE_CURRENT_BINARY_DIR}/${target}-${name}-accesses.${extension})
    add_custom_command(
      OUTPUT ${output}
      COMMAND Python3::Interpreter ${PUMPGRAPH_ANNOTATE_FOLDER}/annotate_source.py --clang ${PUMPGRAPH_CLANG}
              --plugin ${plugin} ${architectures} --output ${output} --depfile ${output}.d ${path} --
              ${toolkit} $<$<BOOL:${standard}>:-std=c++${standard}> ${arg_OPTIONS} "$<$<BOOL:${includes}>:-I$<JOIN:${includes},;-I>>"
              "$<$<BOOL:${definitions}>:-D$<JOIN:${definitions},;-D>>"
      DEPENDS ${path} ${PUMPGRAPH_ANNOTATE_FOLDER}/annotate_source.py $<$<TARGET_EXISTS:PumpGraphAnnotate>:PumpGraphAnnotate>
      DEPFILE ${output}.d
      COMMAND_EXPAND_LISTS
      COMMENT "Looking at what the kernels of ${source} access"
      VERBATIM)
    set_source_files_properties(${output} PROPERTIES
      INCLUDE_DIRECTORIES ${PUMPGRAPH_ANNOTATE_INCLUDE})
    target_sources(${target} PRIVATE ${output})
  endforeach()
endfunction()
