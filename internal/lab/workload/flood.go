package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// flood fills the page cache: it writes a file if there is none of that size, and
// reads it again and again. What it uses is cache and can be taken back at any
// moment.
func flood(args []string, stdout, stderr io.Writer) int {
	var total size
	flags := flag.NewFlagSet("flood", flag.ContinueOnError)
	flags.SetOutput(stderr)
	path := flags.String("file", "/tmp/flood.data", "file to write and read")
	flags.Var(&total, "total", "size of the file")
	passes := flags.Int("passes", 0, "how often to read it, 0: until SIGTERM")
	hold := flags.Bool("hold", true, "stay when everything is read")
	if err := parse(flags, args); err != nil {
		return 2
	}
	end := endSignals(false)
	err := fillFile(*path, int64(total), end)
	if err == nil {
		fmt.Fprintf(stdout, "flood: written %d bytes\n", total)
	}
	for pass := 1; err == nil && (*passes == 0 || pass <= *passes); pass++ {
		var n int64
		if n, err = readFile(*path, end); err == nil {
			fmt.Fprintf(stdout, "flood: pass %d, %d bytes\n", pass, n)
		}
	}
	switch {
	case errors.Is(err, errEnded):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "workload: flood: %v\n", err)
		return 1
	}
	if *hold {
		<-end
	}
	return 0
}

// fillFile writes the file, unless it has that size already.
func fillFile(path string, total int64, end <-chan os.Signal) (err error) {
	if info, err := os.Stat(path); err == nil && info.Size() == total {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return writeChunks(f, newChunk(), total, end)
}

// newChunk is a MiB that no file system can leave out.
func newChunk() []byte {
	chunk := make([]byte, 1<<20)
	for i := range chunk {
		chunk[i] = byte(i*7 + i>>8)
	}
	return chunk
}

// writeChunks writes n bytes, from the same chunk again and again.
func writeChunks(f io.Writer, chunk []byte, n int64, end <-chan os.Signal) error {
	for n > 0 {
		written, err := f.Write(chunk[:min(n, int64(len(chunk)))])
		if err != nil {
			return err
		}
		n -= int64(written)
		select {
		case <-end:
			return errEnded
		default:
		}
	}
	return nil
}

// readFile reads the file once and returns its size.
func readFile(path string, end <-chan os.Signal) (n int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	chunk := make([]byte, 1<<20)
	for {
		got, err := f.Read(chunk)
		n += int64(got)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		select {
		case <-end:
			return n, errEnded
		default:
		}
	}
}
