# CUDA kernels as text inside the library, and a pack of cubins where a CUDA compiler is present.
set(AF_KERNEL_OBJECTS "")
