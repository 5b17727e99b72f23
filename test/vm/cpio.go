package main

import (
	"fmt"
	"io"
)

// cpio writes an initramfs archive (the kernel's initramfs buffer format, "newc").
// Several archives may follow each other in one file. The first error sticks and
// is returned by close.
type cpio struct {
	w   io.Writer
	ino int
	err error
}

// Types of entries, from stat(2).
const (
	cpioDir  = 0o040000
	cpioFile = 0o100000
	cpioLink = 0o120000
	cpioChar = 0o020000
)

func (c *cpio) dir(name string)               { c.entry(name, cpioDir|0o755, nil, 0, 0) }
func (c *cpio) program(name string, b []byte) { c.entry(name, cpioFile|0o755, b, 0, 0) }
func (c *cpio) link(name, target string)      { c.entry(name, cpioLink|0o777, []byte(target), 0, 0) }

// char adds a character device.
func (c *cpio) char(name string, major, minor int) { c.entry(name, cpioChar|0o600, nil, major, minor) }

// close ends the archive.
func (c *cpio) close() error {
	c.ino = -1
	c.entry("TRAILER!!!", 0, nil, 0, 0)
	return c.err
}

func (c *cpio) entry(name string, mode int, body []byte, major, minor int) {
	c.ino++
	links := 1
	if mode&cpioDir == cpioDir {
		links = 2
	}
	head := "070701"
	// ino mode uid gid nlink mtime filesize dev(2) rdev(2) namesize check
	for _, v := range []int{c.ino, mode, 0, 0, links, 0, len(body), 0, 0, major, minor, len(name) + 1, 0} {
		head += fmt.Sprintf("%08x", v)
	}
	head += name + "\x00"
	c.write([]byte(head))
	c.pad(len(head))
	c.write(body)
	c.pad(len(body))
}

func (c *cpio) write(b []byte) {
	if c.err == nil {
		_, c.err = c.w.Write(b)
	}
}

// pad fills up to a multiple of four bytes.
func (c *cpio) pad(n int) { c.write(make([]byte, (4-n%4)%4)) }
