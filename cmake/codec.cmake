# The encoders of block types once more for wider vectors, under other names; tensor/codec.c picks at run time.
# No fused multiply-add: the bytes are those of the narrow ones.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|amd64|AMD64")
    add_library(af_codec_avx2 OBJECT src/tensor/codec_search.c src/tensor/codec_k_encode.c src/tensor/codec_k_signed.c
                src/tensor/codec_q_encode.c)
    target_link_libraries(af_codec_avx2 PRIVATE af_flags)
    target_compile_options(af_codec_avx2 PRIVATE -mavx2)
    foreach(name q4_0_encode q4_1_encode q5_0_encode q5_1_encode q8_0_encode q2_k_encode q3_k_encode q4_k_encode
            q5_k_encode q6_k_encode iq4_nl_encode iq4_xs_encode vec_load wide_load search_affine search_signed
            search_stepwise search_positive search_iq4 iq4_codes iq4_values)
        target_compile_definitions(af_codec_avx2 PRIVATE af_${name}=af_${name}_avx2)
    endforeach()
    set_target_properties(af_codec_avx2 PROPERTIES POSITION_INDEPENDENT_CODE ON)
    set_source_files_properties(src/tensor/codec.c PROPERTIES COMPILE_DEFINITIONS AF_CODEC_AVX2)
    list(APPEND AF_FAST_OBJECTS $<TARGET_OBJECTS:af_codec_avx2>)
endif()
