# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` and cpack put where: the library with its C and C++ headers, a CMake package and a pkg-config
# file; pump-graph-opt; pump-graph-run; the Clang plugin with pump_annotate(); the Python package, for Debian's own Python.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/PumpGraph)

install(TARGETS pump-graph-opt RUNTIME)
if(TARGET pumpgraph)
  install(TARGETS pumpgraph EXPORT PumpGraphTargets LIBRARY INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  # Found beside the library, by its name: it has no version of its own.
  install(TARGETS pumpgraph-compiler LIBRARY)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/runtime/include/pumpgraph DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT PumpGraphTargets NAMESPACE PumpGraph:: DESTINATION ${package_folder})
  configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/PumpGraphConfig.cmake.in
                                ${CMAKE_BINARY_DIR}/package/PumpGraphConfig.cmake INSTALL_DESTINATION ${package_folder}
                                PATH_VARS CMAKE_INSTALL_LIBDIR)
  # Until 1.0 a minor version may change the interface.
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/PumpGraphConfigVersion.cmake
                                   COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/package/PumpGraphConfig.cmake
                ${CMAKE_BINARY_DIR}/package/PumpGraphConfigVersion.cmake DESTINATION ${package_folder})
  file(RELATIVE_PATH to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/pumpgraph.pc.in ${CMAKE_BINARY_DIR}/package/pumpgraph.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/package/pumpgraph.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/runtime/python/pumpgraph DESTINATION lib/python3/dist-packages
          PATTERN __pycache__ EXCLUDE)
endif()
if(TARGET pumpgraph_preload)
  install(TARGETS pump-graph-run RUNTIME)
  install(TARGETS pumpgraph_preload LIBRARY)
endif()
if(TARGET PumpGraphAnnotate)
  install(TARGETS PumpGraphAnnotate LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/pumpgraph)
  install(FILES ${CMAKE_SOURCE_DIR}/tools/clang-plugin/PumpAnnotate.cmake DESTINATION ${package_folder})
  install(FILES ${CMAKE_SOURCE_DIR}/tools/clang-plugin/annotate_source.py DESTINATION ${package_folder})
endif()

install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION share/doc/pumpgraph RENAME copyright)

set(CPACK_PACKAGE_NAME pumpgraph)
set(CPACK_PACKAGE_VENDOR PumpGraph)
set(CPACK_PACKAGE_CONTACT "the PumpGraph maintainers <maintainers@pumpgraph.example>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "GPU training steps that do not fit the GPU: CUDA graphs under a memory budget")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "python3 (>= 3.9), clang-22") # for the Python package, for the Clang plugin
include(CPack)
