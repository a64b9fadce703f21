"""Random ext volumes, a reader of them, and the kernel's view of them."""
