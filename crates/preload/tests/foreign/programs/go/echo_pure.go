package main

// Has no work without cgo.
func start() {}
