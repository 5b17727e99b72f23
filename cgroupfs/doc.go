// Package cgroupfs reads what the kernel says about memory and pods (/proc
// and the cgroup file systems, version 1, 2 and hybrid) and kills the
// processes of a pod's cgroup.
//
// # Absent, gone, broken
//
// Three kinds of failure are kept apart, because they ask for different
// answers: ErrAbsent (this kernel or hierarchy does not offer it), ErrGone
// (the cgroup has been removed meanwhile) and *BrokenError (it is there and
// cannot be read or understood). A number that is missing or absurd is an
// error, never zero.
//
// # Why there are readers of our own beside opencontainers/cgroups
//
// The alarm path reads the usage of every planned pod each few milliseconds on
// a machine that is out of memory. The managers of
// github.com/opencontainers/cgroups open, scan and close every file of a
// cgroup on each call and fix the mount point at /sys/fs/cgroup; the readers
// here keep their descriptors open, allocate nothing and take a root
// directory. BenchmarkUsage and BenchmarkMemoryStat in
// opencontainers_bench_test.go compare the two side by side: `go test -run -
// -bench 'Usage|MemoryStat' ./cgroupfs`. Slice names are expanded by
// opencontainers/cgroups.
//
// All sizes are bytes. No function locks; types say which of their methods may
// be called at the same time.
package cgroupfs
