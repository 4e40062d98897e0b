include(CMakePackageConfigHelpers)
if(TARGET afinar)
    install(TARGETS afinar RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(TARGETS afinar_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET afinar_shared)
    install(TARGETS afinar_shared EXPORT afinar-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(EXPORT afinar-targets NAMESPACE afinar:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/afinar)
    file(WRITE ${CMAKE_BINARY_DIR}/afinar-config.cmake
        "include(\"\${CMAKE_CURRENT_LIST_DIR}/afinar-targets.cmake\")\n")
    write_basic_package_version_file(${CMAKE_BINARY_DIR}/afinar-config-version.cmake
        COMPATIBILITY SameMajorVersion)
    install(FILES ${CMAKE_BINARY_DIR}/afinar-config.cmake ${CMAKE_BINARY_DIR}/afinar-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/afinar)
endif()
install(DIRECTORY include/afinar DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# the prefix is found from where the file lies: the tree may be installed, or moved, anywhere
file(RELATIVE_PATH AF_PC_UP /x/${CMAKE_INSTALL_LIBDIR}/pkgconfig /x)
configure_file(cmake/afinar.pc.in ${CMAKE_BINARY_DIR}/afinar.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/afinar.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
