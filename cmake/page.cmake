# The files of the page (src/serve/page) as arrays of bytes, made when CMake configures: no other tool is needed.
set(AF_PAGE_DIR ${CMAKE_SOURCE_DIR}/src/serve/page)
set(AF_PAGE_C ${CMAKE_BINARY_DIR}/generated/page_files.c)
set(arrays "/* page_files.c - made by cmake/page.cmake. */\n#include \"serve/page/page.h\"\n")
set(rows "")
foreach(entry "index.html|/|text/html; charset=utf-8" "app.js|/app.js|text/javascript; charset=utf-8"
              "app.css|/app.css|text/css; charset=utf-8" "icon.svg|/icon.svg|image/svg+xml")
    string(REPLACE "; " "@" entry "${entry}") # a list is cut at semicolons
    string(REPLACE "|" ";" entry "${entry}")
    list(GET entry 0 name)
    list(GET entry 1 path)
    list(GET entry 2 type)
    string(REPLACE "@" "; " type "${type}")
    string(MAKE_C_IDENTIFIER ${name} array)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${AF_PAGE_DIR}/${name})
    file(READ ${AF_PAGE_DIR}/${name} bytes HEX)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
    string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n" bytes "${bytes}")
    string(APPEND arrays "static const unsigned char ${array}[] = {\n${bytes}\n};\n")
    string(APPEND rows "    {\"${path}\", \"${type}\", ${array}, sizeof ${array}},\n")
endforeach()
string(APPEND arrays "const af_page_file af_page_files[] = {\n${rows}};\nconst int af_page_file_count = AF_LEN(af_page_files);\n")
file(CONFIGURE OUTPUT ${AF_PAGE_C} CONTENT "${arrays}" @ONLY) # written only when it changes
list(APPEND AF_SOURCES ${AF_PAGE_C})
