// Echoes what comes (`server HOST PORT`), or sends and compares (`client HOST PORT`). Go makes its system calls itself, so that no library
// sees its sockets.
package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
)

const (
	most     = 100000
	messages = 300
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(address string) {
	listener, err := net.Listen("tcp", address)
	check(err)
	for {
		connection, err := listener.Accept()
		check(err)
		go func() {
			defer connection.Close()
			io.Copy(connection, connection)
		}()
	}
}

func use(address string) {
	connection, err := net.Dial("tcp", address)
	check(err)
	for number := 1; number <= messages; number++ {
		sent := bytes.Repeat([]byte{byte(number)}, number*number*7%most+1)
		_, err = connection.Write(sent)
		check(err)
		received := make([]byte, len(sent))
		_, err = io.ReadFull(connection, received)
		check(err)
		if !bytes.Equal(sent, received) {
			check(fmt.Errorf("message %d came back with other bytes", number))
		}
	}
	fmt.Println("done")
}

func main() {
	address := net.JoinHostPort(os.Args[2], os.Args[3])
	if os.Args[1] == "client" {
		use(address)
		return
	}
	serve(address)
}
