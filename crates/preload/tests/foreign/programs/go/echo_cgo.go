package main

// #include <unistd.h>
import "C"

// Calls libc, so that the program is linked dynamically.
func start() { C.getpid() }
