// Echo server and client on package net.
package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(address string) {
	listener, err := net.Listen("tcp4", address)
	must(err)
	for {
		connection, err := listener.Accept()
		must(err)
		go func() {
			defer connection.Close()
			buffer := make([]byte, 65536)
			for {
				length, err := connection.Read(buffer)
				if length > 0 {
					if _, err := connection.Write(buffer[:length]); err != nil {
						return
					}
				}
				if err != nil {
					return
				}
			}
		}()
	}
}

func client(address string, pattern []byte, total int) string {
	connection, err := net.Dial("tcp4", address)
	must(err)
	hash := sha256.New()
	sent, received := 0, int64(0)
	chunk := func(limit int) []byte {
		start := sent % len(pattern)
		return pattern[start : start+min(limit, total-sent, len(pattern)-start)]
	}
	for round := range 20 {
		part := chunk(round*37 + 1)
		_, err := connection.Write(part)
		must(err)
		answer := make([]byte, len(part))
		_, err = io.ReadFull(connection, answer)
		must(err)
		hash.Write(answer)
		sent += len(part)
		received += int64(len(part))
	}
	go func() {
		for sent < total {
			part := chunk(sent*7919%65536 + 1)
			_, err := connection.Write(part)
			must(err)
			sent += len(part)
		}
		must(connection.(*net.TCPConn).CloseWrite())
	}()
	length, err := io.Copy(hash, connection)
	must(err)
	must(connection.Close())
	return fmt.Sprintf("%d %x", received+length, hash.Sum(nil))
}

func main() {
	start()
	address := net.JoinHostPort(os.Args[2], os.Args[3])
	if os.Args[1] == "server" {
		serve(address)
	}
	pattern, err := os.ReadFile(os.Args[4])
	must(err)
	total, err := strconv.Atoi(os.Args[5])
	must(err)
	count, err := strconv.Atoi(os.Args[6])
	must(err)
	lines := make([]chan string, count)
	for at := range lines {
		lines[at] = make(chan string)
		go func() { lines[at] <- client(address, pattern, total) }()
	}
	for at, line := range lines {
		fmt.Println(at, <-line)
	}
}
