"""What compilers made of kernels, read from AMD code objects and cubins without a GPU."""
