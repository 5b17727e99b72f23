package cgroupfs

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"syscall"
)

// ErrAbsent says that this kernel, hierarchy or object does not offer what was
// asked for. It is a property of the machine and not a failure.
var ErrAbsent = errors.New("not offered by this kernel or cgroup hierarchy")

// ErrGone says that the cgroup was removed: its directory did not exist when
// it was opened, or a descriptor of it answers ENODEV. It is not ErrAbsent.
var ErrGone = errors.New("cgroup was removed")

// ErrNotPod refuses to kill a cgroup whose path does not name a pod.
var ErrNotPod = errors.New("not the cgroup of a pod")

// ErrReclaimShort says that the kernel found less to reclaim than it was asked
// for: it is of no use to ask this cgroup again now.
var ErrReclaimShort = errors.New("less could be reclaimed than asked for")

// ErrNotLive refuses to signal processes by number when the numbers come from
// a directory that is not a mounted cgroup file system: in a checked-in tree
// they would belong to strangers.
var ErrNotLive = errors.New("not a mounted cgroup file system")

// errNotNumber and the others are the reasons inside a BrokenError.
var (
	errNotNumber = errors.New("not a number")
	errAbsurd    = errors.New("absurd value")
	errMissing   = errors.New("field is missing")
	errCut       = errors.New("line is cut off")
	errTooLong   = errors.New("file is longer than the reader's buffer")
)

// maxQuoted bounds how much of an offending text goes into an error.
const maxQuoted = 64

// BrokenError says that something is there and cannot be read or understood.
type BrokenError struct {
	Path  string // of the file or directory
	Field string // name inside the file, empty when the file as a whole is meant
	Text  string // the offending text, at most 64 bytes, empty when there is none
	Err   error  // why
}

// Error names path, field, offending text and reason.
func (e *BrokenError) Error() string {
	s := e.Path
	if s == "" {
		s = "input"
	}
	if e.Field != "" {
		s += ": " + e.Field
	}
	if e.Text != "" {
		s += ": " + strconv.Quote(e.Text)
	}
	return s + ": " + e.Err.Error()
}

// Unwrap gives the reason.
func (e *BrokenError) Unwrap() error { return e.Err }

// broken builds a BrokenError and cuts the offending text.
func broken(path, field string, text []byte, err error) *BrokenError {
	if len(text) > maxQuoted {
		text = text[:maxQuoted]
	}
	return &BrokenError{Path: path, Field: field, Text: string(text), Err: err}
}

// inFile adds the path to a BrokenError that a pure parser has returned.
func inFile(path string, err error) error {
	var b *BrokenError
	if errors.As(err, &b) && b.Path == "" {
		b.Path = path
		return b
	}
	return fmt.Errorf("%s: %w", path, err)
}

// goneOrBroken classifies an error from using a descriptor, or a name below
// one, of a cgroup that existed when it was opened.
func goneOrBroken(path string, err error) error {
	if isGone(err) {
		return fmt.Errorf("%s: %w", path, ErrGone)
	}
	return broken(path, "", nil, err)
}

// isGone: ENODEV comes from a kept descriptor, ENOENT from a look-up.
func isGone(err error) bool {
	return errors.Is(err, syscall.ENODEV) || errors.Is(err, fs.ErrNotExist)
}
