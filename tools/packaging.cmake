# SPDX-License-Identifier: Apache-2.0
# The files that `cmake --install` installs, the Debian package that `cpack` makes of them, and the
# files of the wheel (pyproject.toml). Licence texts are this machine's, as the libraries are.
include(GNUInstallDirs)

if(SKBUILD)  # the folders of a wheel: pip puts scripts beside python
  set(command_folder ${SKBUILD_SCRIPTS_DIR})
  set(licence_folder ${SKBUILD_METADATA_DIR}/licenses)
else()
  set(command_folder ${CMAKE_INSTALL_BINDIR})
  set(licence_folder ${CMAKE_INSTALL_DOCDIR}/licenses)
  install(FILES README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
  install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN *.md)
endif()
install(TARGETS metronome RUNTIME DESTINATION ${command_folder})
if(METRONOME_PYTHON AND SKBUILD)
  install(TARGETS metronome_python LIBRARY DESTINATION metronome)
  install(FILES ${PROJECT_BINARY_DIR}/python/metronome/_native.pyi DESTINATION metronome)
endif()
install(FILES LICENSE NOTICE sim/catalogue/LICENSE.aiconfigurator
  sim/catalogue/LICENSE.llmservingsim DESTINATION ${licence_folder})

# Packages whose code the program contains: D3 and headers always, libraries if they are static.
set(contained node-d3 libboost-dev libeigen3-dev libfmt-dev nlohmann-json3-dev)
if(METRONOME_STATIC)
  list(APPEND contained libssl-dev libyaml-cpp-dev libpcre2-dev libutf8proc-dev libpng-dev
    libjpeg62-turbo-dev libjpeg-turbo8-dev zlib1g-dev libgcc-s1)
endif()
foreach(package ${contained})
  if(EXISTS /usr/share/doc/${package}/copyright)
    install(FILES /usr/share/doc/${package}/copyright DESTINATION ${licence_folder}
      RENAME ${package}.txt)
  endif()
endforeach()
if(EXISTS /usr/share/common-licenses/Apache-2.0)
  install(FILES /usr/share/common-licenses/Apache-2.0 DESTINATION ${licence_folder})
endif()
if(NOT SKBUILD)  # where Debian's tools look for a package's licence
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VENDOR "The Metronome authors")
set(CPACK_PACKAGE_CONTACT "The Metronome authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # the runtime libraries, as dpkg-shlibdeps finds them
set(CPACK_OUTPUT_FILE_PREFIX ${CMAKE_CURRENT_BINARY_DIR}/packages)
include(CPack)
