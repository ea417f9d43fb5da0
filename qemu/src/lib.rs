//! Guest images, launch configuration and a harness that boots and commands guests
