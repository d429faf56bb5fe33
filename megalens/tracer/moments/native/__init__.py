"""The kernel for CPUs: its source, how it is built, and, where there was a compiler, the library."""
